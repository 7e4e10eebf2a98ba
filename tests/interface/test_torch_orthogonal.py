"""Orthogonal weights wherever a user can ask for them: models, run files, the command line, the page."""

import math

import numpy as np
import pytest
import torch
from helpers.problems import refused

import finitewidth as fw
from finitewidth.interface.cli.arguments import network_described
from finitewidth.interface.page import problem, values
from finitewidth.interface.runs.network_table import read_network


def model(readout: int = 3) -> torch.nn.Sequential:
    linear = torch.nn.Linear
    return torch.nn.Sequential(
        linear(4, 8), torch.nn.Tanh(), linear(8, 8), torch.nn.Tanh(), linear(8, readout)
    )


def test_a_torch_module_gets_isometries_and_is_read_as_such():
    module = model()
    net = fw.torch.initialize_(module, weights="orthogonal", generator=torch.Generator().manual_seed(0))
    assert net.weights == ("orthogonal",) * 3
    for layer, C_W in zip(module[::2], net.C_W, strict=True):
        W = layer.weight.detach().double().numpy()
        scale = C_W * max(W.shape) / W.shape[1]
        np.testing.assert_allclose(np.linalg.svd(W)[1] ** 2, scale, rtol=1e-5)
    assert fw.network_of(module).weights == ("orthogonal",) * 3


def test_weights_of_torch_itself_are_read_with_their_variance():
    module = model(readout=1)
    for layer in module[::2]:
        torch.nn.init.orthogonal_(layer.weight, gain=1.2)
        torch.nn.init.zeros_(layer.bias)
    net = fw.network_of(module)
    assert net.weights == ("orthogonal", "orthogonal", "gaussian")  # one row keeps angles anyway
    np.testing.assert_allclose(net.C_W, [1.44 * 4 / 8, 1.44, 1.44], rtol=1e-5)
    assert fw.network_of(model()).weights == ("gaussian",) * 3


class Skipping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = (torch.nn.Linear(4, 4) for _ in range(3))
        torch.nn.init.orthogonal_(self.two.weight)

    def forward(self, x):
        z = self.one(x)
        return self.out(torch.tanh(z + self.two(torch.tanh(z))))


def test_modules_with_skips_stay_gaussian():
    assert not fw.network_of(Skipping()).has_orthogonal_weights
    with refused("weights='orthogonal' is for networks of dense layers and activations, and this module has"):
        fw.torch.initialize_(Skipping(), weights="orthogonal")
    with refused("weights must be 'gaussian' or 'orthogonal'"):
        fw.torch.initialize_(model(), weights="unitary")


def test_run_files_and_the_command_line_name_them():
    table = {"widths": [4, 8, 8, 2], "activation": "tanh", "critical": True, "weights": "orthogonal"}
    assert read_network(table, "run.toml").network(1.0).weights == ("orthogonal",) * 3
    net, _ = network_described(
        "4,8x2,2", "tanh", {"C_W": "1", "weights": "orthogonal,orthogonal,gaussian"}, 1.0
    )
    assert net.weights == ("orthogonal", "orthogonal", "gaussian")
    with refused("weights cannot stand beside input_shape and layers"):
        read_network({"input_shape": 2, "layers": [], "weights": "orthogonal"}, "run.toml")


def test_the_page_has_a_control():
    chosen = values.read("weights=orthogonal&depth=3&width=16")
    assert problem.network(chosen).weights == ("orthogonal",) * 3
    assert problem.network(values.read("depth=3&width=16")).weights == ("gaussian",) * 3


def test_an_audit_judges_what_fluctuates():
    """Sixty tanh layers of 64 neurons: Gaussian ones fluctuate too much to be trusted."""
    widths = (64, *[64] * 60, 1)
    kinds = ("gaussian", "orthogonal")
    gaussian, orthogonal = (fw.audit(fw.MLP.critical(widths, "tanh", weights=one)) for one in kinds)
    assert not gaussian.healthy and orthogonal.healthy


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.5)"])
def test_straight_lines_may_be_somewhat_deeper(activation):
    """The closed form against the theory of one input."""
    shape = fw.critical.aspect(activation, width=64, gamma=0, weights="orthogonal", allowed=0.3)
    net = fw.MLP.critical((1,) * (shape.depth + 1), activation, weights="orthogonal")
    theory = fw.solve(net, [[1.0]])
    ratio = theory.output.V.item() / theory.output.K.item() ** 2
    assert shape.curve[-1] == pytest.approx(abs(ratio)) and abs(ratio) <= 0.3 * 64
    assert shape.depth > fw.critical.aspect(activation, width=64, gamma=0, allowed=0.3).depth


def test_the_width_for_a_verdict_stops_growing_with_the_depth_of_tanh():
    at = {n: fw.critical.aspect("tanh", depth=n, gamma=0, weights="orthogonal").width for n in (16, 64)}
    gaussian = fw.critical.aspect("tanh", depth=64, gamma=0).width
    assert at[64] <= 1.5 * at[16] and gaussian > 4 * at[64]
    with refused("weights='orthogonal' is known without skip connections, got gamma=0.9"):
        fw.critical.aspect("tanh", depth=8, gamma=0.9, weights="orthogonal")
    assert math.isfinite(at[16])
