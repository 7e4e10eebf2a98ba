"""Attention at order 1/n: V and G1 behind heads that are drawn at their true number and width."""

import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import refused
from helpers.widths import pulls_at_infinity

import finitewidth as fw

rng = np.random.default_rng(5)
X = rng.standard_normal((2, 3, 2)) * np.array([1.4, 0.8])[:, None, None]
SCALES = {"C_b": 0.1, "C_W": 1.7}
END = fw.GlobalAveragePool(), fw.Dense(2)


def attention(width=20, **options) -> fw.SelfAttention:
    return fw.SelfAttention(width, **{"C_OV": 1.3, "heads": 5, "scaling": "root", "draws": 64} | options)


@pytest.mark.parametrize("scaling", ["root", "linear"])
def test_attention_with_zero_scores_averages_positions(scaling):
    """Then values and outputs are two linear layers behind a pool, of 5 times 4 components between them."""
    norm = fw.LayerNorm(0.05)
    attend = attention(sigma_QK=0.0, head_width=4, scaling=scaling)
    one = fw.solve(fw.Network((3, 2), fw.Dense(24, **SCALES), norm, attend, *END), X).layer(2)
    values = fw.GlobalAveragePool(), fw.Dense(20), fw.Dense(7, C_W=1.3)
    other = fw.solve(fw.Network((3, 2), fw.Dense(24, **SCALES), norm, *values), X).output
    assert (one.n, other.n) == (24, 20)
    assert_close(one.K, other.K, 1e-9)
    assert_close(one.V / 24, other.V / 20, 1e-9)
    assert_close(one.G1 / 24, other.G1 / 20, 1e-9, scale=one.K.max())
    assert one.stderr("V").max() < 1e-12


def test_one_position_sees_itself():
    """Whatever its scores, attention is a linear layer there."""
    one = fw.Network((1, 2), fw.Dense(24, **SCALES), fw.RMSNorm(0.05), attention(heads=5), *END)
    other = fw.Network((1, 2), fw.Dense(24, **SCALES), fw.RMSNorm(0.05), attention(sigma_QK=0.0), *END)
    first, second = (fw.solve(net, X[:, :1]).output for net in (one, other))
    assert_close(first.V, second.V, 1e-9)


def test_with_root_scaling_heads_and_not_width_set_the_spread():
    """Ten times the width at four heads leaves V/n almost as it is; ten times the heads takes most of it."""

    def spread(n, heads):
        attend = attention(n, heads=heads, draws=512)
        net = fw.Network((3, 2), fw.Dense(n, **SCALES), fw.LayerNorm(), attend, *END)
        layer = fw.solve(net, X[:1]).layer(2)
        return layer.V.item() / layer.n / layer.K.item() ** 2

    narrow, wide, many = spread(640, 4), spread(6400, 4), spread(6400, 40)
    assert 0.85 * narrow < wide < narrow
    assert 0.08 * wide < many < 0.15 * wide


def test_infinite_width_is_the_limit_of_many_components():
    attend = attention(heads=2, head_width=400, draws=1024)
    net = fw.Network((3, 2), fw.Dense(24), fw.LayerNorm(), attend, *END)
    layer, wide = fw.solve(net, X).layer(2), fw.kernels(net, X, layer=2)
    allowed = 4 * (layer.stderr("K").max() + wide.sampling_error * wide.K.max())
    assert np.abs(layer.K - wide.K).max() < allowed < 0.15 * wide.K.max()
    assert (layer.stderr("K") > 0).all()
    assert_close(layer.Theta, wide.Theta, 1e-12)


def test_a_saved_theory_keeps_its_standard_errors(tmp_path):
    net = fw.Network((3, 2), fw.Dense(6), attention(6, heads=2), *END)
    theory = fw.solve(net, X[:1], layers=(2, 3))
    theory.save(tmp_path / "theory.zarr")
    again = fw.load(tmp_path / "theory.zarr").output
    assert_close(again.stderr("V"), theory.output.stderr("V"), 1e-15)
    assert theory.output.uncertainty("V").shape == (1,) * 4
    assert {row.name for row in theory.report().rows} == {"G1", "V"}
    assert fw.solve(net, X[:1]).output.V == theory.output.V  # the same key, the same heads


def test_what_is_not_known_is_refused_by_name():
    net = fw.Network((3, 2), fw.Dense(6), attention(6, heads=2), *END)
    with refused("A behind fw.SelfAttention is not known at order 1/n; K, G1 and V are"):
        fw.solve(net, X, tensors=("A",))
    positions = attention(6, heads=2, positions=fw.Positions())
    with refused("order 1/n does not know fw.SelfAttention with random features of positions"):
        fw.solve(fw.Network((3, 2), fw.Dense(6), positions, *END), X)
    with refused("heads must divide width=6, got 4; change one, or give head_width"):
        attention(6, heads=4)
    assert attention(6, heads=4, head_width=3).components == 3


def transformer(n, scaling):
    """Two blocks of attention and of a perceptron, heads of four components."""
    heads = attention(n, heads=n // 4, scaling=scaling, draws=1024)
    block = (
        fw.Residual(fw.LayerNorm(0.05), heads),
        fw.Residual(fw.LayerNorm(0.05), fw.Dense(2 * n, **SCALES), "gelu", fw.Dense(n, **SCALES)),
    )
    return fw.Network((3, 2), fw.Dense(n, **SCALES), *block * 2, fw.LayerNorm(0.05), *END)


@pytest.mark.long
@pytest.mark.parametrize("scaling", ["root", "linear"])
def test_transformers_of_two_blocks_have_this_spread(scaling):
    """Widths 24 to 96, terms to 1/n^2, fixed beforehand: G1 and V, no pull above 4."""
    found = pulls_at_infinity(lambda n: transformer(n, scaling), X[:1], (24, 36, 56, 96), 6000, ("G", "V"))
    assert max(found.values()) < 4, found
