"""A trained ensemble that is not Gaussian: its members, and estimates with standard errors."""

from dataclasses import dataclass, field

import jax
import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike
from finitewidth.core.keys import as_key
from finitewidth.core.methods import FunctionSpace
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.training.infinite.test_loss import LossOfSample, TestLoss, sampled_test_loss


@shown(
    "mean",
    "std",
    "outputs",
    "condition",
    "algorithm",
    "loss",
    "method",
    "net",
    dimensions={"mean": "sample output", "std": "sample output", "outputs": "member sample output"},
)
@dataclass(frozen=True, eq=False)
class SampledPrediction:
    """Outputs of sampled members of a trained ensemble at infinite width.

    `fw.predict` makes it before the end of training on a loss other than the squared error.

    ```python
    two = fw.MLP((2, 64, 64, 2), "tanh")
    flow, entropy = fw.GradientFlow(2.0), fw.CrossEntropy()
    prediction = fw.predict(
        two, X, fw.losses.one_hot([0, 1, 0], 2), X_test, algorithm=flow, loss=entropy, order=0,
        method=fw.FunctionSpace(members=20),
    )
    prediction.mean.value, prediction.probabilities.value
    ```
    """

    net: Network
    algorithm: AbstractAlgorithm  # how it is trained
    loss: AbstractLoss  # the loss
    outputs: Float[np.ndarray, "members M n_L"] = field(repr=False)  # of every member
    probabilities_of_members: Float[np.ndarray, "members M n_L"] | None = field(repr=False)  # of classes
    condition: float  # of the training NTK
    error: float  # of the Gaussian averages in the kernels
    method: FunctionSpace  # how members were drawn

    @property
    def mean(self) -> Estimate:
        """Mean outputs (M, n_L)."""
        return _mean(self.outputs)

    @property
    def probabilities(self) -> Estimate:
        """Mean class probabilities (M, n_L)."""
        if self.probabilities_of_members is None:
            raise ValueError(f"loss={self.loss!r} knows no classes; use loss=fw.CrossEntropy().")
        return _mean(self.probabilities_of_members)

    @property
    def covariance(self) -> Estimate:
        """Covariance of outputs (M, n_L, M, n_L)."""
        flat = self.outputs.reshape(self.outputs.shape[0], -1)
        value, stderr = _covariance(flat)
        shape = self.outputs.shape[1:] * 2
        return Estimate(value.reshape(shape), stderr.reshape(shape))

    @property
    def std(self) -> Estimate:
        """Standard deviations (M, n_L)."""
        members = self.outputs.shape[0]
        squares = (self.outputs - self.outputs.mean(axis=0)) ** 2 * (members / (members - 1))
        variance = _mean(squares)
        value = np.sqrt(variance.value)
        with np.errstate(divide="ignore", invalid="ignore"):
            stderr = np.where(value > 0, variance.stderr / (2 * value), 0.0)
        return Estimate(value, stderr)

    def test_loss(self, Y_test: ArrayLike, *, loss: AbstractLoss | LossOfSample = MSE()) -> TestLoss:
        """Expected loss of the ensemble against the targets of the test inputs.

        Args:
            Y_test: Targets of the test inputs (M, n_L).
            loss: A loss such as `fw.MSE()`, or any twice-differentiable JAX function of the outputs and the
                targets of one sample.

        Returns:
            `bias`, `variance` and `total`.
        """
        return sampled_test_loss(self, Y_test, loss)


def _mean(values: np.ndarray) -> Estimate:
    members = values.shape[0]
    return Estimate(values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(members))


def _covariance(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unbiased covariance of (members, k) and the standard error of each entry."""
    members = flat.shape[0]
    centred = flat - flat.mean(axis=0)
    second = centred.T @ centred / members
    fourth = (centred**2).T @ centred**2 / members
    return second * members / (members - 1), np.sqrt(np.maximum(fourth - second**2, 0.0) / members)


def gaussian_members(K: np.ndarray, members: int, outputs: int, key) -> np.ndarray:
    """(members, N, outputs) draws of z ~ Normal(0, K), independent between outputs; K may be singular."""
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    normals = np.asarray(jax.random.normal(as_key(key), (members, K.shape[0], outputs), dtype=np.float64))
    return np.einsum("ab,mbi->mai", root, normals, optimize=True)
