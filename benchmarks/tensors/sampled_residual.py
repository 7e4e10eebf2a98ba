"""Residual networks through order 1/n, with and without memory, against sampled networks at several widths.

    python -m benchmarks.tensors.sampled_residual            everything, about ten minutes of processor time
    python -m benchmarks.tensors.sampled_residual --quick    few networks, a check of this script

Tables are printed; a full run also writes them to `results/sampled_residual.md`. Estimates come
from `fw.sample_statistics` and, for the means, from the sampler of the tests; both know no theory.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from helpers.sampled_networks import DIFFERENTIALS, FLUCTUATIONS, extrapolated, sample_means

import finitewidth as fw
from benchmarks.harness import write
from benchmarks.provenance import stamp
from finitewidth.core.estimate import Estimate

X = np.array([[1.1, -0.5, 0.4], [0.3, 1.2, -0.6]])
MEANS = ("G", "H")
RATES = {"lambda_b": 0.5, "lambda_W": 1.0}


class Ensemble(NamedTuple):
    """Statistics that are sampled together, at these widths, from so many networks of each."""

    names: tuple[str, ...]
    widths: tuple[int, ...]
    networks: int


class Case(NamedTuple):
    """A family of networks, one for each width of its stream."""

    name: str
    make: Callable[[int], fw.Network]
    ensembles: tuple[Ensemble, ...]


def dense(n: int, C_W: float = 1.0) -> fw.Dense:
    return fw.Dense(n, 0.1, C_W, **RATES)


def one_layer_bodies(*layers: tuple[str, float], C_W: float = 1.0) -> Callable[[int], fw.Network]:
    """Residual blocks, one for each (activation, gamma); a dense layer reads the stream if gamma is zero."""

    def make(n: int) -> fw.Network:
        blocks = [fw.Residual(activation, dense(n, C_W), gamma=gamma) for activation, gamma in layers[:-1]]
        return fw.Network(3, dense(n, C_W), *blocks, layers[-1][0], dense(8, C_W))

    return make


def two_layer_bodies(activation: str, gamma: float) -> Callable[[int], fw.Network]:
    """Two blocks x + W s(W s(x)) with bodies that are half as wide again as the stream, and a dense layer."""

    def make(n: int) -> fw.Network:
        block = fw.Residual(activation, dense(3 * n // 2), activation, dense(n), gamma=gamma)
        return fw.Network(3, dense(n), block, block, activation, dense(8))

    return make


def ensembles(widths: tuple[int, ...], networks: int) -> tuple[Ensemble, ...]:
    """Fewer networks for differentials of the NTK, narrower ones for means, whose noise grows with n."""
    return (
        Ensemble(MEANS, (8, 16, 32), networks),
        Ensemble(FLUCTUATIONS, widths, networks),
        Ensemble(DIFFERENTIALS, widths, networks // 4),
    )


END = 0.0
CASES = (
    Case(
        "gelu, three layers, gamma 0.8",
        one_layer_bodies(("gelu", 0.8), ("gelu", END)),
        ensembles((8, 16, 32), 100_000),
    ),
    Case(
        "gelu, four layers, gamma 0.8 and 0.7",
        one_layer_bodies(("gelu", 0.8), ("gelu", 0.7), ("gelu", END)),
        ensembles((12, 24, 48), 80_000),
    ),
    Case(
        "gelu, two blocks with bodies of two layers, gamma 0.8",
        two_layer_bodies("gelu", 0.8),
        ensembles((12, 24, 48), 50_000),
    ),
    Case(
        "swish, tanh and swish, four layers, gamma 0.8 twice",
        one_layer_bodies(("swish", 0.8), ("tanh", 0.8), ("swish", END), C_W=1.5),
        ensembles((12, 24, 48), 50_000),
    ),
)


class Row(NamedTuple):
    """One statistic: its limit at 1/n = 0 against both laws, all in units of its largest entry."""

    name: str
    networks: int
    widths: tuple[int, ...]
    error: float  # of the limit
    left_out: float  # by the pair law: its largest difference from the exact law
    pull: float  # the largest, of the exact law
    rms_pull: float
    pull_without: float  # the largest, of the pair law


def rows(case: Case, ensemble: Ensemble, laws: tuple[fw.records.Theory, fw.records.Theory]) -> list[Row]:
    sampled = [_sampled(case.make(n), ensemble, laws[0], seed=n) for n in ensemble.widths]
    return [
        _row(name, ensemble, [one[name] for one in sampled], [_tensor(law, name) for law in laws])
        for name in ensemble.names
    ]


def _tensor(law: fw.records.Theory, name: str) -> np.ndarray:
    return getattr(law.output, f"{name}1" if name in MEANS else name)


def _sampled(net: fw.Network, ensemble: Ensemble, law: fw.records.Theory, seed: int) -> dict[str, Estimate]:
    if ensemble.names != MEANS:
        found = fw.sample_statistics(net, X, ensemble.networks, seed, tensors=ensemble.names, neurons=8)
        return found.estimates
    found = sample_means(net, X, batches=200, size=ensemble.networks // 200, seed=seed)
    n, limits = net.ladder.widths[-2], {"G": law.output.K, "H": law.output.Theta}
    return {name: Estimate(n * (found[name].value - limits[name]), n * found[name].stderr) for name in MEANS}


def _row(name: str, ensemble: Ensemble, estimates: list[Estimate], laws: list[np.ndarray]) -> Row:
    limit = extrapolated(ensemble.widths, estimates)
    scale = np.max(np.abs(laws[0]))
    pulls, without = ((law - limit.value) / limit.stderr for law in laws)
    return Row(
        f"{name}1" if name in MEANS else name,
        ensemble.networks,
        ensemble.widths,
        np.max(limit.stderr) / scale,
        np.max(np.abs(laws[1] - laws[0])) / scale,
        np.max(np.abs(pulls)),
        np.sqrt(np.mean(pulls**2)),
        np.max(np.abs(without)),
    )


def markdown(case: Case, rows: list[Row]) -> str:
    lines = [
        f"## {case.name}",
        "",
        "| tensor | networks per width | n | error of limit | memory | pull | rms pull | "
        "pull without memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.name} | {row.networks} | {', '.join(map(str, row.widths))} | {row.error:.1%} | "
            f"{row.left_out:.1%} | {row.pull:.2f} | {row.rms_pull:.2f} | {row.pull_without:.1f} |"
        )
    return "\n".join([*lines, ""])


KEY = """# Residual networks at order 1/n against sampled networks

Written by `benchmarks/tensors/sampled_residual.py` on {stamp}. Two inputs and every entry of every
tensor of the output layer, which is dense; n is the width of the stream.

- **error of limit**: tensors are sampled at three widths; the limit is the value at 1/n = 0 of the parabola
  in 1/n through them. Its standard error is in units of the tensor's largest entry.
- **memory**: what `fw.Tensors(remember=False)`, the pair law, leaves out: its largest difference from the
  exact law, in the same units.
- **pull**: (theory - limit) / standard error, the largest among the entries. Above 4 they disagree, which was
  fixed beforehand. **pull without memory** is the same for the pair law.

"""


def main() -> None:
    quick, start, measured = "--quick" in sys.argv, time.process_time(), []
    for case in CASES:
        laws = fw.solve(case.make(8), X), fw.solve(case.make(8), X, method=fw.Tensors(remember=False))
        found = []
        for ensemble in case.ensembles:
            found += rows(case, ensemble._replace(networks=400) if quick else ensemble, laws)
        measured.append((case, found))
        print(markdown(case, found), flush=True)
        if not quick:  # a run that is killed leaves the cases that are finished
            write(
                Path(__file__).parent / "results" / "sampled_residual.md",
                page(measured, time.process_time() - start),
            )


def page(measured: list[tuple[Case, list[Row]]], seconds: float) -> str:
    all_rows = [row for _, found in measured for row in found]
    pulls = max(row.pull for row in all_rows), max(row.pull_without for row in all_rows)
    end = (
        f"Largest pull of all: {pulls[0]:.2f} with memory, {pulls[1]:.1f} without. "
        f"Processor time: {seconds / 60:.1f} minutes.\n"
    )
    tables = [markdown(case, found) for case, found in measured]
    return KEY.format(stamp=stamp()) + "\n".join([*tables, end])


if __name__ == "__main__":
    main()
