"""Posterior and evidence at order 1/n against real networks: prior samples weighted by their likelihood.

    python benchmarks/bayes.py [numbers of cases]

writes `benchmarks/results/bayes.md`. The sampler (`fw.sample_posterior`) knows no theory. What was decided
before any number was seen: widths 16, 32 and 64, a polynomial in 1/n through all three, pulls below 4.
"""

import sys
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from provenance import stamp

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from sampled_networks import extrapolated, falling_power  # noqa: E402

import finitewidth as fw  # noqa: E402
from finitewidth.core.estimate import Estimate  # noqa: E402

WIDTHS = (16, 32, 64)
MEMBERS = {16: 200_000, 32: 400_000, 64: 800_000}
NOISE = 0.1
RANDOM = np.random.default_rng(3)
X, X_TEST = RANDOM.normal(size=(5, 3)), RANDOM.normal(size=(1, 3))
Y = RANDOM.normal(size=(5, 2))


class Case(NamedTuple):
    activation: str
    hidden: int
    points: int
    C_W: float

    @property
    def name(self) -> str:
        return f"{self.activation}, {self.hidden + 1} layers, {self.points} training points"

    def network(self, n: int) -> fw.MLP:
        return fw.MLP((3, *[n] * self.hidden, 2), self.activation, C_b=0.1, C_W=self.C_W)

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return X[: self.points], Y[: self.points], X_TEST


CASES = (
    Case("tanh", 2, 3, 1.4),
    Case("relu", 2, 3, 2.0),
    Case("gelu", 2, 3, 1.8),
    Case("tanh", 2, 5, 1.4),  # more points than the formulas had been tested with
    Case("tanh", 5, 3, 1.4),  # deeper, too
)


def theory(case: Case, n: int) -> dict[str, np.ndarray]:
    """Every quantity through order 1/n."""
    net = case.network(n)
    posterior = fw.posterior(net, *case.data, noise=NOISE, order=1)
    assert posterior.log_evidence_correction is not None and posterior.given is not None
    layer = posterior.layer(case.hidden)
    assert layer.second_moment is not None and layer.mean is not None
    return {
        "mean": posterior.mean,
        "covariance": posterior.covariance,
        "log evidence": np.asarray(posterior.given.log_density + posterior.log_evidence_correction),
        "kernel of the last hidden layer": layer.kernel,
        "second moment of its neurons": layer.second_moment,
        "mean of its neurons": layer.mean,
    }


def sampled(case: Case, n: int) -> tuple[dict[str, Estimate], fw.SampledPosterior]:
    net = case.network(n)
    result = fw.sample_posterior(
        net, *case.data, noise=NOISE, members=MEMBERS[n], key=n, layers=True, progress=False
    )
    layer = result.layers[case.hidden]
    quantities = {
        "mean": result.mean,
        "covariance": result.covariance,
        "log evidence": result.log_evidence,
        "kernel of the last hidden layer": layer.kernel,
        "second moment of its neurons": layer.second_moment,
        "mean of its neurons": layer.mean,
    }
    return quantities, result


def rows(case: Case) -> list[str]:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.ExpansionWarning)  # narrow networks are the point here
        expected = {n: theory(case, n) for n in (*WIDTHS, 10**9)}
    measured = {n: sampled(case, n) for n in WIDTHS}
    lines = [
        f"## {case.name}",
        "",
        "Effective members: "
        + ", ".join(f"{measured[n][1].effective_members:,.0f} of {MEMBERS[n]:,} (n = {n})" for n in WIDTHS)
        + ".",
        "",
        "| quantity | largest coefficient of 1/n | residual times n², n = 16, 32, 64 | power | largest pull "
        "| rms pull |",
        "|---|---|---|---|---|---|",
    ]
    for name in expected[WIDTHS[0]]:
        lines.append(_row(name, expected, measured))
    print(f"{case.name}: {time.perf_counter() - start:.0f} s", flush=True)
    return [*lines, ""]


def _row(name: str, expected: dict, measured: dict) -> str:
    coefficient = np.abs(WIDTHS[0] * (expected[WIDTHS[0]][name] - expected[10**9][name])).max()
    residuals = [
        Estimate(n * (measured[n][0][name].value - expected[n][name]), n * measured[n][0][name].stderr)
        for n in WIDTHS
    ]
    limit = extrapolated(WIDTHS, residuals)
    pulls = _distinct(np.asarray(limit.value / np.maximum(limit.stderr, 1e-300)))
    sizes = [
        _rms(n * residual.value, n * residual.stderr) for n, residual in zip(WIDTHS, residuals, strict=True)
    ]
    shown = ", ".join(f"{value:.2g} ± {error:.1g}" for value, error in sizes)
    power = falling_power(WIDTHS, residuals)
    fallen = "hidden by noise" if np.isnan(power.value) else f"{1 + power.value:.2f} ± {power.stderr:.2f}"
    rms = np.sqrt((pulls**2).mean())
    return f"| {name} | {coefficient:.3g} | {shown} | {fallen} | {np.abs(pulls).max():.2f} | {rms:.2f} |"


def _distinct(pulls: np.ndarray) -> np.ndarray:
    """One of every entries that symmetry makes equal."""
    return np.unique(np.round(pulls.ravel(), 8))


def _rms(value: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    return float(np.sqrt((value**2).mean())), float(np.sqrt((error**2).mean()))


def main() -> None:
    """All cases, or those whose numbers are given; sections of other cases stay in the file as they are."""
    result = HERE / "results" / "bayes.md"
    sections = {}
    for part in (result.read_text() if result.exists() else "").split("\n## ")[1:]:
        sections[part.split("\n")[0]] = "## " + part.rstrip("\n")
    for number in map(int, sys.argv[1:] or range(len(CASES))):
        sections[CASES[number].name] = "\n".join(rows(CASES[number])).rstrip("\n")
        shown = [sections[case.name] for case in CASES if case.name in sections]
        result.write_text("\n\n".join([HEAD, *shown]) + "\n")


HEAD = f"""# Posterior and evidence at order 1/n against real networks

Written by `benchmarks/bayes.py` ({stamp()}). Networks with two outputs are drawn from the prior and weighted
by their likelihood; observations have noise of variance {NOISE}, and there is one test input. Every entry of
every quantity is compared.

- **effective members**: (sum w)² / sum w².
- **residual**: sampled value less that of the theory through order 1/n, root mean square over the entries.
- **power**: p of a fit n^-p to the size of the residual; the theory says 2. At small n the next power of 1/n
  still shows.
- **pull**: the coefficient of 1/n that is left, from the polynomial in 1/n through all widths (to the third
  power), over its error; above 4 theory and networks disagree."""


if __name__ == "__main__":
    main()
