"""How deep, how wide, with which skips: `fw.critical.aspect`; audit and rates of residual networks.

Criteria: closed forms 1e-12, the audit 1e-9, laws of deep networks as stated.
"""

import math

import numpy as np
import pytest
from helpers.command_line import call
from helpers.problems import also_long, refused

import finitewidth as fw
from finitewidth.critical.aspect_ratio import DEEPEST, scale_invariant_vertex
from finitewidth.theory.one_input_with_skips import single_stream

Dense, Residual = fw.Dense, fw.Residual


def residual(activation, depth, n, gamma, inputs=8):
    """Critical, with a skip into every layer but the first."""
    return fw.Network.critical(inputs, Dense(n), *[Residual(activation, Dense(n), gamma=gamma)] * (depth - 1))


@pytest.mark.parametrize("activation, gamma", [("tanh", -0.8), *also_long(("gelu", 0.9))])
def test_the_audit_trusts_the_depth_and_doubts_what_is_deeper(activation, gamma):
    advice = fw.critical.aspect(activation, width=12, gamma=gamma)
    verdict = fw.audit(residual(activation, advice.depth, 12, gamma))
    assert verdict.healthy and verdict.aspect_verdict.startswith("trusted")
    assert verdict.report.expansion_parameter == pytest.approx(advice.ratio, rel=1e-9)
    deeper = fw.audit(residual(activation, advice.depth + 3, 12, gamma))
    assert not deeper.healthy and advice.depth <= deeper.deepest < advice.depth + 3
    assert deeper.aspect_verdict.startswith("doubtful")


def test_each_of_three_answers_gives_the_others_back():
    shape = fw.critical.aspect("tanh", width=20, depth=25)
    assert 0 < shape.gamma < 1 and 0.995 * 0.3 <= shape.ratio <= 0.3
    assert (shape.C_b, shape.C_W) == (0.0, pytest.approx(1 - shape.gamma**2))
    assert fw.critical.aspect("tanh", depth=25, gamma=shape.gamma).width == 20
    assert fw.critical.aspect("tanh", width=20, gamma=shape.gamma).depth in (25, 26)
    assert fw.critical.aspect("tanh", width=4000, depth=25).gamma == 0.0  # wide enough without skips
    assert "gamma = 0.8" in shape.explanation and "C_W = 0.2" in shape.explanation


def test_twice_as_wide_is_twice_as_deep():
    depths = [fw.critical.aspect("linear", width=n, gamma=0.6, allowed=0.1).depth - 1 for n in (200, 400)]
    assert depths[1] == 2 * depths[0] == 2 * math.floor(20 / (2 * (1 - 0.6**4)))


@pytest.mark.long
def test_usable_depth_of_odd_activations_grows_as_the_law_says():
    """1/(1 - gamma^4), with corrections of log(l)/l: 10 per cent at a hundred layers."""
    depths = {gamma: fw.critical.aspect("tanh", width=250, gamma=gamma).depth for gamma in (0.3, 0.7)}
    assert depths[0.7] / depths[0.3] == pytest.approx((1 - 0.3**4) / (1 - 0.7**4), rel=0.1)


def test_short_skips_of_relu_and_gelu_make_networks_fluctuate_more():
    """Memory: noise of neighbouring layers adds up before it is averaged out."""
    for name in ("relu", "gelu"):
        none, short, long = (
            fw.critical.aspect(name, depth=12, gamma=gamma).width for gamma in (0.0, 0.4, 0.95)
        )
        assert long < none < short


def test_relu_networks_with_skips_follow_the_closed_form():
    """Sums over pairs of layers; without skips 5 (l - 1), linear networks 2 (1 - gamma^4) (l - 1)."""
    np.testing.assert_allclose(scale_invariant_vertex(1.0, 0.0, 0.0, 6), 5.0 * np.arange(6), rtol=1e-12)
    linear = single_stream(residual("linear", 6, 9, 0.7), 1.0, 1e-12).layers
    exact = scale_invariant_vertex(1.0, 1.0, 0.7, 6)
    np.testing.assert_allclose(linear["V"] / linear["K"] ** 2, exact, rtol=1e-12, atol=1e-12)
    for a_minus, gamma in ((0.0, 0.7), (0.3, -0.5)):
        pairs = gamma ** np.abs(np.subtract.outer(np.arange(7), np.arange(7)))
        h = (2 / np.pi) * ((1 + 2 * pairs**2) * np.arcsin(pairs) + 3 * pairs * np.sqrt(1 - pairs**2))
        kappa = ((1 - a_minus**2) / (1 + a_minus**2)) ** 2
        stated = 2 * (1 - gamma**4) * 7 + kappa * (1 - gamma**2) ** 2 * h.sum()
        assert scale_invariant_vertex(1.0, a_minus, gamma, 8)[-1] == pytest.approx(stated, rel=1e-12)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(width=10), "exactly two of width, depth and gamma"),
        (dict(width=10, depth=5, gamma=0.5), "exactly two of width, depth and gamma"),
        (dict(width=0, depth=5), "width must be a whole number of at least 1, got 0"),
        (dict(width=10, depth=2.5), "depth must be a whole number"),
        (dict(width=10, depth=DEEPEST + 1), f"depth must be at most {DEEPEST} layers"),
        (dict(width=10, gamma=1.0), "gamma must be a number between -1 and 1, got 1.0"),
        (dict(width=10, gamma=math.nan), "gamma must be a number"),
        (dict(width=10, gamma=0.5, allowed=0.0), "allowed must be a finite number above 0"),
        (dict(width=10, gamma=0.5, input_scale=-1), "input_scale must be a finite number above 0"),
        (dict(width=1, depth=4, allowed=0.01), "no gamma below 1 brings the largest ratio down"),
    ],
)
def test_what_cannot_be_answered_is_refused(options, message):
    with refused(message):
        fw.critical.aspect("tanh", **options)


@pytest.mark.parametrize("name, message", [("sigmoid", "no critical point"), ("elu", "'elu' has a kink")])
def test_activations_without_an_answer_are_refused(name, message):
    with refused(message):
        fw.critical.aspect(name, width=10, gamma=0.5)


# --- the audit and the command ---------------------------------------------------------------------------


def test_the_audit_of_a_residual_network_says_how_to_repair_it(capsys, tmp_path):
    net = residual("tanh", 24, 12, 0.5)
    verdict = fw.audit(net)
    assert not verdict.healthy and not verdict.findings and verdict.deepest < 24
    (advice,) = verdict.advice
    better = fw.critical.aspect("tanh", width=12, depth=24)
    assert (
        "times wider" in advice
        and f"gamma = {better.gamma:.3g} and C_b = 0, C_W = {better.C_W:.3g}" in advice
    )
    assert fw.audit(residual("tanh", 24, 12, better.gamma)).healthy
    (tmp_path / "net.toml").write_text(net.to_toml(), encoding="utf-8")
    assert call("audit", tmp_path / "net.toml") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"or give it skips with gamma = {better.gamma:.3g}" in out and "trusted up to layer" in out


def test_a_residual_network_is_judged_by_its_own_tensors():
    net = fw.Network.critical(8, Dense(64), *[Residual("gelu", Dense(64), gamma=0.9)] * 8, "gelu", Dense(1))
    verdict = fw.audit(net)
    exact = fw.solve(net, np.ones((1, 8))).output
    V = next(row for row in verdict.report.rows if row.name == "V")
    assert V.ratio == pytest.approx((exact.V / exact.K**2).item() / 64, rel=1e-9)


@pytest.mark.parametrize(
    "layers, reason",
    [
        (
            [Dense(9), *[Residual("gelu", Dense(9), "gelu", Dense(9), gamma=0.9)] * 12, "gelu", Dense(1)],
            "take long",
        ),
        ([Dense(9), "gelu", fw.Dropout(0.1), Dense(1)], "Dropout"),
    ],
)
def test_what_the_width_is_not_judged_for_is_said(layers, reason):
    verdict = fw.audit(fw.Network(8, *layers))
    assert verdict.report is None and reason in verdict.report_missing


# --- learning rates --------------------------------------------------------------------------------------


@pytest.mark.long
def test_learning_rates_of_weights_fall_by_one_minus_gamma_squared_for_odd_activations():
    """Equal shares in the NTK; corrections of log(l)/l are below 5 per cent at 400 layers."""
    nets = [residual("tanh", 400, 1, gamma, inputs=1) for gamma in (0.0, 0.8)]
    plain, skipped = (net.ladder.dense[-1] for net in nets)
    assert skipped.lambda_b / plain.lambda_b == pytest.approx(1.0, rel=1e-9)
    assert skipped.lambda_W / plain.lambda_W == pytest.approx(1 - 0.8**2, rel=0.05)
    for net in nets:
        assert fw.kernels(net, [[1.0]]).Theta.item() == pytest.approx(2.0, rel=1e-9)
