"""Posterior and evidence at order 1/n against real networks: prior samples weighted by their likelihood.

    python -m benchmarks.bayes.sampled [--share 0.1]

writes `results/sampled.md`, all of it in one run, which took 20 minutes on two busy cores; `--share`
draws fewer networks, which the tables count. The sampler (`fw.bayes.sample`) knows no theory. What was
decided before any number was seen: widths 16, 32 and 64, a polynomial in 1/n through all three, pulls
below 4.
"""

import argparse
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from helpers.sampled_networks import extrapolated, falling_power

import finitewidth as fw
from benchmarks.provenance import stamp
from finitewidth.core.estimate import Estimate

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
    gamma: float | None = None  # of skips around all hidden layers but the first
    share: float = 1.0  # of the networks that are drawn; with skips all weights are drawn, which is slower

    @property
    def name(self) -> str:
        skips = "" if self.gamma is None else f", skips with gamma = {self.gamma}"
        return f"{self.activation}, {self.hidden + 1} layers{skips}, {self.points} training points"

    def network(self, n: int) -> fw.Network:
        if self.gamma is None:
            return fw.MLP((3, *[n] * self.hidden, 2), self.activation, C_b=0.1, C_W=self.C_W)
        first, body, last = (fw.Dense(m, C_b=0.1, C_W=self.C_W) for m in (n, n, 2))
        blocks = [fw.Residual(self.activation, body, gamma=self.gamma)] * (self.hidden - 1)
        return fw.Network(3, first, *blocks, self.activation, last)

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return X[: self.points], Y[: self.points], X_TEST


CASES = (
    Case("tanh", 2, 3, 1.4),
    Case("relu", 2, 3, 2.0),
    Case("gelu", 2, 3, 1.8),
    Case("tanh", 2, 5, 1.4),  # more points than the formulas had been tested with
    Case("tanh", 5, 3, 1.4),  # deeper, too
    Case("tanh", 3, 3, 0.8, gamma=0.8, share=0.25),
)


def theory(case: Case, n: int) -> dict[str, np.ndarray]:
    """Every quantity through order 1/n."""
    net = case.network(n)
    posterior = fw.bayes.posterior(net, *case.data, noise=NOISE, order=1, cumulants=True)
    variance = posterior.infinite_width.variance
    assert posterior.log_evidence_correction is not None and posterior.given is not None
    outputs = {
        "mean": posterior.mean,
        "covariance": posterior.covariance,
        "log evidence": np.asarray(posterior.given.log_density + posterior.log_evidence_correction),
        "third cumulant of each output": posterior.skewness * variance**1.5,
        "fourth cumulant of each output": posterior.excess_kurtosis * variance**2,
    }
    if case.gamma is not None:  # hidden layers given data are not known with skips
        return outputs
    layer = posterior.layer(case.hidden)
    assert layer.second_moment is not None and layer.mean is not None
    return outputs | {
        "kernel of the last hidden layer": layer.kernel,
        "second moment of its neurons": layer.second_moment,
        "mean of its neurons": layer.mean,
    }


def sampled(case: Case, n: int, members: int) -> tuple[dict[str, Estimate], fw.records.SampledPosterior]:
    result = fw.bayes.sample(
        case.network(n), *case.data, noise=NOISE, members=members, key=n, layers=case.gamma is None
    )
    outputs = {
        "mean": result.mean,
        "covariance": result.covariance,
        "log evidence": result.log_evidence,
        "third cumulant of each output": result.third_cumulant,
        "fourth cumulant of each output": result.fourth_cumulant,
    }
    if case.gamma is not None:
        return outputs, result
    layer = result.layers[case.hidden]
    hidden = {
        "kernel of the last hidden layer": layer.kernel,
        "second moment of its neurons": layer.second_moment,
        "mean of its neurons": layer.mean,
    }
    return outputs | hidden, result


def rows(case: Case, share: float) -> list[str]:
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)  # narrow networks are the point here
        expected = {n: theory(case, n) for n in (*WIDTHS, 10**9)}
    members = {n: round(share * case.share * MEMBERS[n]) for n in WIDTHS}
    measured = {n: sampled(case, n, members[n]) for n in WIDTHS}
    lines = [
        f"## {case.name}",
        "",
        "Effective members: "
        + ", ".join(f"{measured[n][1].effective_members:,.0f} of {members[n]:,} (n = {n})" for n in WIDTHS)
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the networks that are drawn")
    share = parser.parse_args().share
    sections = [HEAD]
    for case in CASES:
        sections.append("\n".join(rows(case, share)).rstrip("\n"))
        (Path(__file__).parent / "results" / "sampled.md").write_text("\n\n".join(sections) + "\n")


HEAD = f"""# Posterior and evidence at order 1/n against real networks

Written by `benchmarks/bayes/sampled.py` ({stamp()}). Networks with two outputs are drawn from the prior and
weighted by their likelihood; observations have noise of variance {NOISE}, and there is one test input.
Every entry of every quantity is compared.

- **effective members**: (sum w)² / sum w².
- **residual**: sampled value less that of the theory through order 1/n, root mean square over the entries.
- **power**: p of a fit n^-p to the size of the residual; the theory says 2. At small n the next power of 1/n
  still shows.
- **pull**: the coefficient of 1/n that is left, from the polynomial in 1/n through all widths (to the third
  power), over its error; above 4 theory and networks disagree."""


if __name__ == "__main__":
    main()
