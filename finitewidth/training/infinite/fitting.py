r"""Infinitely wide networks trained on the squared loss.

Their outputs on test inputs are Gaussian (PDLT 10.40, 10.41):

$$m = \Theta_{\beta A} F y, \qquad \mathrm{Cov} = \delta_{i_1 i_2}\, (L K L^T)_{\beta_1\beta_2}, \qquad
  L = 1 - \Theta_{\cdot A} F,$$

with $F = \tilde\Theta^{-1}$ at the end of training and a function of the training NTK before (`solver.py`).
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_inputs, as_positive, as_targets
from finitewidth.core.memory import require_memory
from finitewidth.core.run import QUIET, Run, as_run, runner
from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.checks import accuracy_or_error
from finitewidth.theory.kernels import Kernels, kernels
from finitewidth.theory.pairs.panels import Request, run_panels
from finitewidth.training.infinite.conditioning import REMEDY, check_independent, singular_error
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.iterative import IterativeInverse, StoredMatrix
from finitewidth.training.infinite.solver import ResponseMatrix, Singular, response_matrix

_ACCURACY = 1e-8  # of conjugate gradients
BLOCK = 1024  # test inputs at a time, for means and standard deviations alone


@shown("X", "weights", "condition", "error", "algorithm", "net")
@dataclass(frozen=True, eq=False)
class Fitted:
    """Infinitely wide networks trained on a data set, ready to predict at any inputs.

    `fw.fit` makes it.

    ```python
    fitted = fw.fit(net, X, Y)
    fitted.mean(X_test), fitted.std(X_test), fitted.condition
    ```
    """

    net: Network
    algorithm: AbstractAlgorithm  # how it was trained
    X: Float[np.ndarray, "N ..."]  # training inputs
    K: Float[np.ndarray, "N N"] | StoredMatrix = field(repr=False)  # kernel of the training inputs
    weights: Float[np.ndarray, "N n_L"] = field(repr=False)  # F y, one for each training sample
    # f(Theta), which takes residuals to what training does with them
    response: ResponseMatrix | IterativeInverse = field(repr=False)
    error: float  # of the Gaussian averages in the kernels

    def __getstate__(self) -> dict[str, Any]:
        """All but the kernel K: a pickle then has one matrix between samples, and not two."""
        return {
            name: value
            for name, value in vars(self).items()
            if name != "K" or isinstance(value, StoredMatrix)
        }

    def __getattr__(self, name: str) -> Any:
        """The kernel K, which a pickle has left out, when it is first needed."""
        if name != "K" or "net" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        object.__setattr__(self, "K", kernels(self.net, self.X).K)
        return self.K

    @property
    def condition(self) -> float:
        """The condition number of the training NTK, with the ridge; if it is on disk, an upper bound."""
        return self.response.condition

    def mean(self, X_test: ArrayLike) -> Float[np.ndarray, "M n_L"]:
        """The mean prediction alone, in blocks: memory does not grow with the number of test inputs."""
        X_test = as_inputs(X_test, self.net.input_shape, name="X_test")
        return np.concatenate([ntk(self._kernels(block)) @ self.weights for block in _blocks(X_test)])

    def std(self, X_test: ArrayLike) -> Float[np.ndarray, " M"]:
        """Standard deviations alone, which all outputs share, in blocks."""
        X_test = as_inputs(X_test, self.net.input_shape, name="X_test")
        return np.concatenate([self.mean_and_std(block)[1] for block in _blocks(X_test)])

    def mean_and_std(self, X_test: ArrayLike) -> tuple[Float[np.ndarray, "M n_L"], Float[np.ndarray, " M"]]:
        """Means and standard deviations, from one evaluation of the kernels."""
        X_test = as_inputs(X_test, self.net.input_shape, name="X_test")
        means, deviations = [], []
        for block in _blocks(X_test):
            cross = self._kernels(block)
            gain = self._gain(cross)
            variance = np.diag(kernels(self.net, block).K).copy()
            variance += np.einsum("ba,ba->b", gain @ self.K - 2 * cross.K, gain)
            means.append(ntk(cross) @ self.weights)
            deviations.append(np.sqrt(np.maximum(variance, 0.0)))
        return np.concatenate(means), np.concatenate(deviations)

    def predict(self, X_test: ArrayLike, *, covariance: bool = True) -> Prediction:
        """Mean and full covariance, or the mean alone."""
        X_test = as_inputs(X_test, self.net.input_shape, name="X_test")
        if not covariance:
            mean = self.mean(X_test)
            return Prediction(self.net, self.algorithm, 0, mean, None, self.condition, self.error)
        M, N = X_test.shape[0], self.X.shape[0]
        require_memory(
            8 * (4 * M * N + 4 * M**2),
            f"the covariance of {M} test inputs given {N} training inputs",
            "use fw.fit(...).mean_and_std(X_test), which works in blocks",
        )
        return self.conditioned(self._kernels(X_test), kernels(self.net, X_test).K)

    def conditioned(self, cross: Kernels, K_test: Float[np.ndarray, "M M"]) -> Prediction:
        """Mean and covariance from kernels of test inputs with training inputs, and among themselves."""
        mean, covariance = ntk(cross) @ self.weights, self._covariance(cross, K_test)
        factors = ((np.eye(mean.shape[1]), covariance),)
        return Prediction(self.net, self.algorithm, 0, mean, factors, self.condition, self.error)

    def gain(self, X: ArrayLike) -> Float[np.ndarray, "M N"]:
        """Theta_{beta A} F: outputs move by minus this times the residual at initialization."""
        return self._gain(self._kernels(as_inputs(X, self.net.input_shape, name="X")))

    def _kernels(self, X_test: np.ndarray) -> Kernels:
        return kernels(self.net, X_test, self.X)

    def _gain(self, cross: Kernels) -> np.ndarray:
        return self.response.apply_transposed(ntk(cross).T).T  # Theta_{beta A} F

    def _covariance(self, cross: Kernels, K_test: np.ndarray) -> np.ndarray:
        """L K L^T, exactly symmetric."""
        gain = self._gain(cross)
        half = gain @ (self.K @ (gain.T / 2) - cross.K.T)
        return K_test + half + half.T


def ntk(matrices: Kernels) -> np.ndarray:
    """The NTK of a network that has one, as `require_ntk` ensures."""
    assert matrices.Theta is not None
    return matrices.Theta


def _blocks(X: np.ndarray) -> list[np.ndarray]:
    return [X[start : start + BLOCK] for start in range(0, X.shape[0], BLOCK)]


def check_ridge(ridge: float, cutoff: float, loss: AbstractLoss) -> None:
    """Refuse a negative ridge, a cutoff that is no fraction, and both where the loss is not quadratic."""
    if not loss.is_squared_error and (ridge or cutoff):
        raise ValueError(
            "ridge and cutoff belong to loss=fw.MSE(); smooth the targets or stop early instead."
        )
    if not (np.isscalar(ridge) and np.isfinite(ridge) and ridge >= 0):  # type: ignore[arg-type]
        raise ValueError(f"ridge must be zero or a positive number, got {ridge!r}.")
    if not (np.isscalar(cutoff) and 0 <= cutoff < 1):  # type: ignore[operator]
        raise ValueError(
            f"cutoff must lie between 0 and 1, in units of the largest eigenvalue, got {cutoff!r}."
        )


def require_ntk(net: Network) -> None:
    """Refuse activations that gradients cannot train."""
    if net.discontinuous is not None:
        raise ValueError(
            f"activation {net.discontinuous.name!r} has no neural tangent kernel, since its derivative is a "
            "delta function; use a continuous activation, or fw.bayes.posterior for Bayesian inference."
        )


@takes_models
def fit(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    *,
    algorithm: AbstractAlgorithm = GradientFlow(),
    ridge: float = 0.0,
    cutoff: float = 0.0,
    accuracy: float | None = None,
    run: Run | None = None,
) -> Fitted:
    """Train infinitely wide networks on the loss 1/2 sum (z - y)^2 once, to predict at any test inputs.

    Args:
        net: The network.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        algorithm: How and how long networks are trained; by default to the end.
        ridge: A number that is added to the diagonal of the training NTK.
        cutoff: Eigenvalues below this share of the largest count as zero, and their modes stay as they were
            at initialization: the limit of a vanishing ridge.
        accuracy: The relative residual of conjugate gradients, which take over with a store, 1e-8 by default;
            `fitted.response.reached` lists the residuals reached.
        run: With a store the kernel of the training set stays there in panels. Networks trained to the end
            are then found by conjugate gradients, and memory grows with the number of samples, not with its
            square. Panels are tasks for a client; a progress bar is shown where it is asked for.

    Returns:
        Trained networks, whose `mean`, `std` and `predict` take test inputs.

    ```python
    fitted = fw.fit(net, X, Y, ridge=1e-3)
    fitted.mean(X_test), fitted.std(X_test)
    ```
    """
    check_algorithm(algorithm, order=0)
    check_ridge(ridge, cutoff, MSE())
    X, Y = checked_data(net, X_train, Y_train)
    options = {"ridge": float(ridge), "cutoff": float(cutoff), "accuracy": accuracy}
    return fit_outputs(net, X, Y, algorithm, MSE(), run=run, **options)


def checked_data(net: Network, X_train, Y_train) -> tuple[np.ndarray, np.ndarray]:
    """Training inputs and targets of a network that gradients can train."""
    require_ntk(net)
    X = as_inputs(X_train, net.input_shape, name="X_train")
    return X, as_targets(Y_train, X.shape[0], net.outputs)


def fit_outputs(
    net: Network,
    X: np.ndarray,
    Y: np.ndarray,
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss,
    *,
    ridge: float = 0.0,
    cutoff: float = 0.0,
    accuracy: float | None = None,
    run: Run | None = None,
) -> Fitted:
    """Networks trained towards outputs Y, given checked data; `loss` says which learning rates are stable."""
    run = QUIET if run is None else as_run(run)
    if run.store is not None:
        accuracy = as_positive("accuracy", _ACCURACY if accuracy is None else accuracy)
        _check_for_store(algorithm, cutoff)
        return _fit_on_disk(net, X, Y, algorithm, loss, ridge=ridge, accuracy=accuracy, run=run)
    if accuracy is not None:
        raise ValueError(
            f"accuracy={accuracy!r} is that of conjugate gradients, which need a store; add "
            "run=fw.Run(store=...), or remove it: in memory the solution is exact."
        )
    require_memory(8 * 6 * X.shape[0] ** 2, f"training on {X.shape[0]} inputs", "train on fewer inputs")
    if algorithm.is_finished and ridge == 0 and cutoff == 0:
        check_independent(net, X, Y)  # before the kernel, which takes time
    train = kernels(net, X, run=run)
    return fit_kernels(train, X, Y, algorithm, loss, ridge=ridge, cutoff=cutoff)


def _check_for_store(algorithm: AbstractAlgorithm, cutoff: float) -> None:
    if cutoff or not algorithm.is_finished or algorithm.mixes_modes:
        raise ValueError(
            f"store needs networks trained to the end and no cutoff, got {algorithm!r}, cutoff={cutoff!r}; "
            "use algorithm=fw.GradientFlow() and a ridge."
        )


def _fit_on_disk(
    net: Network,
    X: np.ndarray,
    Y: np.ndarray,
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss,
    *,
    ridge: float,
    accuracy: float,
    run: Run,
) -> Fitted:
    """The same by conjugate gradients, with the kernel in panels on disk."""
    assert run.store is not None
    request = Request(net, X, None, net.depth, ACCURACY)
    with runner(run, kind="kernel", configuration=request.configuration) as running:
        error = max(float(arrays["error"]) for _, arrays in run_panels(running, request))
    accuracy_or_error(error, ACCURACY, net.activation_name)
    K, Theta = (StoredMatrix(Path(run.store), name, request.panels) for name in ("K", "Theta"))
    F = IterativeInverse.of(Theta, ridge, accuracy)
    algorithm.check_stable(F.largest, loss)
    return Fitted(net, algorithm, X, K, F.apply(Y), F, error)


def fit_kernels(
    train: Kernels,
    X: np.ndarray,
    Y: np.ndarray,
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss,
    *,
    ridge: float = 0.0,
    cutoff: float = 0.0,
    remedy: str = REMEDY,
) -> Fitted:
    """The same from the kernels of the training inputs; the NTK is overwritten."""
    try:
        F = response_matrix(ntk(train), algorithm, loss, ridge=ridge, cutoff=cutoff)
    except Singular as singular:
        raise singular_error(train.net, X, Y, singular.condition, remedy=remedy) from None
    return Fitted(train.net, algorithm, X, train.K, F.apply(Y), F, train.error)
