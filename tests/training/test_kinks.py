"""The order n^(-1/2) of networks with kinks: closed form, tensors, descent beside flow, scaling, refusals."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused
from scipy.special import ndtr

import finitewidth as fw
from finitewidth.comparison.kinked_extrapolation import TRAINED, fall_of_powers
from finitewidth.theory.steps import first_layer, steps
from finitewidth.training.kinks.gates import gated_layers

RANDOM = np.random.default_rng(0)
X, Y, X_TEST = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(2, 1)), RANDOM.normal(size=(1, 3))


def test_one_input_and_one_hidden_layer_have_a_closed_form():
    """The NTK falls by Theta^2 |I| beta^(3/2) / (pi sqrt(K)), I the integral of the residual; 1 percent."""
    x, y, time = np.array([[0.8, -0.5, 0.3]]), 0.7, 2.0
    net = fw.MLP((3, 64, 1), "relu", C_W=2.0, lambda_b=0.3)
    found = fw.kink_correction(net, x, [[y]], algorithm=fw.GradientFlow(time), points=2048)
    (layer,), output = gated_layers(net, x)
    H, deviation = output.Theta.item(), math.sqrt(output.K.item())
    slowed = layer.Theta.item() ** 2 * layer.beta.item() ** 1.5 / (math.pi * math.sqrt(layer.K.item()))
    a = -y / deviation
    density = math.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    signed_square = deviation**2 * ((a**2 + 1) * (2 * ndtr(a) - 1) + 2 * a * density)
    exact = slowed * signed_square / H * math.exp(-H * time) * (time - (1 - math.exp(-H * time)) / H)
    value, stderr = (part.item() for part in found.coefficient)
    assert value == pytest.approx(exact, rel=0.01, abs=4 * stderr) and stderr < 0.01 * abs(exact)


def test_the_drift_by_other_neurons_is_the_tensor_B():
    """Phi_cbb' = n_l/n_{l-1} B_ccbb' <s' s'> beta at layers two and three of unequal widths, to 1e-8."""
    net = fw.MLP((3, 64, 96, 64, 1), "relu", 0.1, 1.7, 0.4, 1.2)
    both = np.concatenate([X, X_TEST])
    theory = fw.solve(net, both, tensors=("B",), method=fw.Tensors(tolerance=1e-9))
    layers, _ = gated_layers(net, both)
    walked = list(steps(net, first_layer(net, both), net.depth, 1e-12, bare=True))
    assert not layers[0].drift.any()
    for l in (2, 3):
        B = np.einsum("ccbd->cbd", theory.layer(l).B)
        drift = net.widths[l] / net.widths[l - 1] * B * walked[l - 1].moments.slope.value * layers[l - 1].beta
        np.testing.assert_allclose(layers[l - 1].drift, drift, rtol=0, atol=1e-8 * drift.max())


def test_descent_with_large_steps_is_not_flow():
    """At eta l_max = 0.8 the two are apart by many of their errors; small steps bring them together."""
    net = fw.MLP((3, 64, 1), "relu", 0.1, 1.7, 0.4, 1.2)
    largest = np.linalg.eigvalsh(fw.kernels(net, X).Theta)[-1]

    def of(algorithm):
        return fw.kink_correction(net, X, Y, X_TEST, algorithm=algorithm, points=256).coefficient

    large, small = of(fw.GradientDescent(0.8 / largest, 4)), of(fw.GradientDescent(0.08 / largest, 40))
    flow = of(fw.GradientFlow(3.2 / largest))

    def apart(one):
        return (np.abs(one.value - flow.value) / np.hypot(one.stderr, flow.stderr)).item()

    assert apart(large) > 5 and abs(small.value - flow.value) < 0.3 * abs(large.value - flow.value)


def test_leaky_slopes_and_their_mirror_image_agree():
    """-sigma(-z) has its slopes exchanged; with signs of all weights random nothing changes."""

    def of(activation):
        net = fw.MLP((3, 32, 48, 1), activation, C_W=1.7, lambda_b=0.0)
        descent = fw.GradientDescent(0.1, 6)
        return fw.kink_correction(net, X, Y, X_TEST, algorithm=descent, points=128).coefficient

    mirrored = fw.Activation(lambda z: jnp.where(z > 0, 0.2 * z, z), kinks=(0.0,))
    one, other = of("leaky_relu(0.2)"), of(mirrored)
    assert np.all(np.abs(one.value - other.value) < 4 * np.hypot(one.stderr, other.stderr))


def test_it_is_never_trusted_and_says_so():
    record = fw.kink_correction(
        fw.MLP((3, 64, 1), "relu", C_W=2.0), X, Y, algorithm=fw.GradientDescent(0.05, 3), points=16
    )
    assert record.verdict == "meaningless" and "first term of a slow series" in record.reading
    wide = fw.kink_correction(
        fw.MLP((3, 10**6, 1), "relu", C_W=2.0), X, Y, algorithm=fw.GradientDescent(0.05, 3), points=16
    )
    assert wide.verdict == "doubtful"
    np.testing.assert_array_equal(wide.coefficient.value, record.coefficient.value)  # the same neurons
    np.testing.assert_allclose(wide.mean.value, wide.infinite_width + wide.coefficient.value / 1e3)


def test_what_it_does_not_know_is_refused():
    relu, descent = fw.MLP((3, 8, 1), "relu"), fw.GradientDescent(0.05, 3)
    with refused("is not made of two straight lines with a kink at zero"):
        fw.kink_correction(fw.MLP((3, 8, 1), "tanh"), X, Y, algorithm=descent)
    with refused("net must have 1 to 3 hidden layers, got 4"):
        fw.kink_correction(fw.MLP((3, 8, 8, 8, 8, 1), "relu"), X, Y, algorithm=descent)
    with refused("is not followed from step to step"):
        fw.kink_correction(relu, X, Y, algorithm=fw.GradientDescent(0.05))
    with refused("two inputs are parallel or one is zero"):
        fw.kink_correction(relu, X, Y, 2 * X[:1], algorithm=descent)
    with refused("not with the orthogonal weights of this network"):
        fw.kink_correction(relu.replace(weights="orthogonal"), X, Y, algorithm=descent)
    with refused("fw.kink_correction has; use a smooth one such as gelu, swish or tanh, fw.extrapolate, or"):
        fw.predict(relu, X, Y, algorithm=descent)


# --- extrapolation in the width --------------------------------------------------------------------------


@pytest.mark.long
def test_networks_with_kinks_are_extrapolated_from_infinite_width():
    net = fw.MLP((3, 256, 1), "relu", C_W=2.0)
    descent = fw.GradientDescent(0.05, 4)
    wide = fw.extrapolate(net, X, Y, X_TEST, algorithm=descent, widths=(8, 12, 16, 24), members=60)
    assert isinstance(wide, fw.records.KinkedExtrapolation) and wide.freedom == 1
    assert wide.falls["mean"].orders[:3] == (0.5, 1.0, 1.5)
    assert np.all(wide.at(10**12).mean.stderr < wide.mean.stderr)
    infinite = fw.predict(net, X, Y, X_TEST, algorithm=descent, order=0)
    np.testing.assert_allclose(wide.at(2**52).mean.value, infinite.mean, atol=1e-6)
    with refused("are 3, but 3 powers that can be judged need 4"):
        fw.extrapolate(net, X, Y, X_TEST, algorithm=descent, widths=(8, 12, 16), members=16)


def test_half_powers_of_the_width_are_recovered_with_honest_errors():
    """Six powers of n^(-1/2) that grow by six; most pulls below one, nearly all below three."""
    rng, pulls, widths = np.random.default_rng(3), [], (64, 128, 256, 512)
    for _ in range(200):
        exact = rng.standard_normal((6, 4)) * 6.0 ** np.arange(6)[:, None]
        series = lambda n, exact=exact: (float(n) ** (-np.arange(1, 7) / 2)) @ exact  # noqa: E731
        estimates = [fw.Estimate(series(n) + 1e-3 * rng.standard_normal(4), np.full(4, 1e-3)) for n in widths]
        there = fall_of_powers(widths, estimates, *TRAINED).at(2048)
        pulls.append((there.value - series(2048)) / there.stderr)
    assert np.mean(np.abs(pulls) < 1) > 0.6 and np.mean(np.abs(pulls) < 3) > 0.97
