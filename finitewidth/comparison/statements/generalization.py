"""PDLT section 10.3.1: bias and variance of the test loss, and predictions near one training input."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import softmax

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, mean_of, pull, slope_of_logs
from finitewidth.comparison.statements.problems import DATA, PDLT, TRAINING, X, Y, average, mlp, predicted
from finitewidth.network.losses.cross_entropy import CrossEntropy
from finitewidth.training.textbook.delta_expansion import delta_expansion
from finitewidth.training.textbook.generalization import neighbour

DRAWS = 40_000
SIZES = (0.04, 0.02, 0.01)  # distances of two inputs
TRUTH = np.array([[0.3, -0.2], [0.1, 0.8]])


def draws(prediction, seed: int) -> np.ndarray:
    """Members of the Gaussian ensemble minus its mean, (draws, M, n_L)."""
    size = prediction.mean.size
    root = np.linalg.cholesky(prediction.covariance.reshape(size, size) + 1e-13 * np.eye(size))
    return (np.random.default_rng(seed).normal(size=(DRAWS, size)) @ root.T).reshape(
        DRAWS, *prediction.mean.shape
    )


@claim(
    "10.52",
    f"{PDLT} (10.52)",
    "The mean test loss is the squared bias of the mean prediction plus the variance, halved and summed.",
    f"closed form, against the loss of {DRAWS} draws of the ensemble",
)
def bias_and_variance() -> Iterator[Comparison]:
    prediction = predicted(mlp(8, outputs=2), *DATA, order=0)
    losses = ((prediction.mean + draws(prediction, 0) - TRUTH) ** 2).sum(axis=(1, 2)) / 2
    loss = prediction.test_loss(TRUTH)
    yield pull("loss", loss.total, mean_of(losses))
    yield agree("bias", ((prediction.mean - TRUTH) ** 2).sum() / 2, loss.bias, 1e-10)


@claim(
    "10.55",
    f"{PDLT} (10.55)",
    "The mean of any loss is the loss of the mean prediction plus half its Hessian times the covariance, to "
    "second order in the fluctuations.",
    f"closed form, against the cross-entropy of {DRAWS} draws shrunk by 0.05, in pairs of opposite sign",
)
def any_loss() -> Iterator[Comparison]:
    net, loss = mlp(8, outputs=2), CrossEntropy()
    prediction = predicted(net, X[:TRAINING], softmax(Y, axis=-1), X[TRAINING:], loss=loss, order=0)
    targets, shrunk = softmax(TRUTH, axis=-1), 0.05
    expected = prediction.test_loss(targets, loss=loss)
    apart = shrunk * draws(prediction, 1)
    logs = [np.asarray(jax.nn.log_softmax(jnp.asarray(prediction.mean + sign * apart))) for sign in (1, -1)]
    losses = -np.sum([(targets * log).sum(axis=(1, 2)) for log in logs], axis=0) / 2
    excess = mean_of((losses - expected.bias) / shrunk**2)
    yield pull(
        "variance part", expected.variance, excess
    )  # neglected terms are 0.05^2 of it, below the error


def pair(size: float, unequal: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Two inputs at the distance `size`, of equal norm unless `unequal` is given."""
    middle, across = np.array([1.0, 0.4, -0.3]), np.array([0.3, 0.0, 1.0])
    direction = across - (across @ middle) / (middle @ middle) * middle + unequal * middle
    step = size * direction / np.linalg.norm(direction)
    return middle + step / 2, middle - step / 2


def _nearby(unequal: float, power: float) -> Iterator[Comparison]:
    for activation in ("tanh", "gelu"):
        net, gaps = mlp(8, activation=activation), []
        for size in SIZES:
            exact, near = neighbour(net, *pair(size, unequal)), delta_expansion(net, *pair(size, unequal))
            if unequal:
                first = near.Theta1[-1] / near.Theta00[-1]
                robustness = -first - 2 * near.Theta2[-1] / near.Theta00[-1] + first**2
                variance = 4 * near.K2[-1] - 2 * near.K1[-1] * first + near.K00[-1] * first**2
            else:
                robustness, variance = -2 * near.Theta2[-1] / near.Theta00[-1], 4 * near.K2[-1]
            gaps.append((exact.robustness - robustness, exact.variance - variance))
        for what, gap in zip(("robustness", "variance"), np.array(gaps).T, strict=True):
            # the error of an expansion to second order falls as a known power of the distance
            yield agree(
                f"power of the error of the {what}, {activation}", power, slope_of_logs(SIZES, gap), 0.1
            )


@claim(
    "10.62-10.63",
    f"{PDLT} (10.62), (10.63)",
    "For a test input of equal norm near the training input, robustness is -2 ddTheta_[2]/Theta_00 and "
    "variance 4 ddK_[2], up to the fourth order in the distance.",
    "closed form, against the exact kernels of two inputs at three distances",
)
def equal_norms() -> Iterator[Comparison]:
    yield from _nearby(0.0, 4.0)


@claim(
    "10.65-10.66",
    f"{PDLT} (10.65), (10.66)",
    "For inputs of different norms robustness and variance have first-order terms in addition, and hold up "
    "to the third order.",
    "closed form, against the exact kernels of two inputs at three distances",
)
def unequal_norms() -> Iterator[Comparison]:
    yield from _nearby(0.7, 3.0)


def tanh_averages(K: float) -> dict[str, float]:
    """<s's'>, <s''s''>, <z s s'>/K and <z s's''>/K."""
    slope = lambda z: np.cosh(z) ** -2.0  # noqa: E731
    return {
        "s's'": average(lambda z: slope(z) ** 2, K),
        "s''s''": average(lambda z: (2 * np.tanh(z) * slope(z)) ** 2, K),
        "zss'": average(lambda z: z * np.tanh(z) * slope(z), K) / K,
        "zs's''": average(lambda z: -2 * z * np.tanh(z) * slope(z) ** 2, K) / K,
    }


def _step_by_step(names: tuple[str, str], unequal: float) -> Iterator[Comparison]:
    """(10.67) and (10.70) have one form, with different susceptibilities and coupling averages."""
    net = mlp(8, hidden=7)
    expansion = delta_expansion(net, *pair(0.05, unequal))
    parallel = names[0] == "K1"
    K_part, Theta_part = (getattr(expansion, name) for name in names)
    for l in range(1, net.depth):
        m = tanh_averages(expansion.K00[l - 1])
        chi = 1.2 * (m["zss'"] if parallel else m["s's'"])
        coupling = m["zs's''"] if parallel else m["s''s''"]
        source = 1.0 / 1.2 * chi + 1.2 * coupling * expansion.Theta00[l - 1]
        printed = 1.2 * m["s's'"] * Theta_part[l - 1] + source * K_part[l - 1]
        yield agree(f"{names[1]} of layer {l + 1}", printed, Theta_part[l], 1e-8)
        yield agree(f"{names[0]} of layer {l + 1}", chi * K_part[l - 1], K_part[l], 1e-8)


@claim(
    "10.67",
    f"{PDLT} (10.67)",
    "dTheta_[1]' = chi_perp dTheta_[1] + (lambda_W chi_par / C_W + C_W <z s's''> Theta_00 / K_00) dK_[1].",
    "recursion: as printed, by Gauss-Hermite averages, eight layers",
)
def first_order() -> Iterator[Comparison]:
    yield from _step_by_step(("K1", "Theta1"), 0.7)


@claim(
    "10.70",
    f"{PDLT} (10.70)",
    "ddTheta_[2]' = chi_perp ddTheta_[2] + (lambda_W chi_perp / C_W + C_W <s''s''> Theta_00) ddK_[2] for "
    "equal norms.",
    "recursion: as printed, by Gauss-Hermite averages, eight layers",
)
def second_order() -> Iterator[Comparison]:
    yield from _step_by_step(("K2", "Theta2"), 0.0)
