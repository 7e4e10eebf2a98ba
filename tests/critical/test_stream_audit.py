"""The audit of networks beyond dense layers, and real networks beside it.

Criteria: what explodes or vanishes is found where closed forms put it; sampled networks by pulls below 4.
"""

import json
import math

import numpy as np
import pytest
from helpers.command_line import call
from helpers.problems import refused

import finitewidth as fw
from finitewidth.critical.architectures.leak import leak
from finitewidth.critical.architectures.one_signal import Size, propagate
from finitewidth.critical.findings import LOST

Dense, Conv, Residual, LayerNorm = fw.Dense, fw.Conv, fw.Residual, fw.LayerNorm


def residual(activation="relu", blocks=20, gamma=1.0, **options):
    block = Residual(activation, Dense(16, **options), gamma=gamma)
    return fw.Network(8, Dense(16), *[block] * blocks, activation, Dense(1))


def post_norm(blocks):
    block = Residual("tanh", Dense(9, C_W=30.0)), LayerNorm()
    return fw.Network(8, Dense(9), LayerNorm(), *block * blocks, Dense(1))


def convolutions(C_W, padding="same"):
    layers = [Conv(4, C_W=C_W, padding=padding), "relu"] * 32
    return fw.Network((4, 4, 1), *layers, fw.Flatten(), Dense(1))


RHO = leak(Conv(4).axes((4, 4, 1)))  # 0.76


def attention(*, skip):
    layer = [Residual(LayerNorm(), fw.SelfAttention(6, C_OV=0.1))] if skip else [fw.SelfAttention(6)]
    return fw.Network((5, 3), Dense(6), *layer * 8, LayerNorm(), fw.GlobalAveragePool(), Dense(1))


VANISHING = {("signal", "vanishes"), ("gradient", "vanishes")}
SEPARATING = {("nearby inputs", "separate"), ("gradient", "explodes")}
CASES = {
    "gamma 1": (residual(), {("signal", "explodes"), ("gradient", "explodes")}),
    "gamma 1, small weights": (residual(C_W=0.1), set()),
    "ordered": (residual("tanh", gamma=0.5, C_W=0.2), VANISHING),
    "chaotic": (residual("tanh", gamma=0.5, C_W=8), SEPARATING),
    "critical": (residual("tanh", gamma=0.5, C_W=0.75), set()),
    "post-norm": (post_norm(60), SEPARATING),
    "post-norm, fewer": (post_norm(6), set()),
    "zero padding": (convolutions(2.0), VANISHING),
    "zero padding, repaired": (convolutions(2 / RHO), set()),
    "circular": (convolutions(2.0, padding="circular"), set()),
    "attention": (attention(skip=False), {("positions", "merge")}),
    "attention with a skip": (attention(skip=True), set()),
}


LONG = ("attention with a skip",)  # whose heads are drawn


@pytest.mark.parametrize(
    "net, expected",
    [pytest.param(*case, marks=pytest.mark.long if name in LONG else ()) for name, case in CASES.items()],
    ids=CASES,
)
def test_what_explodes_or_vanishes_is_found(net, expected):
    verdict = fw.audit(net)
    assert {(finding.what, finding.how) for finding in verdict.findings} == expected
    assert bool(verdict.advice) == (not verdict.healthy) and not (verdict.healthy and expected)


def test_layer_and_length_of_a_loss_are_those_of_the_closed_form():
    """K = 1.5^l behind l blocks, so a factor 1000 is passed at the block after log 1000 / log 1.5."""
    signal, gradient = fw.audit(residual()).findings
    blocks = math.ceil(math.log(LOST) / math.log(1.5))
    assert (signal.layer, gradient.layer) == (1 + blocks, 21 - blocks)
    assert signal.correlation_length == pytest.approx(1 / math.log(1.5), rel=1e-9)
    length = fw.audit(convolutions(2.0)).correlation_length_perp
    assert length == pytest.approx(-1 / math.log(RHO), rel=1e-4)


def test_powers_of_the_depth_are_no_loss():
    """A pre-norm stream whose kernel and separations grow by powers, beyond a factor 1000."""
    body = (LayerNorm(), Dense(6, C_W=6.0), "tanh", Dense(6, C_W=60.0))
    net = fw.Network(8, Dense(6), *[Residual(*body)] * 30, LayerNorm(), Dense(1))
    verdict = fw.audit(net)
    assert verdict.path.on_stream.signal.max() > LOST and not verdict.findings


def test_a_kernel_beyond_double_precision_is_a_finding():
    (finding,) = fw.audit(residual(C_W=1e30)).findings
    assert str(finding).startswith("the signal explodes from layer 2 on (beyond double precision")


def test_layers_inside_bodies_are_counted_and_the_stream_steps_over_them():
    block = Residual("tanh", Dense(9), "tanh", Dense(16, C_W=0.3))
    net = fw.Network(8, Dense(16), *[block] * 3, "relu", Dense(1))
    path = fw.audit(net).path
    assert path.stream == (1, 3, 5, 7, 8) and len(path.K) == 8
    way = propagate(net.layers[:3], Size(1.0), (8,))
    assert path.K[4] == pytest.approx(way.size.square, rel=1e-8)
    assert np.isnan(path.perpendicular[[1, 3, 5, 7]]).all()
    step = propagate(net.layers[1:2], Size(float(path.K[0])), (16,))
    assert path.perpendicular[0] == pytest.approx(step.chi_perp, rel=1e-8)
    assert path.parallel[0] == pytest.approx(step.size.change, rel=1e-3)  # a difference of a thousandth


def test_one_signal_is_the_input_of_the_theory():
    """Without positions the scalar way is exact, norms and shortcuts included."""
    body = Residual(LayerNorm(), "gelu", Dense(7, C_b=0.1), gamma=0.7, shortcut=[Dense(7, C_W=1.3)])
    net = fw.Network(8, Dense(6, C_b=0.2), body, Residual(Dense(5), "tanh", Dense(7)), "swish", Dense(1))
    way, X = propagate(net.layers, Size(0.8), (8,)), np.full((1, 8), math.sqrt(0.8))
    contributions = []
    way.backward(1.0, contributions)
    kernels = fw.kernels(net, X)
    assert way.size.square == pytest.approx(kernels.K.item(), rel=1e-8)
    total = sum(share.of_biases + share.of_weights for share in contributions)
    assert total == pytest.approx(kernels.Theta.item(), rel=1e-8)


def test_steps_say_what_was_set_and_whether_it_is_critical():
    layers = (
        Dense(9),
        *[Residual("relu", Dense(9), "relu", Dense(9), gamma=0.6)] * 4,
        LayerNorm(),
        "tanh",
        Dense(1),
    )
    steps = fw.audit(fw.Network.critical(8, *layers)).steps
    assert steps[0] == "layer 1: C_b = 0, C_W = 2; the kernel starts at K = 2"
    assert steps[1] == "layers 2, 4, 6, 8 (inside a residual block, after relu): C_b = 0, C_W = 2"
    expected = "layers 3, 5, 7, 9 (residual, gamma = 0.6, after relu): C_b = 0, C_W = 1.28; critical at K = 2"
    assert steps[2] == expected
    assert steps[3].startswith("layer 10 (after norm, tanh): C_b = 0.15096")
    grows = fw.audit(residual(blocks=3)).steps[1]
    assert grows.endswith("each step multiplies signals by 1.5 and keeps angles, up to K = 3.375")


def test_advice_is_the_critical_version_or_why_there_is_none():
    advice = fw.audit(residual()).advice[0]
    assert "layers 2 to 21 (residual, gamma = 1, after relu) to C_b = 0, C_W = 0.1;" in advice
    assert "SelfAttention averages positions" in fw.audit(attention(skip=False)).advice[0]


def test_a_discontinuous_activation_is_refused():
    with refused("discontinuous"):
        fw.audit(residual("perceptron"))


# --- the command -----------------------------------------------------------------------------------------


def test_any_network_is_audited_from_a_file(capsys, tmp_path):
    (tmp_path / "net.toml").write_text(residual().to_toml(), encoding="utf-8")
    assert call("audit", tmp_path / "net.toml") == 0
    out = capsys.readouterr().out
    assert "input 8; Dense(16), Residual('relu', Dense(16)) x 20, 'relu', Dense(1)" in out
    for piece in ("needs attention", "the signal explodes from layer 19 on", "fw.Network.critical"):
        assert piece in out
    assert call("audit", tmp_path / "net.toml", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["network"]["layers"][1]["kind"] == "Residual" and len(document["layers"]) == 22
    assert document["layers"][0]["correlation"] == pytest.approx(0.5)
    assert document["layers"][3]["chi_perp"] == pytest.approx(1.5) and document["steps"]


def test_a_file_may_ask_for_the_critical_network(capsys, tmp_path):
    text = residual(gamma=0.5).to_toml().replace("[network]", "[network]\ncritical = true", 1)
    (tmp_path / "net.toml").write_text(text, encoding="utf-8")
    assert call("audit", tmp_path / "net.toml") == 0
    assert "gamma = 0.5, after relu): C_b = 0, C_W = 1.5; critical" in capsys.readouterr().out


# --- real networks ---------------------------------------------------------------------------------------


def sampled_residual(C_W, gamma, *, blocks=50, width=200, members=16):
    """Mean squares of the stream and of its gradient in relu networks, (members, blocks + 1) each."""
    rng = np.random.default_rng(5)
    signals, gradients = np.empty((2, members, blocks + 1))
    for member in range(members):
        z = [rng.standard_normal(width)]
        z[0] *= math.sqrt(width / (z[0] @ z[0]))
        weights = rng.standard_normal((blocks, width, width)) * math.sqrt(C_W / width)
        for W in weights:
            z.append(gamma * z[-1] + W @ np.maximum(z[-1], 0))
        back = [rng.standard_normal(width)]
        for W, before in zip(weights[::-1], z[-2::-1], strict=True):
            back.append(gamma * back[-1] + (before > 0) * (W.T @ back[-1]))
        signals[member] = [one @ one / width for one in z]
        gradients[member] = [one @ one / width for one in back[::-1]]
    return signals, gradients


@pytest.mark.parametrize("C_W, factor", [(0.38, 1.0), (0.76, 1.19)], ids=["critical", "too large"])
def test_real_residual_networks_keep_signals_and_gradients_at_the_critical_point_only(C_W, factor):
    """16 networks of width 200: fifty blocks multiply by 1 at C_W = 0.38, by 6000 at twice that."""
    signals, gradients = sampled_residual(C_W, 0.9)
    verdict = fw.audit(residual(blocks=50, gamma=0.9, C_W=C_W))
    assert bool(verdict.findings) == (factor > 1)
    for measured in (signals[:, -1], gradients[:, 0]):
        error = measured.std(ddof=1) / math.sqrt(len(measured))
        assert abs(measured.mean() - factor**50) < 4 * error < 3 * factor**50
    assert verdict.path.on_stream.signal[50] == pytest.approx(factor**50, rel=1e-9)


def test_the_share_of_one_over_the_depth_tames_real_networks_without_attenuation():
    """gamma = 1, fifty blocks: He's C_W = 2 multiplies signals by 2^50, and 2/50 by e; 16 networks."""
    exploding, _ = sampled_residual(2.0, 1.0, members=2)
    assert exploding[:, -1].min() > 1e13
    signals, gradients = sampled_residual(2.0 / 50, 1.0)
    for measured in (signals[:, -1], gradients[:, 0]):
        error = measured.std(ddof=1) / math.sqrt(len(measured))
        assert abs(measured.mean() - 1.02**50) < 4 * error < 1


@pytest.mark.parametrize("C_W, factor", [(2.0, 0.9212), (2.171, 1.0)])
def test_real_convolutions_leak_through_zero_padding(C_W, factor):
    """8 x 8 positions, 64 channels, 16 networks: from layer 10 to 30 signals change by factor^20."""
    rng, channels = np.random.default_rng(6), 64
    ratios = []
    for _ in range(16):
        x, sizes = rng.standard_normal((8, 8, channels)), []
        for _ in range(30):
            padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
            taps = [padded[i : i + 8, j : j + 8] for i in range(3) for j in range(3)]
            W = rng.standard_normal((9 * channels, channels)) * math.sqrt(C_W / (9 * channels))
            z = np.concatenate(taps, axis=-1) @ W
            x = np.maximum(z, 0)
            sizes.append((z**2).mean())
        ratios.append(sizes[29] / sizes[9])
    error = np.std(ratios, ddof=1) / math.sqrt(len(ratios))
    assert abs(np.mean(ratios) - factor**20) < 4 * error < factor**20
