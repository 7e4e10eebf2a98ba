"""The order-1/n statistics against ensembles of real networks.

Pulls are differences over standard errors. A single pull must stay below 4. With one hidden layer about 1400
entries are compared for each activation, so the largest pull must stay below 4.5: a Gaussian exceeds it with
probability 7e-6, and any of 1400 with less than one per cent.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.sampled_networks import (
    DIFFERENTIALS,
    FLUCTUATIONS,
    extrapolated,
    falling_power,
    kernels_given_hidden,
    outputs,
    parameters,
    sample,
    sample_means,
)
from jax.flatten_util import ravel_pytree

import finitewidth as fw
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.layers.dense import DenseParameters

INPUTS = np.array([[0.9, -0.4, 0.3], [0.2, 1.1, -0.5], [-0.7, 0.6, 0.8]])


def network(hidden, activation, outputs=2):
    """Every hyperparameter differs between layers; the theory knows no `outputs`, more mean less noise."""
    depth = len(hidden) + 1
    return fw.MLP(
        (3, *hidden, outputs),
        activation,
        C_b=[0.03, 0.06, 0.15][:depth],
        C_W=[1.2, 3.0, 1.3][:depth],
        lambda_b=[0.3, 0.5, 0.4][:depth],
        lambda_W=[0.9, 1.1, 0.7][:depth],
    )


def pull(estimate, exact=0.0):
    return (estimate.value - exact) / estimate.stderr


def difference(estimate, exact, scale=1.0):
    return Estimate(scale * (estimate.value - exact), scale * estimate.stderr)


# --- one network: the sampler computes what the definitions say ---------------------------------------------


def drawn(net, seed=0):
    return parameters(net, jnp.asarray(np.random.default_rng(seed).standard_normal(net.parameter_count)))


def by_nested_differentiation(net, X, drawn_parameters):
    """z, H, dH, ddI and ddII from derivatives with respect to all parameters in one vector."""
    theta, unflatten = ravel_pytree(drawn_parameters)

    def z(vector):
        (b, W), *later = unflatten(vector)
        value = b[:, None] + W @ X.T
        for b, W in later:
            value = b[:, None] + W @ net.activation(value)
        return value

    first = jax.jacfwd(z)
    second = jax.jacfwd(first)
    d1, d2, d3 = first(theta), second(theta), jax.jacfwd(second)(theta)
    rates = [
        (jnp.full(b.shape, net.lambda_b[l]), jnp.full(W.shape, net.lambda_W[l] / W.shape[1]))
        for l, (b, W) in enumerate(drawn_parameters)
    ]
    rate = ravel_pytree(rates)[0]
    g = rate * d1
    return {
        "z": z(theta),
        "H": jnp.einsum("iap,jbp->iajb", d1, g),
        "dH": jnp.einsum("iapq,jbp,kcq->iajbkc", d2, g, g),
        "ddI": jnp.einsum("iapqr,jbp,kcq,ldr->iajbkcld", d3, g, g, g),
        "ddII": jnp.einsum("iapr,jbqr,r,kcp,ldq->iajbkcld", d2, d2, rate, g, g),
    }


@pytest.mark.parametrize(
    "activation, hidden", [("gelu", (3, 2)), pytest.param("tanh", (2,), marks=pytest.mark.long)]
)
def test_sampled_networks_have_the_derivatives_of_the_definitions(activation, hidden):
    net, X = network(hidden, activation), jnp.asarray(INPUTS[:2])
    values = jax.jit(lambda drawn: outputs(net, X, drawn, order=3))(drawn(net))
    expected = jax.jit(lambda drawn: by_nested_differentiation(net, X, drawn))(drawn(net))
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(values, name), value, rtol=1e-10, atol=1e-10, err_msg=name)


def test_kernels_given_hidden_layers_are_averages_over_the_last_layer():
    """zz and H are quadratic in the last layer, so its variances times second differences average them."""
    net, X = network((3, 2), "gelu"), jnp.asarray(INPUTS[:2])
    *hidden, (b, W) = drawn(net)

    @jax.jit
    def last_layer(row, bias):
        value = outputs(net, X, (*hidden, DenseParameters(bias, row)), order=1)
        return value.z[0, :, None] * value.z[0], value.H[0, :, 0, :]

    empty = np.array(last_layer(0 * W, 0 * b))
    weights = [np.array(last_layer(jnp.zeros_like(W).at[0, k].set(1.0), 0 * b)) for k in range(2)]
    bias = np.array(last_layer(0 * W, jnp.ones_like(b)))
    mean = empty + net.C_W[-1] / 2 * sum(w - empty for w in weights) + net.C_b[-1] * (bias - empty)
    value = jax.jit(lambda drawn: kernels_given_hidden(net, X, drawn)[:2])(drawn(net))
    np.testing.assert_allclose(np.array(value), mean, rtol=1e-10)


# --- one hidden layer: exact at any width -------------------------------------------------------------------


def with_all_neurons_equal(layer):
    """What correlators are where all output neurons are the same: the sum of their three structures."""

    def at(tensor, order):
        return np.einsum(f"{order}->abcd", tensor)

    return {
        "zzzz": layer.V + at(layer.V, "acbd") + at(layer.V, "adbc"),
        "Hzz": layer.D + at(layer.F, "acbd") + at(layer.F, "adbc"),
        "HH": layer.A + at(layer.B, "acbd") + at(layer.B, "adbc"),
        "dHz": layer.P + layer.Q + at(layer.Q, "acbd"),
        "ddI": layer.R + at(layer.R, "acdb") + at(layer.R, "adbc"),
        "ddII": layer.S + at(layer.T, "acdb") + at(layer.U, "adbc"),
    }


@pytest.mark.long  # `experiment/test_statistics.py` has one hidden layer too
@pytest.mark.parametrize("activation, width", [("gelu", 2), ("tanh", 3), ("sin", 4)])
def test_one_hidden_layer_statistics_are_exact_at_any_width(activation, width):
    """40000 networks for V, D, F, A, B and as many for P, Q, R, S, T, U; three inputs, every entry."""
    net = network((width,), activation)
    layer = fw.solve(net, INPUTS).output
    assert not layer.G1.any() and not layer.H1.any()
    ensemble = {"batches": 200, "size": 200}
    estimates = sample(net, INPUTS, DIFFERENTIALS, seed=1, **ensemble)
    estimates |= sample(network((width,), activation, 8), INPUTS, FLUCTUATIONS, seed=2, **ensemble)
    exact = {name: getattr(layer, name) for name in (*FLUCTUATIONS, *DIFFERENTIALS)}
    exact |= {"G": layer.K, "H": layer.Theta, **with_all_neurons_equal(layer)}
    assert estimates.keys() == exact.keys()
    for name, value in exact.items():
        assert np.max(estimates[name].stderr) < 0.05 * np.max(np.abs(value)), f"{name} is too noisy to tell"
    pulls = {name: pull(estimates[name], value).ravel() for name, value in exact.items()}
    largest = {name: np.max(np.abs(value)) for name, value in pulls.items()}
    assert max(largest.values()) < 4.5, largest
    assert 0.6 < np.sqrt(np.mean(np.concatenate(list(pulls.values())) ** 2)) < 1.4


# --- two hidden layers: what is neglected falls with the width ----------------------------------------------

TWO_HIDDEN_LAYERS = [("tanh", 1.0), pytest.param("gelu", 0.75, marks=pytest.mark.long)]  # and n_1 / n_2


def two_hidden_layers(n, activation, ratio, outputs=2):
    return network((int(ratio * n), n), activation, outputs)


def check_residuals(activation, ratio, names, *, outputs, batches, size, noise):
    """Sampled tensors less those of the theory vanish at 1/n = 0 and fall as 1/n where noise is small.

    The limit is that of a fit with terms 1/n and 1/n^2; `noise` bounds its error, in units of the tensor.
    """
    widths, X = (8, 16, 32), INPUTS[:2]
    layer = fw.solve(two_hidden_layers(widths[0], activation, ratio), X).output  # the same at every width
    sampled = [
        sample(two_hidden_layers(n, activation, ratio, outputs), X, names, batches=batches, size=size, seed=n)
        for n in widths
    ]
    visible = 0
    for name in names:
        exact = getattr(layer, name)
        residuals = [difference(statistics[name], exact) for statistics in sampled]
        limit, power = extrapolated(widths, residuals), falling_power(widths, residuals)
        assert np.max(limit.stderr) < noise * np.max(np.abs(exact)), f"{name} is too noisy to tell"
        assert np.max(np.abs(pull(limit))) < 4, (name, pull(limit))
        if power.stderr < 0.25:
            visible += 1
            assert abs(power.value - 1) < 0.1 + 3 * power.stderr, (name, power)
    assert visible >= 2


@pytest.mark.long
@pytest.mark.parametrize("activation, ratio", TWO_HIDDEN_LAYERS)
def test_corrections_to_fluctuations_fall_as_inverse_width(activation, ratio):
    """V, D, F, A, B; 40000 networks at each of the widths 8, 16, 32; two inputs."""
    check_residuals(activation, ratio, FLUCTUATIONS, outputs=16, batches=200, size=200, noise=0.15)


@pytest.mark.long
@pytest.mark.parametrize("activation, ratio", TWO_HIDDEN_LAYERS)
def test_corrections_to_differentials_fall_as_inverse_width(activation, ratio):
    """P, Q, R, S, T, U; 12500 networks at each of the widths 8, 16, 32; two inputs."""
    check_residuals(activation, ratio, DIFFERENTIALS, outputs=2, batches=125, size=100, noise=0.2)


@pytest.mark.long
@pytest.mark.parametrize("activation, ratio", TWO_HIDDEN_LAYERS)
def test_mean_kernels_are_right_to_first_order_in_inverse_width(activation, ratio):
    """n (G - K - G1/n) and n (H - Theta - H1/n) vanish at 1/n = 0; 160000 networks at widths 4, 8, 16."""
    widths, X = (4, 8, 16), INPUTS[:2]
    residuals = {"G": [], "H": []}
    for n in widths:
        net = two_hidden_layers(n, activation, ratio)
        layer = fw.solve(net, X).output
        for name, estimate in sample_means(net, X, batches=200, size=800, seed=n).items():
            residuals[name].append(difference(estimate, getattr(layer, name), scale=n))
    for name, correction in (("G", layer.G1), ("H", layer.H1)):
        limit = extrapolated(widths, residuals[name])
        assert np.max(limit.stderr) < 0.5 * np.max(np.abs(correction)), f"{name} is too noisy to tell"
        assert np.max(np.abs(pull(limit))) < 4, (name, pull(limit))
