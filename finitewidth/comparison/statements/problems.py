"""Networks, data and small functions that several claims share."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.comparison.control_variates import control_variate
from finitewidth.core.estimate import Estimate
from finitewidth.core.run import QUIET
from finitewidth.experiment.directions import Outputs, differentials, outputs_and_ntk
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.ensemble.training import train_ensemble
from finitewidth.experiment.sampling import Parameters, draw, draw_members, outputs, rates
from finitewidth.network.layers.activation import Activation
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.prediction import predict

PDLT = "PDLT"  # Roberts, Yaida, Hanin: The Principles of Deep Learning Theory
EXACT = 1e-9  # two ways to the same number in double precision
ASYMPTOTE = 0.01  # a printed law against a recursion, thousands of layers deep

X = np.array([[1.2, -0.4, 0.3], [-0.5, 1.1, 0.8], [0.2, 0.7, -1.3], [0.6, 0.5, 0.4], [-0.8, -0.3, 0.9]])
Y = np.array([[1.0, -0.6], [-0.8, 0.9], [0.5, 0.7]])
TRAINING = 3  # rows of X that are trained on
DATA = (X[:TRAINING], Y, X[TRAINING:])  # training inputs, targets of two outputs, test inputs
ONE_OUTPUT = (X[:TRAINING], Y[:, :1], X[TRAINING:])


def mlp(width: int, *, hidden: int = 2, outputs: int = 1, activation: str | Activation = "tanh") -> MLP:
    """The small network of most claims."""
    return MLP((3, *[width] * hidden, outputs), activation, C_b=0.1, C_W=1.2, lambda_b=0.5)


def hermite(count: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights for averages over a standard normal number."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    return x, w / w.sum()


def average(function: Callable, K: float) -> float:
    """<f(z)> for one Gaussian number of variance K."""
    x, w = hermite()
    return float(w @ function(np.sqrt(K) * x))


def pair_averages(function: Callable, K: np.ndarray) -> np.ndarray:
    """<f(z_a, z_b)> for every pair of Gaussian numbers of covariance K, (N, N)."""
    averages = np.empty_like(K)
    for a, b in np.ndindex(K.shape):
        pair = K[np.ix_([a, b], [a, b])] + (1e-13 * np.eye(2) if a == b else 0.0)  # of one number: singular
        averages[a, b] = _pair_average(function, pair)
    return averages


def _pair_average(function: Callable, K: np.ndarray) -> float:
    x, w = hermite()
    root = np.linalg.cholesky(K)
    first, second = np.meshgrid(x, x, indexing="ij")
    z = np.einsum("ij,jab->iab", root, np.stack([first, second]))
    return float(np.einsum("a,b,ab->", w, w, function(*z)))


# --- theory and experiment, as most claims use them --------------------------------------------------


def frozen_ntk(net: Network, X, X_other=None, *, layer: int | None = None) -> np.ndarray:
    """Theta of a layer, by default of the output."""
    Theta = kernels(net, X, X_other, layer=layer).Theta
    assert Theta is not None
    return Theta


def predicted(net: Network, *data, **options) -> Prediction:
    """The Gaussian ensemble of trained networks."""
    prediction = predict(net, *data, **options)
    assert isinstance(prediction, Prediction)
    return prediction


def networks(net: Network, data, algorithm, members: int, key: int, **options) -> Ensemble:
    """Trained networks, without a word on the way."""
    return train_ensemble(net, *data, algorithm=algorithm, members=members, key=key, run=QUIET, **options)


def trained(net: Network, data, algorithm, members: int, key: int) -> tuple[Estimate, Ensemble]:
    """The sampled mean, with a control variate from infinite width, and the ensemble."""
    control = control_variate(net, *data, algorithm=algorithm)
    ensemble = networks(net, data, algorithm, members, key, control=control)
    assert ensemble.controlled is not None
    return ensemble.controlled.mean, ensemble


def at_the_end(recorded: Estimate | None, *place: int) -> Estimate:
    """The last entry of a quantity that an ensemble recorded over time, or one component of it."""
    assert recorded is not None
    return Estimate(recorded.value[(-1, *place)], recorded.stderr[(-1, *place)])


# --- real networks, many at once or one at a time ----------------------------------------------------


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _members(net: Network, X, key: int, function: Callable, numbers):
    parameters = draw_members(net, jax.random.key(key), numbers)
    return jax.lax.map(lambda one: function(net, one, X), parameters, batch_size=min(256, len(numbers)))


def of_members(net: Network, X, members: int, key: int, function: Callable):
    """function(net, parameters, X) of every member, stacked along a first axis."""
    stacked = _members(net, jnp.asarray(X), key, function, jnp.arange(members))
    return jax.tree.map(np.asarray, stacked)


def kernels_of(net: Network, one: Parameters, X) -> Outputs:
    """Outputs and NTK of one network."""
    return outputs_and_ntk(net, one, X)


@functools.partial(jax.jit, static_argnums=0)
def derivatives(net: Network, one: Parameters, X) -> Outputs:
    """Outputs, NTK, dNTK and ddNTKs of one network."""
    return differentials(net, one, X)


def network(net: Network, key: int) -> Parameters:
    """Parameters of one initialized network."""
    return draw(net, jax.random.key(key))


def stepped(net: Network, one: Parameters, gradient: Parameters, rate: float) -> Parameters:
    """One update of gradient descent."""
    pairs = zip(one, gradient, rates(net), strict=True)
    return tuple(type(p)(*(a - rate * r * b for a, b, r in zip(p, g, rr, strict=True))) for p, g, rr in pairs)


@functools.partial(jax.jit, static_argnums=(0, 4, 5))
def descended(net: Network, one: Parameters, X, Y, rate: float, steps: int) -> Parameters:
    """A network after some steps of gradient descent on half the squared error."""
    slope = jax.grad(lambda p: jnp.sum((outputs(net, p, X) - Y) ** 2) / 2)
    return jax.lax.fori_loop(0, steps, lambda _, p: stepped(net, p, slope(p), rate), one)
