"""The order-1/n statistics against sampled networks of three and four layers, at several widths.

    python -m benchmarks.tensors.sampled

writes `benchmarks/tensors/results/sampled.md`. The sampler is that of the tests and knows no theory.
"""

import math
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from helpers.sampled_networks import (
    DIFFERENTIALS,
    FLUCTUATIONS,
    extrapolated,
    falling_power,
    sample,
    sample_means,
)

import finitewidth as fw
from finitewidth.core.estimate import Estimate

X = np.array([[0.9, -0.4, 0.3], [0.2, 1.1, -0.5]])
BATCHES = 200


class Ensemble(NamedTuple):
    """Statistics that are sampled together: widths, networks in a batch and their number of outputs."""

    names: tuple[str, ...]
    widths: tuple[int, ...]
    size: int
    outputs: int


class Case(NamedTuple):
    activation: str
    ratios: tuple[float, ...]  # widths of the hidden layers in units of the last one
    ensembles: tuple[Ensemble, ...]

    def network(self, n: int, outputs: int) -> fw.MLP:
        """Every hyperparameter differs between layers."""
        depth = len(self.ratios) + 1
        return fw.MLP(
            (3, *(int(ratio * n) for ratio in self.ratios), outputs),
            self.activation,
            C_b=[0.03, 0.06, 0.15, 0.1][:depth],
            C_W=[1.2, 3.0, 1.3, 1.4][:depth],
            lambda_b=[0.3, 0.5, 0.4, 0.6][:depth],
            lambda_W=[0.9, 1.1, 0.7, 0.8][:depth],
        )


MEANS = ("G", "H")
THREE_LAYERS = (
    Ensemble(MEANS, (4, 8, 16), 2000, 2),
    Ensemble(FLUCTUATIONS, (8, 16, 32), 400, 16),
    Ensemble(DIFFERENTIALS, (8, 16, 32), 150, 2),
)
FOUR_LAYERS = (
    Ensemble(MEANS, (4, 8, 16), 1500, 2),
    Ensemble(FLUCTUATIONS, (8, 16, 32, 64), 250, 16),
    Ensemble(DIFFERENTIALS, (8, 16, 32, 48), 80, 2),
)
CASES = (
    Case("tanh", (1, 1), THREE_LAYERS),
    Case("gelu", (0.75, 1), THREE_LAYERS),
    Case("tanh", (1, 1, 1), FOUR_LAYERS),
    Case("gelu", (1, 1, 1), FOUR_LAYERS),
)


class Row(NamedTuple):
    """One tensor: its residual at the smallest and the largest width and at 1/n = 0, in its own units."""

    name: str
    networks: int
    widths: tuple[int, ...]
    first: float
    last: float
    power: Estimate
    error: float  # of the limit
    largest_pull: float
    rms_pull: float


def rows(case: Case, ensemble: Ensemble) -> list[Row]:
    residuals = {name: [] for name in ensemble.names}
    scales = {}
    for n in ensemble.widths:
        net = case.network(n, ensemble.outputs)
        layer = fw.solve(net, X).output
        estimates = _sampled(net, ensemble, seed=n)
        for name in ensemble.names:
            factor = n if name in MEANS else 1
            value, error = estimates[name]
            residuals[name].append(Estimate(factor * (value - getattr(layer, name)), factor * error))
            scales[name] = np.max(np.abs(getattr(layer, f"{name}1" if name in MEANS else name)))
    return [_row(name, ensemble, residuals[name], scales[name]) for name in ensemble.names]


def _sampled(net, ensemble, seed):
    counts = {"batches": BATCHES, "size": ensemble.size, "seed": seed}
    if ensemble.names == MEANS:
        return sample_means(net, X, **counts)
    return sample(net, X, ensemble.names, **counts)


def _row(name, ensemble, residuals, scale):
    limit = extrapolated(ensemble.widths, residuals)
    pulls = limit.value / limit.stderr
    first, last = (np.sqrt(np.mean(residuals[k].value ** 2)) / scale for k in (0, -1))
    return Row(
        f"{name}1" if name in MEANS else name,
        BATCHES * ensemble.size,
        ensemble.widths,
        first,
        last,
        falling_power(ensemble.widths, residuals),
        np.max(limit.stderr) / scale,
        np.max(np.abs(pulls)),
        np.sqrt(np.mean(pulls**2)),
    )


def markdown(case: Case, rows: list[Row]) -> str:
    layers = len(case.ratios) + 1
    hidden = ", ".join("n" if ratio == 1 else f"{ratio:g} n" for ratio in case.ratios)
    lines = [
        f"## {case.activation}, {layers} layers, hidden widths {hidden}",
        "",
        "| tensor | networks per width | n | residual, first n | residual, last n | power | "
        "error of limit | largest pull | rms pull |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        widths = ", ".join(map(str, row.widths))
        lines.append(
            f"| {row.name} | {row.networks} | {widths} | {row.first:.1%} | {row.last:.1%} | "
            f"{_power(row.power)} | {row.error:.1%} | {row.largest_pull:.2f} | {row.rms_pull:.2f} |"
        )
    return "\n".join([*lines, ""])


def _power(power):
    return f"{power.value:.2f} ± {power.stderr:.2f}" if math.isfinite(power.stderr) else "hidden by noise"


KEY = """# Order-1/n statistics against sampled networks

Written by `benchmarks/tensors/sampled.py`. Two inputs, every hyperparameter different between layers, every
entry of every tensor of the output layer; n is the width of the last hidden layer.

- **residual**: sampled tensor less that of the theory, root mean square over its entries, in units of the
  tensor's largest entry. G1 stands for n (G - K), H1 for n (H - Theta).
- **power**: p of a fit n^-p to the size of the residual; the theory says 1. At small n the next power of 1/n
  still shows.
- **limit**: the residual at 1/n = 0 of the polynomial in 1/n through all widths; the theory says 0. Its error
  is in units of the tensor's largest entry; its pulls are limit over error, and above 4 they disagree.

"""


def main():
    start, parts, largest = time.process_time(), [], 0.0
    for case in CASES:
        measured = [row for ensemble in case.ensembles for row in rows(case, ensemble)]
        largest = max(largest, *(row.largest_pull for row in measured))
        parts.append(markdown(case, measured))
        print(parts[-1], flush=True)
    minutes = (time.process_time() - start) / 60
    end = f"Largest pull of all: {largest:.2f}. Processor time: {minutes:.1f} minutes.\n"
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    (results / "sampled_tensors.md").write_text(KEY + "\n".join([*parts, end]))
    print(end)


if __name__ == "__main__":
    main()
