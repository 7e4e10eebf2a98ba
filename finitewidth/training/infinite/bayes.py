r"""Exact Bayesian inference at infinite width: posterior, evidence, and its gradient.

The prior over outputs is Normal(0, K). With observations of noise variance $s^2$

$$m = K_{\beta A} (\tilde K + s^2)^{-1} y, \qquad
  \mathrm{Cov} = K_{\beta\beta'} - K_{\beta A} (\tilde K + s^2)^{-1} K_{A\beta'}$$

(PDLT 6.57, 6.64). Training only the last layer, with rates equal to its variances, gives Theta = K
(10.46)-(10.49): without noise the trained ensemble is then the posterior.
"""

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import as_inputs, as_targets
from finitewidth.core.memory import require_memory
from finitewidth.gaussian.two_legs.averages import relative_two_legs
from finitewidth.network.algorithms.newton import Newton
from finitewidth.network.layers.dense import Dense
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.theory.ratios import Verdict, verdict
from finitewidth.theory.solve import solve
from finitewidth.training.infinite.conditioning import check_independent, singular_error
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.solver import InverseMatrix, Singular, inverse


def rates(net: Network) -> Network:
    """The network with only its last layer trained, so that training is Bayesian (PDLT 10.46-10.49).

    Args:
        net: A network that ends in `fw.Dense`.

    Returns:
        A network of the same kind.

    ```python
    fw.predict(fw.bayes.rates(net), X, Y, X_test, order=0).mean
    ```
    """
    reason = _never_bayesian(net)
    if reason is not None:
        raise ValueError(f"{reason}; use fw.bayes.posterior, which needs no learning rates.")
    if isinstance(net, MLP):
        zeros = (0.0,) * (net.depth - 1)
        return net.replace(lambda_b=(*zeros, net.C_b[-1]), lambda_W=(*zeros, net.C_W[-1]))
    *hidden, last = net.layers
    assert isinstance(last, Dense)
    trained = dataclasses.replace(last, lambda_b=last.C_b, lambda_W=last.C_W)
    return net.replace(layers=[*(layer.frozen() for layer in hidden), trained])


def _never_bayesian(net: Network) -> str | None:
    """The reason why no learning rates make Theta equal to K, or None."""
    if net.fixed_rates is not None:
        return f"{net.fixed_rates} learns at rates equal to its variances and cannot be frozen"
    if not isinstance(net.layers[-1], Dense):
        return f"the last layer is a {type(net.layers[-1]).__name__}, whose skip its last weights do not move"
    return None


def trained_for(net: Network) -> Network:
    """The network with the rates that make training Bayesian, or the network itself if there are none."""
    return net if _never_bayesian(net) is not None else rates(net)


def infinite_posterior(net: Network, X_train, Y_train, X_test=None, *, noise: float = 0.0) -> Prediction:
    """Mean and covariance of the outputs given noisy observations of them; `noise` is a variance."""
    X, Y = observations(net, X_train, Y_train, noise)
    X_test = X if X_test is None else as_inputs(X_test, net.input_shape, name="X_test")
    M, N = X_test.shape[0], X.shape[0]
    require_memory(
        8 * (3 * N**2 + 4 * M * N + 4 * M**2),
        f"a posterior of {M} test inputs given {N} training inputs",
        "pass fewer inputs",
    )
    train = kernels(net, X)
    solved = invert(net, X, Y, train.K, noise)
    cross, prior = kernels(net, X_test, X).K, kernels(net, X_test).K
    half = cross @ solved.apply(cross.T) / 2
    factors = ((np.eye(Y.shape[1]), prior - half - half.T),)
    mean = cross @ solved.apply(Y)
    return Prediction(trained_for(net), Newton(), 0, mean, factors, solved.condition, train.error)


@shown("value", "uncertainty", "correction", "order", "gradient", "condition", "net")
@dataclass(frozen=True, eq=False)
class Evidence:
    """Log probability density of observed data under the prior, and how it changes with the prior.

    `fw.bayes.evidence` makes it.

    ```python
    evidence = fw.bayes.evidence(net, X, Y, noise=0.01, order=0)
    evidence.value, evidence.gradient["C_W"]
    ```
    """

    net: Network
    value: float  # log probability density
    gradient: dict[str, np.ndarray] | None  # by C_b and C_W of each layer (L,), and by noise ()
    condition: float = field(repr=False)  # of the kernel with its noise
    order: int = 0  # 0: infinite width
    leading: "Evidence | None" = field(default=None, repr=False)  # the same at order 0, where this is order 1
    # what order 1/n neglects in the logarithm, one standard deviation; zero at infinite width
    uncertainty: float = 0.0

    @property
    def infinite_width(self) -> "Evidence":
        """The same at order 0."""
        return self if self.leading is None else self.leading

    @property
    def correction(self) -> float:
        """What order 1/n adds to the logarithm; positive if the data prefer narrow networks."""
        return self.value - self.infinite_width.value

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted, by its uncertainty alone: the scale of a logarithm is one."""
        return verdict(self.uncertainty)


def infinite_evidence(net: Network, X, Y, *, noise: float = 0.0, gradient: bool = True) -> Evidence:
    r"""$\log p(Y) = -\frac12 \sum_i y_i^T (K + s^2)^{-1} y_i - \frac{n_L}{2} \log\det 2\pi (K + s^2)$.

    The gradient is backpropagated through the layers; it is None for an activation that jumps, and for other
    layers than dense ones and activations, which would need the kernels of all pairs of positions.
    """
    X, Y = observations(net, X, Y, noise)
    count, outputs = Y.shape
    has_gradient = gradient and net.discontinuous is None and net.not_dense is None
    below, K = _all_kernels(net, X) if has_gradient else ([], kernels(net, X).K)
    solved = invert(net, X, Y, K, noise)
    value = log_density(solved, Y)
    if not has_gradient:
        return Evidence(net, value, None, solved.condition)
    weights = solved.apply(Y)
    by_kernel = (weights @ weights.T - outputs * solved.apply(np.eye(count))) / 2
    return Evidence(net, value, _backpropagated(net, X, below, by_kernel), solved.condition)


def log_density(solved: InverseMatrix, Y: np.ndarray) -> float:
    """log p(Y) of independent outputs with the covariance whose inverse is given."""
    count, outputs = Y.shape
    log_determinant = 2 * float(np.log(np.diag(solved.factor)).sum()) + count * math.log(2 * math.pi)
    return -float((Y * solved.apply(Y)).sum() + outputs * log_determinant) / 2


def _all_kernels(net: Network, X: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """K of the hidden layers, and of the output."""
    theory = solve(net, X, order=0)
    return [theory.layer(l).K for l in range(1, net.depth)], theory.output.K.copy()


def _backpropagated(net: Network, X, K: list[np.ndarray], by_kernel: np.ndarray) -> dict[str, np.ndarray]:
    """d log p / d (C_b, C_W, noise), from d log p / d K of the output layer down.

    A change of K changes <s s> of a pair by <s''s> K_11/2 + <s's'> K_12 + <s s''> K_22/2.
    """
    depth = net.depth
    gradient = {"C_b": np.zeros(depth), "C_W": np.zeros(depth), "noise": np.asarray(np.trace(by_kernel))}
    for layer in range(depth - 1, 0, -1):
        orders = ((0, 0), (1, 1), (2, 0))
        averages, _ = relative_two_legs(net.activations[layer - 1], K[layer - 1], orders)
        gradient["C_b"][layer] = by_kernel.sum()
        gradient["C_W"][layer] = (by_kernel * averages[0, 0]).sum()
        diagonal = (averages[2, 0] * by_kernel).sum(axis=1)
        by_kernel = net.C_W[layer] * (by_kernel * averages[1, 1] + np.diag(diagonal))
    gradient["C_b"][0] = by_kernel.sum()
    gradient["C_W"][0] = (by_kernel * (X @ X.T / X.shape[1])).sum()
    return gradient


def observations(net: Network, X, Y, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Training inputs and targets, checked together with the variance of the noise."""
    if not (np.isscalar(noise) and np.isfinite(noise) and noise >= 0):  # type: ignore[arg-type]
        raise ValueError(f"noise must be a variance, zero or positive, got {noise!r}.")
    X = as_inputs(X, net.input_shape, name="X_train")
    return X, as_targets(Y, X.shape[0], net.outputs)


def invert(net: Network, X, Y, K: np.ndarray, noise: float) -> InverseMatrix:
    """The inverse of a training kernel with its noise, in its place, or the reason why there is none."""
    what, remedy = "training kernel", "pass noise= above zero"
    if noise == 0:
        check_independent(trained_for(net), X, Y, what=what, remedy=remedy)
    K.flat[:: K.shape[0] + 1] += noise
    try:
        return inverse(K)
    except Singular as singular:
        raise singular_error(net, X, Y, singular.condition, what=what, remedy=remedy) from None
