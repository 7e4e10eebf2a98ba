"""Activations and networks with exact answers, and inputs that are known to be difficult."""

import contextlib
import functools
import itertools
import math
from typing import NamedTuple

import jaxtyping
import mpmath
import numpy as np
import pytest

import finitewidth as fw


def also_long(*values):
    """Further parameters of a test, with which `make test-long` repeats it."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in values
    ]


# --- activations: every name, with the function written a second time in mpmath ----------------------

SELU_ALPHA, SELU_SCALE = mpmath.mpf(1.6732632423543772), mpmath.mpf(1.0507009873554805)


def sigmoid(z):
    return 1 / (1 + mpmath.exp(-z))


def softplus(z):
    return mpmath.log(1 + mpmath.exp(z))


def ramp(a_plus, a_minus):
    return lambda z: (a_plus if z > 0 else mpmath.mpf(a_minus)) * z


def exponential_linear(z, alpha=1):
    return z if z > 0 else alpha * mpmath.expm1(z)


class Problem(NamedTuple):
    """An activation's function for any precision, its kinks and the lowest derivative that jumps there."""

    function: object
    kinks: tuple[float, ...] = ()
    jump_order: float = math.inf
    odd: bool = False
    slopes: tuple[float, float] | None = None  # (a_plus, a_minus) where it is scale-invariant


ACTIVATIONS = {
    "linear": Problem(lambda z: z, odd=True, slopes=(1.0, 1.0)),
    "relu": Problem(ramp(1, 0), (0.0,), 1, slopes=(1.0, 0.0)),
    "leaky_relu(0.2)": Problem(ramp(1, 0.2), (0.0,), 1, slopes=(1.0, 0.2)),
    "scale_invariant(1.5, -0.5)": Problem(ramp(1.5, -0.5), (0.0,), 1, slopes=(1.5, -0.5)),
    "perceptron": Problem(lambda z: mpmath.mpf(z > 0), (0.0,), 0),
    "sigmoid": Problem(sigmoid),
    "tanh": Problem(mpmath.tanh, odd=True),
    "sin": Problem(mpmath.sin, odd=True),
    "erf": Problem(mpmath.erf, odd=True),
    "softplus": Problem(softplus),
    "swish": Problem(lambda z: z * sigmoid(z)),
    "swish(1.5)": Problem(lambda z: z * sigmoid(mpmath.mpf(1.5) * z)),
    "gelu": Problem(lambda z: z * mpmath.erfc(-z / mpmath.sqrt(2)) / 2),
    "mish": Problem(lambda z: z * mpmath.tanh(softplus(z))),
    "elu": Problem(exponential_linear, (0.0,), 2),
    "elu(0.5)": Problem(lambda z: exponential_linear(z, mpmath.mpf(0.5)), (0.0,), 1),
    "selu": Problem(lambda z: SELU_SCALE * exponential_linear(z, SELU_ALPHA), (0.0,), 1),
    "hardtanh": Problem(lambda z: max(min(z, mpmath.mpf(1)), mpmath.mpf(-1)), (-1.0, 1.0), 1, odd=True),
    "monomial(3)": Problem(lambda z: z**3, odd=True),
    "polynomial(0.5, 1, 0, -0.25)": Problem(lambda z: mpmath.mpf(0.5) + z - z**3 / 4),
}


@functools.cache
def exact_derivatives(name: str, z: float, highest: int = 5) -> tuple[float, ...]:
    """sigma and its derivatives at one point to 40 digits, by finite differences of 120 digits."""
    with mpmath.workdps(120):
        function, point = ACTIVATIONS[name].function, mpmath.mpf(z)
        return tuple(
            float(mpmath.diff(function, point, n, h=mpmath.mpf(10) ** -18)) for n in range(highest + 1)
        )


# --- networks with exact answers ---------------------------------------------------------------------

PER_LAYER = dict(
    C_b=(0.3, 0.1, 0.0, 0.2),
    C_W=(1.5, 0.7, 1.2, 2.0),
    lambda_b=(0.5, 1.0, 0.3, 0.0),
    lambda_W=(2.0, 0.4, 0.0, 1.0),
)
HYPERPARAMETERS = {
    "one value for all layers": dict(C_b=0.1, C_W=1.3, lambda_b=0.7, lambda_W=1.9),
    "one value per layer": PER_LAYER,
    "no biases": dict(C_b=0.0, C_W=2.0, lambda_b=0.0, lambda_W=1.0),
}
WIDTHS = (3, 8, 5, 7, 2)


def linear_network_means(net: fw.MLP, X: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """K and Theta of a deep linear network: every bias and weight, times what the layers above make of it."""
    gram = X @ X.T / X.shape[1]

    def gain(below: int, up_to: int) -> float:
        return math.prod(net.C_W[below:up_to])

    def kernel(l: int) -> np.ndarray:
        return gain(0, l) * gram + sum(net.C_b[j] * gain(j + 1, l) for j in range(l))

    signals = [gram, *(kernel(l) for l in range(1, layer))]  # what the weights of layer 1, 2, ... multiply
    Theta = sum((net.lambda_b[j] + net.lambda_W[j] * signals[j]) * gain(j + 1, layer) for j in range(layer))
    return kernel(layer), Theta


def scale_invariant_means(net: fw.MLP, X: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
    """K and Theta by the arc-cosine kernels of Cho and Saul (2009), with 40 digits."""
    a_plus, a_minus = (mpmath.mpf(a) for a in ACTIVATIONS[net.activation.name].slopes)
    with mpmath.workdps(40):
        x = mpmath.matrix(X.tolist())
        gram = x * x.T / X.shape[1]
        count = range(X.shape[0])
        K, Theta = (
            gram.apply(lambda g, b=b, w=w: b + w * g)
            for b, w in ((net.C_b[0], net.C_W[0]), (net.lambda_b[0], net.lambda_W[0]))
        )
        for l in range(1, layer):
            before, Theta_before, K, Theta = K, Theta, K.copy(), Theta.copy()
            for i, j in itertools.product(count, count):
                size = mpmath.sqrt(before[i, i] * before[j, j])
                cosine = min(max(before[i, j] / size, mpmath.mpf(-1)), mpmath.mpf(1))
                value, slope = arc_cosine(cosine, a_plus, a_minus)
                K[i, j] = net.C_b[l] + net.C_W[l] * size * value
                Theta[i, j] = net.lambda_b[l] + net.lambda_W[l] * size * value
                Theta[i, j] += net.C_W[l] * Theta_before[i, j] * slope
        return tuple(np.array(m.tolist(), dtype=float) for m in (K, Theta))


def arc_cosine(cosine, a_plus, a_minus):
    """<sigma sigma> / sqrt(K_11 K_22) and <sigma' sigma'> at an angle between two inputs."""

    def relu(c):
        angle, turn = mpmath.acos(c), 2 * mpmath.pi
        return (mpmath.sin(angle) + (mpmath.pi - angle) * c) / turn, (mpmath.pi - angle) / turn

    (same, same_slope), (opposite, opposite_slope) = relu(cosine), relu(-cosine)
    squares, product = a_plus**2 + a_minus**2, 2 * a_plus * a_minus
    return squares * same - product * opposite, squares * same_slope + product * opposite_slope


# --- inputs ------------------------------------------------------------------------------------------

INPUTS = {
    "generic": np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -1.1], [-0.7, 0.4, 0.9], [2.0, 1.0, 0.5]]),
    "repeated": np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -1.1], [1.0, -0.5, 0.2], [0.3, 0.8, -1.1]]),
    "collinear": np.array([[1.0, -0.5, 0.2], [2.0, -1.0, 0.4], [-3.0, 1.5, -0.6], [0.3, 0.8, -1.1]]),
    "nearly parallel": np.array([[1.0, -0.5, 0.2], [1.0, -0.5, 0.2 + 1e-9], [1.0 + 1e-6, -0.5, 0.2]]),
}


# --- bad input as a user meets it --------------------------------------------------------------------


@contextlib.contextmanager
def as_for_users():
    """Without the run-time checks of types that only tests have."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@contextlib.contextmanager
def refused(message: str):
    """Expect a ValueError with this text, as a user gets it."""
    with as_for_users(), pytest.raises(ValueError, match=message):
        yield


# --- a network with its own values in every layer, and its statistics ----------------------------------

FINE = 1e-11  # absolute accuracy of four-leg averages where two derivations are compared

VARIED = dict(
    widths=(4, 30, 20, 25, 3),
    C_b=(0.1, 0.05, 0.2, 0.1),
    C_W=(1.2, 1.5, 1.1, 1.3),
    lambda_b=(0.5, 1.0, 0.7, 0.3),
    lambda_W=(1.0, 0.8, 1.1, 0.6),
)


def inputs(count, dimension=4, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dimension))


@functools.cache
def solved(activation="tanh", count=3):
    return fw.solve(fw.MLP(activation=activation, **VARIED), inputs(count), method=fw.Tensors(tolerance=FINE))
