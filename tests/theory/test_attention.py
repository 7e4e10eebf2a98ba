"""Attention scaled by the root: averages over random scores, against exact ones for two positions."""

import dataclasses

import numpy as np
import pytest
from helpers import brute_force
from helpers.problems import refused

import finitewidth as fw

X = np.random.default_rng(4).standard_normal((4, 2, 3))
FIRST = {"C_b": 0.2, "C_W": 1.3, "lambda_b": 0.4, "lambda_W": 0.6}
ATTENTION = fw.SelfAttention(4, C_OV=1.2, C_b=0.1, sigma_QK=0.9, scaling="root", draws=256)


def network(attention=ATTENTION, end=None, positions: int = 2) -> fw.Network:
    """Its last layer only shows what comes in."""
    still = fw.Dense(1, lambda_b=0.0, lambda_W=0.0)
    return fw.Network((positions, 3), fw.Dense(4, **FIRST), attention, end or fw.Flatten(), still)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def exact_kernels(layer: fw.SelfAttention) -> tuple[np.ndarray, np.ndarray]:
    """K and Theta behind attention to two positions, between all sites, by averages of pairs of numbers.

    Attention of a site is (s, 1 - s) with the sigmoid s of the difference of its two scores, and this
    difference is Gaussian.
    """
    front = brute_force.behind([{"kind": "Dense", **FIRST}], brute_force.first_sites(X))
    K, Theta = front.K, front.Theta
    keys, moved = K, Theta
    if layer.positions is not None:
        keys = K + layer.positions.kernel((2,))[None, :, None, :]
        if layer.positions.mixing == "concatenate":
            keys, moved = keys / 2, moved / 2
    differences = layer.sigma_QK**2 * keys * bent(keys)
    flat = differences.reshape(8, 8)
    both = brute_force.averages(sigmoid, flat, np.diag(flat)).reshape(K.shape)
    slopes = brute_force.averages(lambda z: sigmoid(z) * sigmoid(-z), flat, np.diag(flat)).reshape(K.shape)

    def attended(M):
        corners = M[:, 1:, :, 1:] + (M[:, :1, :, 1:] + M[:, 1:, :, :1] - 2 * M[:, 1:, :, 1:]) / 2
        return corners + bent(M) * both

    scores = (moved + 2 * keys) * bent(keys) + keys * bent(moved)
    learned = attended(Theta + 2 * K) + layer.sigma_QK**2 * bent(K) * slopes * scores
    return layer.C_b + layer.C_OV * attended(K), layer.C_b + layer.C_OV * learned


def bent(M: np.ndarray) -> np.ndarray:
    """M_11 - M_12 - M_21 + M_22 of positions."""
    return M[:, :1, :, :1] - M[:, :1, :, 1:] - M[:, 1:, :, :1] + M[:, 1:, :, 1:]


@pytest.mark.parametrize("mixing", [None, "sum", "concatenate"])
@pytest.mark.parametrize("end", [fw.Flatten(), fw.GlobalAveragePool()], ids=["flatten", "average"])
def test_two_positions_have_exact_averages(mixing, end):
    """Within four standard errors, which are below two percent."""
    layer = dataclasses.replace(ATTENTION, positions=mixing and fw.Positions(mixing, 0.7, 1.3), draws=4096)
    kernels = fw.kernels(network(layer, end), X)
    assert 0 < kernels.sampling_error < 0.02
    same = np.eye(2)[None, :, None, :] / 2 if end == fw.Flatten() else np.full((1, 2, 1, 2), 0.25)
    for value, exact in zip((kernels.K, kernels.Theta), exact_kernels(layer), strict=True):
        most = 4 * kernels.sampling_error * np.abs(exact).max()
        np.testing.assert_allclose(value, np.sum(exact * same, axis=(1, 3)), atol=most, rtol=0)


def test_standard_error_falls_with_the_root_of_draws_and_is_honest():
    """Kernels of eight keys scatter by no more than it says, and by a tenth of it at least."""
    few = [fw.kernels(network(dataclasses.replace(ATTENTION, key=key)), X) for key in range(8)]
    many = fw.kernels(network(dataclasses.replace(ATTENTION, draws=4096)), X)
    assert few[0].sampling_error / many.sampling_error == pytest.approx(4, rel=0.2)
    for name in ("K", "Theta"):
        values = np.array([getattr(one, name) for one in few])
        scatter = values.std(axis=0, ddof=1).max() / np.abs(values).max()
        assert 0.1 < scatter / few[0].sampling_error < 1.5


def test_attention_without_scores_is_an_average_without_error():
    still = fw.kernels(network(dataclasses.replace(ATTENTION, sigma_QK=0.0)), X)
    linear = fw.kernels(network(dataclasses.replace(ATTENTION, sigma_QK=0.0, scaling="linear")), X)
    np.testing.assert_allclose(still.K, linear.K, rtol=1e-12)
    np.testing.assert_allclose(still.Theta, linear.Theta, rtol=1e-12)
    assert still.sampling_error < 1e-7 and linear.sampling_error == 0


def test_averages_depend_on_their_pair_alone(tmp_path):
    """Not on blocks, on the order of a pair or on panels; equal inputs have equal kernels."""
    inputs = np.random.default_rng(5).standard_normal((5, 3, 3))
    inputs[4] = inputs[1]
    block = fw.Residual(dataclasses.replace(ATTENTION, positions=fw.Positions(length=1.0)), gamma=0.8)
    net = network(block, positions=3)
    whole = fw.kernels(net, inputs)
    part, turned = fw.kernels(net, inputs[:2], inputs[2:4]), fw.kernels(net, inputs[2:4], inputs[:2])
    panels = fw.kernels(net, inputs, run=fw.Run(store=tmp_path / "panels.zarr"))
    for name in ("K", "Theta"):
        matrix = getattr(whole, name)
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_allclose(getattr(part, name), matrix[:2, 2:4], rtol=1e-11)
        np.testing.assert_allclose(getattr(turned, name), matrix[2:4, :2], rtol=1e-11)
        np.testing.assert_allclose(matrix[4], matrix[1], rtol=1e-7)
        np.testing.assert_allclose(getattr(panels, name), matrix, rtol=1e-11)
        lowest = np.linalg.eigvalsh(matrix)[0]
        assert lowest > -4 * whole.sampling_error * np.abs(matrix).max()
    assert panels.sampling_error == pytest.approx(whole.sampling_error)
    whole.save(tmp_path / "kernels.npz")
    again = fw.records.Kernels.load(tmp_path / "kernels.npz")
    assert again.net == net and again.sampling_error == whole.sampling_error


def test_everything_at_infinite_width_takes_random_attention():
    norm = fw.LayerNorm(lambda_gain=0.5)
    net = fw.Network((2, 3), fw.Dense(4), ATTENTION, norm, "relu", fw.Flatten(), fw.Dense(1))
    assert fw.Network.from_toml(net.to_toml()) == net and "draws" in net.to_toml()
    assert "draws" not in network(dataclasses.replace(ATTENTION, draws=1024)).to_toml()
    prediction = fw.predict(net, X[:3], np.ones((3, 1)), X[3:], order=0)
    np.testing.assert_array_equal(prediction.mean, fw.fit(net, X[:3], np.ones((3, 1))).mean(X[3:]))


def test_heads_and_draws_are_checked():
    with refused("heads must divide width=4, got 3"):
        dataclasses.replace(ATTENTION, heads=3)
    with refused("draws must be a whole number of at least 2, got 1"):
        dataclasses.replace(ATTENTION, draws=1)
    with refused("key must be a whole number of at least 0, got -1"):
        dataclasses.replace(ATTENTION, key=-1)
