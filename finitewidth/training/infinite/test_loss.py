r"""Expected test loss of a trained ensemble, split into bias and variance.

$$\mathbb{E}[L_B] = L_B(m)
  + \frac12 \sum \frac{\partial^2 L_B}{\partial z_{i_1\beta_1} \partial z_{i_2\beta_2}}
  \mathrm{Cov}[z_{i_1\beta_1}, z_{i_2\beta_2}] + \ldots$$

(PDLT 10.55); for the squared loss there is nothing more (10.52). Losses are sums over samples.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import as_targets
from finitewidth.network.losses.abstract import AbstractLoss, as_loss

if TYPE_CHECKING:
    from finitewidth.training.infinite.gaussian import Prediction
    from finitewidth.training.infinite.sampled import SampledPrediction

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

    `prediction.test_loss(Y_test)` makes it.

    ```python
    loss = fw.predict(net, X, Y, X_test, order=0).test_loss(Y_test)
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


def gaussian_test_loss(prediction: "Prediction", Y_test, loss: AbstractLoss | LossOfSample) -> TestLoss:
    """Of a Gaussian ensemble: exact for the squared error, else through second order in the fluctuations."""
    Y, loss, bias = _bias(prediction.mean, Y_test, loss)
    if loss.is_squared_error:
        variance = prediction.output_variance * Y.shape[1] / 2
        stderr = _stderr_of_theory(prediction, Y)
        return TestLoss(float(bias.sum()), float(variance.sum()), stderr, True, bias, variance)
    hessians = np.asarray(jax.vmap(jax.hessian(loss.value))(jnp.asarray(prediction.mean), jnp.asarray(Y)))
    # a loss that is a sum over samples couples no two of them
    variance = np.einsum("bij,bij->b", hessians, prediction.within_samples) / 2
    return TestLoss(float(bias.sum()), float(variance.sum()), 0.0, False, bias, variance)


def sampled_test_loss(prediction: "SampledPrediction", Y_test, loss: AbstractLoss | LossOfSample) -> TestLoss:
    """Of a sampled ensemble: averaged over its members, whatever the loss."""
    Y, loss, bias = _bias(prediction.mean.value, Y_test, loss)
    members = jnp.asarray(prediction.outputs)
    losses = np.asarray(jax.vmap(jax.vmap(loss.value), in_axes=(0, None))(members, jnp.asarray(Y)))
    count = losses.shape[0]
    variance = losses.mean(axis=0) - bias
    stderr = float(losses.sum(axis=1).std(ddof=1) / np.sqrt(count))
    return TestLoss(float(bias.sum()), float(variance.sum()), stderr, True, bias, variance)


def _bias(
    mean: np.ndarray, Y_test, loss: AbstractLoss | LossOfSample
) -> tuple[np.ndarray, AbstractLoss, np.ndarray]:
    """Targets and loss as a user gave them, and the loss of the mean on each sample."""
    Y = as_targets(Y_test, mean.shape[0], mean.shape[1], name="Y_test", inputs="the prediction")
    loss = _FunctionLoss(loss) if callable(loss) else as_loss(loss)
    return Y, loss, np.asarray(jax.vmap(loss.value)(jnp.asarray(mean), jnp.asarray(Y)))


def _stderr_of_theory(prediction: "Prediction", Y: np.ndarray) -> float:
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
