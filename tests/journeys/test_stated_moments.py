"""Moments of untrained networks as the pages and tooltips state them, against networks written out in numpy.

With one hidden layer the tensors of order 1/n are exact at any width, so that nothing but sampling remains.
"""

import numpy as np
import pytest
from helpers.examples import example
from helpers.paths import ROOT

import finitewidth as fw

X = np.array([[0.9, -0.6]])
PRIOR = dict(C_b=0.1, C_W=1.5, lambda_b=0.5, lambda_W=2.0)
SHALLOW = fw.MLP((2, 4, 2), "tanh", **PRIOR)  # two outputs
DEEP = fw.MLP((2, 64, 64, 64, 1), "tanh", **PRIOR)


def drawn(net: fw.MLP, members: int, rng: np.random.Generator):
    """Outputs (members, n_L) and NTKs (members, n_L, n_L) of one input, by backpropagation."""
    activity = [np.broadcast_to(X, (members, 2))]
    weights, slopes = [], []
    for fan_in, width in zip(net.widths[:-1], net.widths[1:], strict=True):
        spread = np.sqrt(PRIOR["C_W"] / fan_in)
        weights.append(spread * rng.standard_normal((members, width, fan_in)))
        z = np.einsum("mij,mj->mi", weights[-1], activity[-1])
        z = z + np.sqrt(PRIOR["C_b"]) * rng.standard_normal((members, width))
        activity.append(np.tanh(z))
        slopes.append(1 - activity[-1] ** 2)
    backward = np.broadcast_to(np.eye(net.widths[-1]), (members, net.widths[-1], net.widths[-1]))
    H = np.zeros_like(backward)
    for layer in reversed(range(len(weights))):
        rate = PRIOR["lambda_b"] + PRIOR["lambda_W"] * np.mean(activity[layer] ** 2, axis=1)
        H = H + rate[:, None, None] * (backward @ backward.transpose(0, 2, 1))
        if layer:
            backward = (backward @ weights[layer]) * slopes[layer - 1][:, None, :]
    return z, H


def pull(stated: float, values: np.ndarray) -> float:
    """(stated - mean) / standard error."""
    return abs(stated - values.mean()) / (values.std(ddof=1) / np.sqrt(len(values)))


@pytest.fixture(scope="module")
def shallow():
    """The last layer by theory, and outputs and NTKs of real networks."""
    return fw.solve(SHALLOW, X, tensors=("V", "A", "B", "D", "F")).output, *drawn(
        SHALLOW, 200_000, np.random.default_rng(5)
    )


def test_the_fourth_moment_of_an_output_exceeds_that_of_a_gaussian_by_three_V_over_n(shallow):
    output, z, _ = shallow
    K, V = output.K.item(), output.V.item() / output.n
    assert pull(3 * V, z[:, 0] ** 4 - 3 * K**2) < 4
    assert pull(V, z[:, 0] ** 4 - 3 * K**2) > 8


def test_squares_of_two_outputs_have_the_covariance_V_over_n(shallow):
    output, z, _ = shallow
    K = output.K.item()
    assert pull(output.V.item() / output.n, (z[:, 0] ** 2 - K) * (z[:, 1] ** 2 - K)) < 4


def test_the_ntk_of_one_output_has_the_variance_A_plus_two_B_over_n(shallow):
    output, _, H = shallow
    A, B = output.A.item() / output.n, output.B.item() / output.n
    change = H - output.Theta.item() * np.eye(2)
    assert pull(A + 2 * B, change[:, 0, 0] ** 2) < 4
    assert pull(A, change[:, 0, 0] ** 2) > 8


def test_the_ntk_of_an_output_and_its_square_have_the_covariance_D_plus_two_F_over_n(shallow):
    output, z, H = shallow
    D, F = output.D.item() / output.n, output.F.item() / output.n
    products = (H[:, 0, 0] - output.Theta.item()) * (z[:, 0] ** 2 - output.K.item())
    assert pull(D + 2 * F, products) < 4
    assert pull(D, products) > 8


def test_A_over_n_is_the_covariance_of_two_ntks_and_B_over_n_the_variance_between_two_outputs(shallow):
    output, _, H = shallow
    change = H - output.Theta.item() * np.eye(2)
    assert pull(output.A.item() / output.n, change[:, 0, 0] * change[:, 1, 1]) < 4
    assert pull(output.B.item() / output.n, change[:, 0, 1] ** 2) < 4


def test_the_ntk_of_a_deep_network_varies_by_A_plus_two_B_over_n():
    output = fw.solve(DEEP, X, tensors=("A", "B")).output
    H = drawn(DEEP, 1000, np.random.default_rng(6))[1][:, 0, 0]
    A, B = output.A.item() / output.n, output.B.item() / output.n
    squares = (H - H.mean()) ** 2
    assert pull(A + 2 * B, squares) < 4
    assert pull(A, squares) > 8


def test_linear_networks_have_the_fourth_moment_that_the_page_on_uncertainty_states():
    """(1 + 2/n)^l after l hidden layers, of which order 1/n has 1 + 2 l/n."""
    width, hidden, members = 6, 3, 200_000
    rng = np.random.default_rng(7)
    z = np.broadcast_to(X, (members, 2))
    for fan_in, fan_out in zip((2, *[width] * hidden), (*[width] * hidden, 1), strict=True):
        z = np.einsum("mij,mj->mi", rng.standard_normal((members, fan_out, fan_in)) / np.sqrt(fan_in), z)
    net = fw.MLP((2, *[width] * hidden, 1), "linear", C_b=0.0, C_W=1.0)
    output = fw.solve(net, X, tensors=("V",)).output
    K = output.K.item()
    assert output.V.item() / (output.n * K**2) == pytest.approx(2 * hidden / width, rel=1e-12)
    assert pull((1 + 2 / width) ** hidden, z[:, 0] ** 4 / (3 * K**2)) < 4
    assert pull(1 + 2 * hidden / width, z[:, 0] ** 4 / (3 * K**2)) > 4


def test_susceptibilities_multiply_what_the_pages_say():
    """Differences of squared norms (parallel), and squares of differences of direction (perpendicular)."""
    net = fw.MLP((2, *[1] * 9), "tanh", C_b=0.1, C_W=1.4)
    x, small = np.array([1.0, 0.7]), 1e-4
    turned = np.array([[np.cos(small), -np.sin(small)], [np.sin(small), np.cos(small)]]) @ x
    theory = fw.solve(net, np.stack([x, (1 + small) * x, turned]), order=0)
    K = np.array([theory.layer(l).K for l in range(1, 10)])
    longer = K[:, 1, 1] - K[:, 0, 0]
    apart = K[:, 0, 0] + K[:, 2, 2] - 2 * K[:, 0, 2]
    chi = [fw.critical.susceptibilities("tanh", K=float(k), C_W=1.4) for k in K[:-1, 0, 0]]
    np.testing.assert_allclose(longer[1:] / longer[:-1], [one.parallel for one in chi], rtol=1e-3)
    np.testing.assert_allclose(apart[1:] / apart[:-1], [one.perpendicular for one in chi], rtol=1e-3)


@pytest.mark.long
def test_at_width_16_networks_learn_at_speeds_as_far_apart_as_the_pictures_say(monkeypatch):
    """docs/ideas.md: the NTK of the fastest tenth is more than twice that of the slowest tenth."""
    monkeypatch.syspath_prepend(ROOT / "examples")  # for the options that scripts share
    script = example("ntk_fluctuation")
    slowest, fastest = np.quantile(script.sampled_ntks(script.network(16), 1000), [0.1, 0.9])
    assert fastest > 2 * slowest
