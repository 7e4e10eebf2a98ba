"""PDLT section 10.3.2: interpolation and extrapolation between two training inputs."""

from collections.abc import Iterator

import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, differ, slope_of_logs
from finitewidth.comparison.statements.generalization import SIZES, pair
from finitewidth.comparison.statements.problems import PDLT, X, Y, frozen_ntk, mlp, networks
from finitewidth.experiment.ensemble.plan import Stepping
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.training.textbook.delta_expansion import delta_expansion
from finitewidth.training.textbook.starpolation import starpolate

S = np.array([-0.5, 0.3, 0.5, 1.4])
ACTIVATIONS = ("tanh", "gelu")
CLOSE = 0.005  # the ratio of bends is extrapolated to distance zero from this distance and twice it


@claim(
    "10.104",
    f"{PDLT} (10.104)",
    "Every deep linear network interpolates and extrapolates linearly, without variance: z = s y_+ + (1 - s) "
    "y_-.",
    "trained networks: 50 of width 16, until the loss is below 1e-18; and closed form",
)
def linear_starpolation() -> Iterator[Comparison]:
    net = mlp(16, activation="linear")
    line = S[:, None] * X[0] + (1 - S)[:, None] * X[1]
    straight = S[:, None] * Y[0, :1] + (1 - S)[:, None] * Y[1, :1]
    data, method = (X[:2], Y[:2, :1], line), Stepping(training_error=1e-18)
    ensemble = networks(net, data, GradientDescent(0.2), 50, 5, method=method)
    yield agree("mean of networks", straight, ensemble.mean.value, 1e-7)
    variance = np.einsum("aiai->a", ensemble.covariance.value)
    yield agree("variance of networks", 0.0, variance, 1e-14, scale=1.0)
    theory = starpolate(net, X[0], X[1], Y[0, :1], Y[1, :1], S)
    yield agree("mean in theory", straight, theory.mean, 1e-9)


@claim(
    "10.110-10.112",
    f"{PDLT} (10.110)-(10.112)",
    "Theta of inputs x_0 + e_1 dx/2 and x_0 + e_2 dx/2 is the printed quadratic form in e_1 and e_2; on "
    "the line Theta_s = s Theta_+ + (1 - s) Theta_- - 2s(1 - s) ddTheta_[0], up to the third order.",
    "closed form, against the exact NTK at three distances",
)
def generalized_expansion() -> Iterator[Comparison]:
    for activation in ACTIVATIONS:
        net, gaps = mlp(8, activation=activation), []
        for size in SIZES:
            plus, minus = pair(size, 0.7)
            near, middle, step = delta_expansion(net, plus, minus), (plus + minus) / 2, (plus - minus) / 2
            e = np.array([-1.0, 1.0, -0.4, 1.8])
            first, second = e[:, None], e[None, :]
            both, apart = (first + second) / 2, (first - second) / 2
            T00, T1, on = near.Theta00[-1], near.Theta1[-1], near.Theta0[-1] + near.Theta2[-1]
            printed = T00 + both * T1 + both**2 * on + apart**2 * (near.Theta0[-1] - near.Theta2[-1])
            exact = frozen_ntk(net, middle + first * step)
            s = (1 + e) / 2
            line = frozen_ntk(net, s[:, None] * plus + (1 - s)[:, None] * minus, np.stack([plus, minus]))
            ends = frozen_ntk(net, np.stack([plus, minus]))
            printed_line = (
                s[:, None] * ends[0]
                + (1 - s)[:, None] * ends[1]
                - (2 * s * (1 - s) * near.Theta0[-1])[:, None]
            )
            gaps.append((np.abs(exact - printed).max(), np.abs(line - printed_line).max()))
        for what, gap in zip(("(10.110)", "(10.111)"), np.array(gaps).T, strict=True):
            yield agree(f"power of the error of {what}, {activation}", 3.0, slope_of_logs(SIZES, gap), 0.1)


@claim(
    "10.113-10.116",
    f"{PDLT} (10.113)-(10.116)",
    "Nonlinear networks interpolate nonlinearly: the mean deviates from the straight line by the curvature "
    "ddTheta_[0]/Theta_00.",
    "closed form, against the exact prediction at three distances and in the limit of distance zero, equal "
    "norms",
    corrected="m_s = s y_+ + (1 - s) y_- - s(1 - s) (ddTheta_[0]/Theta_00) (y_+ + y_-): factor 1 instead "
    "of 4, and y with the sign opposite to z",
)
def nonlinear_starpolation() -> Iterator[Comparison]:
    for activation in ACTIVATIONS:
        net, errors, bends, exact = mlp(8, activation=activation), [], [], []
        for size in (*SIZES, 2 * CLOSE, CLOSE):
            plus, minus = pair(size)
            y = np.array([1.0 + size, 1.0 - size])  # targets that differ by the first order
            mean = starpolate(net, plus, minus, y[:1], y[1:], S).mean[:, 0]
            near = delta_expansion(net, plus, minus)
            bend = (near.Theta0[-1] / near.Theta00[-1]) * S * (1 - S) * y.sum()
            straight = S * y[0] + (1 - S) * y[1]
            errors.append(np.abs(mean - straight + bend).max())
            bends.append(bend)
            exact.append(straight - mean)
        yield agree(f"power of the error, {activation}", 3.0, slope_of_logs(SIZES, errors[:-2]), 0.15)
        limit = 2 * exact[-1] / bends[-1] - exact[-2] / bends[-2]
        yield agree(f"bend over its law, {activation}", 1.0, limit, 0.02)
        yield differ(f"factor 4 as printed, {activation}", 4 * bends[-1], exact[-1], 0.1)


@claim(
    "10.117",
    f"{PDLT} (10.117)",
    "Between two nearby training inputs the variance vanishes faster than the bend of the mean.",
    "closed form, against the exact prediction at three distances",
    corrected="it is of the fourth order in the distance, not the third",
)
def starpolation_variance() -> Iterator[Comparison]:
    for activation in ACTIVATIONS:
        net = mlp(8, activation=activation)
        sizes = (0.4, 0.2, 0.1)
        variances = [starpolate(net, *pair(size), [1.0], [1.0], S).variance.max() for size in sizes]
        yield agree(f"power of the variance, {activation}", 4.0, slope_of_logs(sizes, variances), 0.1)
