r"""Expected test loss of a trained ensemble, split into bias and variance.

$$\mathbb{E}[L_B] = L_B(m)
  + \frac12 \sum \frac{\partial^2 L_B}{\partial z_{i_1\beta_1} \partial z_{i_2\beta_2}}
  \mathrm{Cov}[z_{i_1\beta_1}, z_{i_2\beta_2}] + \ldots$$

(PDLT 10.55); for the squared loss there is nothing more (10.52). Losses are sums over samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import as_targets
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.sampled import SampledPrediction
from finitewidth.training.textbook.delta_expansion import two_inputs

LossOfSample = Callable[[jax.Array, jax.Array], jax.Array]  # of one sample's outputs and targets


@shown(
    "total",
    "bias",
    "variance",
    "stderr",
    "exact",
    dimensions={"bias_of_samples": "sample", "variance_of_samples": "sample"},
)
@dataclass(frozen=True, eq=False)
class TestLoss:
    """Expected loss on test data: of the mean prediction, and from fluctuations around it.

    `fw.test_loss` makes it.

    ```python
    loss = fw.test_loss(fw.predict(net, X, Y, X_test, order=0), Y_test)
    loss.total, loss.bias, loss.variance
    ```
    """

    __test__ = False  # the name alone makes pytest take it for a test

    bias: float  # loss of the mean prediction
    variance: float  # loss from fluctuations around it
    stderr: float  # of the total, where the ensemble or order 1/n was sampled; else 0
    exact: bool  # False where orders beyond the second in the fluctuations are left out
    bias_of_samples: Float[np.ndarray, " M"] = field(repr=False)  # bias of each test input
    variance_of_samples: Float[np.ndarray, " M"] = field(repr=False)  # variance of each test input

    @property
    def total(self) -> float:
        return self.bias + self.variance


def test_loss(
    prediction: Prediction | SampledPrediction, Y_test, *, loss: AbstractLoss | LossOfSample = MSE()
) -> TestLoss:
    """Expected loss of the ensemble against the targets of the test inputs.

    Args:
        prediction: A result of `fw.predict`. A sampled ensemble is averaged over its members, whatever the
            loss.
        Y_test: Targets of its test inputs (M, n_L).
        loss: A loss such as `fw.MSE()`, or any twice-differentiable JAX function of the outputs and the
            targets of one sample.

    Returns:
        `bias`, `variance` and `total`.

    ```python
    fw.test_loss(fw.predict(net, X, Y, X_test), Y_test).total
    ```
    """
    mean = prediction.mean if isinstance(prediction, Prediction) else prediction.mean.value
    Y = as_targets(Y_test, mean.shape[0], mean.shape[1], name="Y_test", inputs="the prediction")
    loss = _FunctionLoss(loss) if callable(loss) else as_loss(loss)
    bias = np.asarray(jax.vmap(loss.value)(jnp.asarray(mean), jnp.asarray(Y)))
    if isinstance(prediction, SampledPrediction):
        return _sampled(prediction, loss, bias, Y)
    if loss.is_squared_error:
        variance = prediction.output_variance * mean.shape[1] / 2
        stderr = _stderr_of_theory(prediction, Y)
        return TestLoss(float(bias.sum()), float(variance.sum()), stderr, True, bias, variance)
    hessians = np.asarray(jax.vmap(jax.hessian(loss.value))(jnp.asarray(mean), jnp.asarray(Y)))
    # a loss that is a sum over samples couples no two of them
    variance = np.einsum("bij,bij->b", hessians, prediction.within_samples) / 2
    return TestLoss(float(bias.sum()), float(variance.sum()), 0.0, False, bias, variance)


test_loss.__test__ = False  # type: ignore[attr-defined]


def _stderr_of_theory(prediction: Prediction, Y: np.ndarray) -> float:
    """Of the squared loss, where order 1/n was sampled: as if its outputs were independent."""
    of_mean = ((prediction.mean - Y) * prediction.stderr).ravel()
    of_variance = prediction.output_variance_stderr * Y.shape[1] / 2
    return float(np.sqrt(np.sum(of_mean**2) + np.sum(of_variance**2)))


@dataclass(frozen=True)
class _FunctionLoss(AbstractLoss):
    """A loss that is given as a function of one sample."""

    function: LossOfSample

    def value(self, z, y):
        return self.function(z, y)


def _sampled(prediction: SampledPrediction, loss: AbstractLoss, bias, Y) -> TestLoss:
    members = jnp.asarray(prediction.outputs)
    losses = np.asarray(jax.vmap(jax.vmap(loss.value), in_axes=(0, None))(members, jnp.asarray(Y)))
    count = losses.shape[0]
    variance = losses.mean(axis=0) - bias
    stderr = float(losses.sum(axis=1).std(ddof=1) / np.sqrt(count))
    return TestLoss(float(bias.sum()), float(variance.sum()), stderr, True, bias, variance)


@shown("robustness", "variance")
@dataclass(frozen=True, eq=False)
class Neighbour:
    """A test input beside one training input: the parts of bias and variance (PDLT 10.56-10.63)."""

    ratio: float  # Theta_{-+} / Theta_{++}
    variance: float  # of each output at the test input

    @property
    def robustness(self) -> float:
        """Theta_{-+} / Theta_{++} - 1: how the prediction changes from the training to the test input."""
        return self.ratio - 1

    def bias(self, y_train: np.ndarray, y_test: np.ndarray) -> np.ndarray:
        """m - y at the test input."""
        return self.ratio * np.asarray(y_train) - np.asarray(y_test)


def neighbour(net: Network, x_train, x_test) -> Neighbour:
    """Robustness and variance of the prediction at one input after training on another one alone.

    Args:
        net: The network.
        x_train: The training input (n_0,).
        x_test: The test input (n_0,).

    Returns:
        A record with `robustness` and the variance.

    ```python
    fw.neighbour(net, X[0], X_test[0]).robustness
    ```
    """
    both = kernels(net, np.stack(two_inputs(net, x_train, x_test, names=("x_train", "x_test"))))
    K, Theta = both.K, both.Theta
    if Theta is None or Theta[0, 0] <= 0:
        raise ValueError(
            "the NTK of x_train is zero and nothing is learned from it; set lambda_b or lambda_W."
        )
    ratio = float(Theta[1, 0] / Theta[0, 0])
    variance = float(K[1, 1] - 2 * ratio * K[0, 1] + ratio**2 * K[0, 0])
    return Neighbour(ratio, max(variance, 0.0))
