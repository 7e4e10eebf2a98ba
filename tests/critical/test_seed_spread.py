"""How much networks of different seeds differ, and what sets it."""

import numpy as np
import pytest
from helpers.close import assert_close

import finitewidth as fw


def transformer(n: int, heads: int) -> fw.Network:
    attention = fw.SelfAttention(n, heads=heads, scaling="root", draws=256)
    layers = fw.Dense(n), fw.LayerNorm(), attention, fw.LayerNorm(), fw.GlobalAveragePool(), fw.Dense(2)
    return fw.Network((3, 2), *layers)


def test_layers_state_the_spread_of_kernel_and_ntk():
    """Deep linear networks: V = 2 (l - 1) K^2; the NTK by A + 2 B."""
    net = fw.MLP((3, 50, 40, 2), "linear")
    first, last = fw.audit(net).spread.layers
    theory = fw.solve(net, np.ones((1, 3))).output
    assert (first.layer, last.layer) == (2, 3)
    assert_close(first.kernel, np.sqrt(2 / 50))
    assert_close(last.kernel, np.sqrt(2 / 40 + 2 / 50))
    assert_close(last.ntk, np.sqrt((theory.A + 2 * theory.B).item() / 40) / theory.Theta.item())


def test_with_few_heads_the_remedy_is_heads():
    spread = fw.audit(transformer(400, 4)).spread
    assert spread.share_of_heads > 0.8 and spread.heads == 4
    assert "four times the heads halve it" in spread.remedy
    more = fw.audit(transformer(400, 100)).spread
    assert more.share_of_heads < 0.8 and more.layers[-1].kernel < spread.layers[-1].kernel / 2
    assert "heads (100), the rest by width and depth" in more.sentences[1]


def test_deep_networks_without_norms_are_told_what_a_norm_saves():
    hidden = fw.Dense(64, C_W=2.0)
    spread = fw.audit(fw.MLP((8, *[64] * 8, 1), "relu", C_W=2.0)).spread
    normed = fw.audit(fw.Network(8, *[hidden, fw.LayerNorm(), "relu"] * 8, fw.Dense(1))).spread
    assert spread.with_norms == pytest.approx(normed.layers[-1].kernel, rel=1e-6)
    assert "fw.LayerNorm() before each activation" in spread.remedy
    assert normed.layers[-1].ntk > 3 * normed.layers[-1].kernel  # the NTK goes on growing
