r"""What an algorithm does to each eigenmode of the training NTK.

At infinite width the NTK is frozen and every mode of the residual learns by itself. With $l$ an eigenvalue,

$$z_d(t) = z_d - \Theta_{dA}\, f_t(\tilde\Theta)\,(z_A - y), \qquad
  f_t(l) = \frac{1 - (1 - \eta l)^t}{l}, \quad \frac{1 - e^{-l t}}{l}, \quad \frac1l$$

for t steps of gradient descent, gradient flow until time t, and the end of training (PDLT 10.35). A ridge
$a$ adds $\frac a2 |\theta - \theta(0)|^2$, in units of the learning rates, to the loss: $l$ becomes $l + a$.
"""

import math

import numpy as np
from jaxtyping import Float

from finitewidth.network.algorithm import (
    Algorithm,
    GradientDescent,
    GradientFlow,
    Newton,
    Projectors,
    Schedule,
    StochasticGradientDescent,
    TwoStep,
)


def is_finished(algorithm: Algorithm) -> bool:
    """Whether the algorithm trains to the end, where every path has led to the same network."""
    if isinstance(algorithm, GradientFlow):
        return algorithm.time == math.inf
    if isinstance(algorithm, GradientDescent):
        return algorithm.steps == math.inf
    return isinstance(algorithm, Newton | TwoStep | Projectors)


def check_supported(algorithm: Algorithm) -> None:
    """Refuse what is no algorithm, and those whose batches are drawn at random."""
    if isinstance(algorithm, StochasticGradientDescent):
        raise ValueError(
            "algorithm=StochasticGradientDescent draws its batches at random; give the batches themselves "
            "in fw.Schedule, or use fw.GradientFlow(): at infinite width the end of training is the same."
        )
    if not isinstance(algorithm, GradientFlow | GradientDescent | Newton | TwoStep | Schedule | Projectors):
        raise ValueError(
            f"algorithm must be fw.GradientFlow(), fw.GradientDescent(learning_rate), fw.Newton(), "
            f"fw.TwoStep() or fw.Schedule(updates), got {algorithm!r}."
        )


def at_time(algorithm: Algorithm, time: float) -> Algorithm:
    """The same algorithm stopped at another time, or after another number of steps."""
    if isinstance(algorithm, GradientFlow):
        return GradientFlow(time)
    if isinstance(algorithm, GradientDescent):
        return GradientDescent(algorithm.learning_rate, time)
    raise ValueError(
        f"a path over time needs fw.GradientFlow() or fw.GradientDescent(learning_rate), got {algorithm!r}."
    )


def learned(algorithm: Algorithm, eigenvalues: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
    """f_t(l) for eigenvalues l >= 0; a mode with l = 0 has its limit where training stops, else infinity."""
    l = eigenvalues
    with np.errstate(divide="ignore", invalid="ignore"):
        if is_finished(algorithm):
            return 1 / l
        if isinstance(algorithm, GradientFlow):
            return np.where(l > 0, -np.expm1(-l * algorithm.time) / l, algorithm.time)
        if isinstance(algorithm, GradientDescent):
            eta, steps = algorithm.learning_rate, algorithm.steps
            # through the logarithm where it exists: 1 - (1 - x)^t loses all digits of a small x
            small = -np.expm1(steps * np.log1p(-np.minimum(eta * l, 0.5)))
            decayed = np.where(eta * l < 0.5, small, 1 - (1 - eta * l) ** steps)
            return np.where(l > 0, decayed / l, eta * steps)
    raise ValueError(f"{algorithm!r} is no function of the eigenvalues of the NTK.")


def check_learning_rate(algorithm: Algorithm, largest: float, ridge: float) -> None:
    """Gradient descent converges only below 2 / largest eigenvalue."""
    if not isinstance(algorithm, GradientDescent) or largest + ridge <= 0:
        return
    limit = 2 / (largest + ridge)
    if algorithm.learning_rate >= limit:
        raise ValueError(
            f"learning_rate={algorithm.learning_rate:g} is not below 2 / {largest + ridge:.6g} = {limit:g}, "
            "2 over the largest eigenvalue of the training NTK: descent diverges; lower it."
        )
