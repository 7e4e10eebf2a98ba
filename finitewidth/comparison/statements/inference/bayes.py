"""Bayesian inference at finite width (PDLT section 6.4), and the information in outputs (appendix A)."""

import functools
import math
from collections.abc import Iterator

import numpy as np
from scipy.special import gammaln

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, differ, extrapolated, pull, significant
from finitewidth.comparison.statements.problems import DATA, PDLT, mlp
from finitewidth.core.estimate import Estimate
from finitewidth.core.run import QUIET
from finitewidth.critical.mutual_information import Information
from finitewidth.experiment.weighted import SampledPosterior
from finitewidth.experiment.weighted import sample as sample_posterior
from finitewidth.training.bayes.evidence import evidence
from finitewidth.training.bayes.posterior import Posterior, posterior
from finitewidth.training.infinite.bayes import rates as bayesian_rates
from finitewidth.training.prediction import predict

WIDTHS, MEMBERS, NOISE = (16, 32), 40_000, 0.3
HOW = f"sampled networks: {MEMBERS} of each of the widths {WIDTHS}, weighted by their likelihood"


@functools.cache
def sampled(n: int) -> SampledPosterior:
    return sample_posterior(
        mlp(n, outputs=2), *DATA, members=MEMBERS, key=n, noise=NOISE, layers=True, run=QUIET
    )


@functools.cache
def inferred(n: int) -> Posterior:
    return posterior(mlp(n, outputs=2), *DATA, noise=NOISE, order=1)


def left(measured: dict[int, Estimate], stated: dict[int, np.ndarray]) -> Estimate:
    """The coefficient of 1/n that networks have beyond a statement, extrapolated in the width."""
    gaps = [Estimate(n * (measured[n].value - stated[n]), n * measured[n].stderr) for n in WIDTHS]
    return extrapolated(WIDTHS, gaps)


@claim(
    "bayes.posterior",
    f"{PDLT} section 6.4",
    "At order 1/n the posterior is given by K, G1 and V: its mean and covariance are shifted by the mean "
    "kernel and by the four-point vertex, with the data and without.",
    HOW,
)
def posterior_at_finite_width() -> Iterator[Comparison]:
    for name in ("mean", "covariance"):
        measured = {n: getattr(sampled(n), name) for n in WIDTHS}
        stated = {n: getattr(inferred(n), name) for n in WIDTHS}
        yield pull(f"{name} beyond order 1/n, times n", 0.0, left(measured, stated))
    n = WIDTHS[0]
    spread = sampled(n).covariance
    infinite = inferred(n).infinite_width.covariance
    yield significant("covariance minus infinite width", Estimate(spread.value - infinite, spread.stderr))


@claim(
    "bayes.wiring",
    f"{PDLT} section 6.4",
    "Outputs that are uncorrelated in the prior are correlated given data at finite width, and never at "
    "infinite width.",
    HOW,
)
def wiring() -> Iterator[Comparison]:
    infinite = inferred(WIDTHS[0]).infinite_width.covariance
    yield agree("infinite width", 0.0, infinite[:, 0, :, 1], 1e-12, scale=1.0)
    between = {n: Estimate(*(part[:, 0, :, 1] for part in sampled(n).covariance)) for n in WIDTHS}
    stated = {n: inferred(n).covariance[:, 0, :, 1] for n in WIDTHS}
    yield significant("covariance of two outputs", between[WIDTHS[0]])
    yield pull("covariance of two outputs beyond order 1/n, times n", 0.0, left(between, stated))


@claim(
    "bayes.representation",
    f"{PDLT} section 6.4",
    "At order 1/n Bayesian networks learn representations: the mean kernel of a hidden layer given data "
    "climbs the gradient of the log evidence, with V as its metric.",
    HOW,
)
def representation() -> Iterator[Comparison]:
    layers = {n: inferred(n).layer(2) for n in WIDTHS}
    measured = {n: sampled(n).layers[2].kernel for n in WIDTHS}
    yield pull("kernel of layer 2", 0.0, left(measured, {n: layers[n].kernel for n in WIDTHS}))
    n = WIDTHS[0]
    moved = Estimate(measured[n].value - layers[n].prior, measured[n].stderr)
    yield significant("kernel given data minus prior mean", moved)


@claim(
    "bayes.evidence",
    f"{PDLT} section 6.4",
    "At order 1/n the log evidence has a correction that is quadratic in K and V contracted with the data.",
    HOW,
)
def log_evidence() -> Iterator[Comparison]:
    stated = {
        n: np.asarray(evidence(mlp(n, outputs=2), *DATA[:2], noise=NOISE, order=1, gradient=False).value)
        for n in WIDTHS
    }
    measured = {n: sampled(n).log_evidence for n in WIDTHS}
    yield pull("log evidence beyond order 1/n, times n", 0.0, left(measured, stated))


@claim(
    "bayes.descent",
    f"{PDLT} section 6.4 and (inf.173)",
    "Training the last layer alone is Bayesian inference with hidden layers of the prior: it lacks the part "
    "of the vertex that meets the data, and no more.",
    "closed form: both theories at width 64000",
)
def descent_of_the_last_layer() -> Iterator[Comparison]:
    n = 64_000
    net = mlp(n, outputs=2)
    trained = predict(bayesian_rates(net), *DATA)
    inference = posterior(net, *DATA, order=1)
    change = n * (trained.mean - trained.infinite_width.mean)  # type: ignore[union-attr]
    parts = inference.contributions
    yield agree("mean of descent", n * (parts["kernel_shift"] + parts["vertex_without_data"]), change, 1e-3)
    yield differ("mean of the posterior", n * sum(parts.values()), change, 0.05)


@claim(
    "bayes.information",
    f"{PDLT} appendix A",
    "Outputs of one input share information of second order in V/(nK^2): m1 m2 v^2/8 with a third order of "
    "-(20 + 3(m1 + m2))/6 v relative to it, largest at v = 4/(20 + 3 n_L).",
    "closed form, against entropies of Gaussians with a log-normal variance by quadrature",
)
def information_of_outputs() -> Iterator[Comparison]:
    for v in (0.01, 0.02):
        exact = mixture_entropy(1, v) + mixture_entropy(2, v) - mixture_entropy(3, v)
        stated = Information(mlp(16, outputs=3), 1.0, v).mutual_information(1, 2)
        yield agree(f"I(1, 2) at v = {v}", stated, exact, 100 * v**2)
    largest = 4 / (20 + 3 * 3)
    around = [
        Information(mlp(16, outputs=3), 1.0, x * largest).mutual_information(1, 2) for x in (0.99, 1, 1.01)
    ]
    yield agree("the maximum of the truncated I", 0.0, float(np.argmax(around) - 1), 1e-12, scale=1.0)


def mixture_entropy(m: int, v: float) -> float:
    """Entropy of m Gaussians whose common variance is log-normal, of mean 1 and variance v."""
    spread = math.sqrt(math.log(1 + v))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    variances, weights = np.exp(spread * nodes - spread**2 / 2), weights / weights.sum()
    radius, width = np.linspace(0, 20, 40_001, retstep=True)
    density = (weights * np.exp(-(radius[:, None] ** 2) / (2 * variances))) @ (2 * np.pi * variances) ** (
        -m / 2
    )
    sphere = 2 * math.pi ** (m / 2) / math.exp(gammaln(m / 2))
    values = np.where(density > 1e-300, -density * np.log(np.maximum(density, 1e-300)), 0.0)
    values = values * sphere * radius ** (m - 1)
    return float(width * (values.sum() - (values[0] + values[-1]) / 2))
