"""PyTorch modules: read by what they compute, set critical, trained where defaults do not train."""

import builtins
import importlib
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.examples import example
from helpers.problems import also_long
from helpers.torch_models import stack
from torch import nn

import finitewidth as fw
from finitewidth.experiment.layers.dense import DenseParameters
from finitewidth.experiment.sampling import outputs

torch.set_num_threads(1)


class Written(nn.Module):
    """Layers defined in another order than the one in which they are applied, and a function between them."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.head, self.second, self.first = nn.Linear(4, 2), nn.Linear(5, 4), nn.Linear(3, 5)

    def forward(self, x):
        x = x.view(x.size(0), -1)
        return self.head(self.function(self.second(self.function(self.first(x)))))


class Applied(Written):
    """A forward of one's own with the layers of `Written`, and more modules."""

    def __init__(self, forward, **more):
        super().__init__(torch.tanh)
        for name, module in more.items():
            setattr(self, name, module)
        self.written = forward

    def forward(self, x):
        return self.written(self, x)


@pytest.mark.parametrize(
    "module, functions",
    [
        (nn.Tanh(), [torch.tanh, lambda x: x.tanh(), F.tanh]),
        (nn.ReLU(inplace=True), [F.relu, lambda x: x.relu_(), lambda x: x.clamp(min=0)]),
        (nn.LeakyReLU(0.2), [lambda x: F.leaky_relu(x, 0.2), lambda x: torch.where(x > 0, x, 0.2 * x)]),
        (nn.SiLU(), [F.silu, lambda x: x * torch.sigmoid(x)]),
        (nn.ELU(0.7), [lambda x: F.elu(x, alpha=0.7)]),
        (nn.GELU(), [F.gelu, lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5))]),
        (nn.GELU(approximate="tanh"), [lambda x: F.gelu(x, approximate="tanh")]),
        (nn.ReLU6(), [F.relu6, lambda x: F.hardtanh(x, 0.0, 6.0)]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_activations_are_told_by_what_they_compute(module, functions):
    """Modules, functions, methods and formulas give one Activation, which computes what torch does."""
    from finitewidth.network.foreign.torch_read import read

    net = read(stack((3, 5, 4, 2), lambda: module)).net
    activation = net.activations[0]
    z = np.linspace(-3.3, 3.1, 33)
    np.testing.assert_allclose(activation(jnp.asarray(z)), module(torch.tensor(z)), rtol=1e-7, atol=1e-9)
    for function in functions:
        other = read(Written(function))
        assert other.net.activations == (activation,) * 2
        assert [layer.name for layer in other.weights] == ["first", "second", "head"]
        assert other.net.widths == net.widths == (3, 5, 4, 2)


def test_what_changes_nothing_is_harmless():
    plain = fw.torch.network(stack((6, 5, 4, 2), nn.Tanh))
    parts = list(stack((6, 5, 4, 2), nn.Tanh))
    padded = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Identity(), *parts, nn.LogSoftmax(dim=1))
    assert fw.torch.network(padded) == plain
    dropping = nn.Sequential(*parts[:2], nn.Dropout(0.5), *parts[2:])
    assert fw.torch.network(dropping) == fw.torch.network(dropping.eval()) == plain
    assert plain == fw.MLP.critical((6, 5, 4, 2), "tanh", bias_share=0.1)
    assert fw.torch.network(nn.Linear(3, 2)).widths == (3, 2)


def normal_block(**options):
    return stack((3, 5, 4, 2), nn.Tanh, **options)


def _shared():
    shared = nn.Linear(4, 4)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), shared, nn.Tanh(), shared)


def _branching(m, x):
    return m.head(torch.tanh(m.second(torch.tanh(m.first(x))))), m.second(torch.tanh(m.first(x)))


def _attending(m, x):
    return m.head(m.mixed(x, x, x)[0])


def _skipping(m, x):
    h = torch.tanh(m.first(x))
    return m.head(torch.tanh(m.second(h)) + h[:, :4])


def _deciding(m, x):
    return m.head(m.second(m.first(x))) if x.sum() > 0 else x


def _without_first(m, x):
    return m.head(torch.tanh(m.second(x)))


def _in_place(m, x):
    x = m.first(x)
    torch.relu_(x)
    return m.head(torch.tanh(m.second(x)))


def row(*parts):
    """A sequence of modules, made when it is needed; numbers are widths of linear layers."""

    def make():
        widths = iter([number for number in parts if isinstance(number, int)])
        fan_in, made = next(widths), []
        for part in parts[1:]:
            if isinstance(part, int):
                made.append(nn.Linear(fan_in, part))
                fan_in = part
            else:
                made.append(part())
        return nn.Sequential(*made)

    return make


REFUSED = {
    "convolution": (row(3, lambda: nn.Conv1d(3, 3, 1), nn.Flatten, 2), "how large images are; pass inputs"),
    "normalization": (row(3, 5, lambda: nn.BatchNorm1d(5), nn.Tanh, 2), "normalization, BatchNorm1d"),
    "attention": (lambda: Applied(_attending, mixed=nn.MultiheadAttention(4, 1)), "attention, Multihead"),
    "embedding": (row(4, lambda: nn.Embedding(3, 4), 2), "embedding"),
    "skip": (lambda: Applied(_skipping), "changes the shape of a layer"),
    "branch": (lambda: Applied(_branching), "share weights"),
    "shared": (_shared, "layers '2' and '2' share weights"),
    "control flow": (lambda: Applied(_deciding), "cannot be traced \\(TraceError"),
    "in place": (lambda: Applied(_in_place), "in place by relu_"),
    "unused": (lambda: Applied(_without_first), "'first.weight' \\(of Linear\\) belongs to no"),
    "not elementwise": (row(3, 5, lambda: nn.Softmax(1), 2), "not an elementwise"),
    "unknown": (row(3, 5, nn.Softshrink, 2), "pass activation="),
    "activation at the end": (row(3, 5, nn.Tanh, 2, nn.Tanh), "Tanh \\('3'\\) follows the last linear layer"),
    "no critical point": (row(3, 5, nn.Sigmoid, 2), "no critical point"),
    "biases missing": (
        lambda: nn.Sequential(
            nn.Linear(3, 5), nn.GELU(), nn.Linear(5, 5, bias=False), nn.SiLU(), nn.Linear(5, 1)
        ),
        "layer '2' has no biases, but .* gelu",
    ),
    "parametrized": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 5)), "parametrization"),
    "lazy": (lambda: nn.LazyLinear(5), "no weights yet"),
    "nothing": (nn.Tanh, "no linear layer"),
    "no module": (lambda: torch.tanh, "must be a torch.nn.Module"),
}


MIXED = {
    ("tanh", "relu"): (nn.Tanh, nn.ReLU),
    ("gelu", "tanh", "relu"): (nn.GELU, nn.Tanh, nn.ReLU),
    ("tanh", "linear", "leaky_relu(0.2)"): (nn.Tanh, nn.Identity, lambda: nn.LeakyReLU(0.2)),
}


@pytest.mark.parametrize("names, activations", MIXED.items(), ids=map(", ".join, MIXED))
def test_each_hidden_layer_may_have_its_own_activation(names, activations):
    """The network is MLP.critical with these activations, and so are the variances and the learning rates."""
    widths = (6, *range(9, 9 - len(names), -1), 2)
    module = stack(widths, activations)
    critical = fw.MLP.critical(widths, names, lambda_b=0.5, input_scale=1.3)
    assert fw.torch.network(module, lambda_b=0.5, input_scale=1.3) == critical
    shared = fw.MLP.critical(widths, names, input_scale=1.3, bias_share=0.1)
    assert fw.torch.network(module, input_scale=1.3) == shared
    assert fw.torch.network(module).activation_name == ", ".join(names)
    linear = [part for part in module if isinstance(part, nn.Linear)]
    groups = fw.torch.parameter_groups(module, 0.1, lambda_b=0.5, input_scale=1.3)
    rates = {id(group["params"][0]): group["lr"] for group in groups}
    for l, layer in enumerate(linear):
        assert rates[id(layer.weight)] == pytest.approx(0.1 * critical.lambda_W[l] / widths[l], rel=1e-14)
        assert rates[id(layer.bias)] == pytest.approx(0.1 * critical.lambda_b[l], rel=1e-14)


def test_linear_layers_with_nothing_between_them_are_linear_there():
    parts = list(stack((6, 5, 4, 2), nn.Tanh))
    assert fw.torch.network(nn.Sequential(parts[0], *parts[2:])).activation_name == "linear, tanh"
    assert fw.torch.network(row(3, 5, 2)()) == fw.MLP.critical((3, 5, 2), "linear", bias_share=0.1)


def test_some_activations_may_be_passed_and_others_recognized():
    own = fw.Activation(lambda z: 2 * jnp.tanh(z), name="twice")
    applied = Applied(lambda m, x: m.head(torch.relu(m.second(2 * torch.tanh(m.first(x))))))
    net = fw.torch.network(applied, activation=(own, None))
    assert net.activations == (own, fw.torch.network(row(3, 5, nn.ReLU, 2)()).activations[0])
    with pytest.raises(ValueError, match="'relu' is not the activation between layers 'first' and 'second'"):
        fw.torch.network(applied, activation=("relu", None))
    with pytest.raises(ValueError, match="activation has 1 entries for 2 hidden layers"):
        fw.torch.network(applied, activation=(own,))


@pytest.mark.parametrize("make, complaint", REFUSED.values(), ids=REFUSED)
def test_other_architectures_are_refused_by_name(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        fw.torch.initialize_(make())


def test_an_activation_may_be_passed_and_is_compared():
    module = stack((3, 5, 2), nn.Tanhshrink)
    with pytest.raises(ValueError, match="'tanh' is not the activation between layers '0' and '2': at z = "):
        fw.torch.network(module, activation="tanh")
    own = fw.Activation(lambda z: 2 * jnp.tanh(z), name="twice")
    written = Written(lambda x: 2 * torch.tanh(x))
    assert fw.torch.network(written, activation=own).activation is own
    assert fw.torch.network(written, activation=own).C_W[0] == pytest.approx(0.25)


def test_initialization_is_that_of_the_critical_network():
    """Pulls below 4: of every layer's mean squares, and of K over depth from 40 networks of width 200."""
    widths = (8, 200, 200, 200, 3)
    X = np.random.default_rng(0).normal(size=(4, 8))
    mixed = ("gelu", "tanh", "relu")
    for activation, name in ((nn.Tanh, "tanh"), (nn.GELU, "gelu"), (MIXED[mixed], mixed)):
        module = stack(widths, activation)
        generator = torch.Generator().manual_seed(7)
        signals = []
        for _ in range(40):
            net = fw.torch.initialize_(module, generator=generator)
            signals.append(fw_signals(module, X))
        assert net == fw.MLP.critical(widths, name, bias_share=0.1)
        for l, layer in enumerate(part for part in module if isinstance(part, nn.Linear)):
            for tensor, variance in ((layer.weight, net.C_W[l] / widths[l]), (layer.bias, net.C_b[l])):
                measured = float((tensor.detach().double() ** 2).mean())
                assert abs(measured - variance) <= 4 * variance * (2 / tensor.numel()) ** 0.5
        theory = fw.solve(net, X)
        mean, error = np.mean(signals, axis=0), np.std(signals, axis=0, ddof=1) / 40**0.5
        for l in range(net.depth):
            predicted = np.diag(theory.layer(l + 1).G if l else theory.layer(1).K).mean()
            assert abs(mean[l] - predicted) < 4 * error[l]


def fw_signals(module, X) -> list[float]:
    z, signals = torch.tensor(X, dtype=torch.float32), []
    with torch.no_grad():
        for part in module:
            z = part(z)
            if isinstance(part, nn.Linear):
                signals.append(float((z**2).mean()))
    return signals


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_initialization_keeps_dtype_and_is_reproducible(dtype):
    module = normal_block(dtype=dtype)
    before = list(module.parameters())
    fw.torch.initialize_(module, generator=torch.Generator().manual_seed(3))
    first = [parameter.detach().clone() for parameter in module.parameters()]
    fw.torch.initialize_(module, generator=torch.Generator().manual_seed(3))
    for parameter, copy, old in zip(module.parameters(), first, before, strict=True):
        assert parameter is old and parameter.dtype == dtype and torch.equal(parameter, copy)
        assert parameter.requires_grad and parameter.is_leaf and parameter.grad is None
    without = normal_block(bias=False)
    assert fw.torch.initialize_(without).lambda_b == (0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="generator must be a torch.Generator, got 3"):
        fw.torch.initialize_(module, generator=3)


@pytest.mark.parametrize("activation", [nn.GELU, (nn.Tanh, nn.GELU)], ids=["one", "two"])
def test_a_step_of_the_groups_moves_outputs_by_the_ntk(activation):
    """z - eta H (z - y) to order eta, with H of the library's own derivatives: to 1e-6 at eta = 1e-7."""
    module = stack((3, 16, 16, 2), activation).double()
    net = fw.torch.initialize_(module, generator=torch.Generator().manual_seed(1))
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    inputs, targets = torch.tensor(X), torch.tensor(Y)
    eta = 1e-7
    groups = fw.torch.parameter_groups(module, eta)
    assert sum(len(group["params"]) for group in groups) == len(list(module.parameters()))
    optimizer = torch.optim.SGD(groups)
    z = module(inputs)
    (0.5 * ((z - targets) ** 2).sum()).backward()
    optimizer.step()
    moved_by = ((module(inputs) - z) / eta).detach().numpy()

    linear = [part for part in module if isinstance(part, nn.Linear)]
    jacobian = jax.jacobian(lambda parameters: outputs(net, parameters, jnp.asarray(X)))(
        library_parameters(linear)
    )
    rates = [(net.lambda_b[l], net.lambda_W[l] / net.widths[l]) for l in range(net.depth)]
    H = np.zeros((4, 2, 4, 2))
    for (by_b, by_W), (rate_b, rate_W) in zip(jacobian, rates, strict=True):
        for by, rate in ((by_b, rate_b), (by_W, rate_W)):
            flat = np.asarray(by).reshape(4, 2, -1)
            H += rate * np.einsum("aip,bjp->aibj", flat, flat)
    expected = -np.einsum("aibj,bj->ai", H, z.detach().numpy() - Y)
    np.testing.assert_allclose(moved_by, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="learning_rate must be a finite number above 0, got -1"):
        fw.torch.parameter_groups(module, -1)


def library_parameters(linear):
    """Torch's layers as the experiments hold them."""
    values = [(layer.bias.detach().numpy(), layer.weight.detach().numpy()) for layer in linear]
    return tuple(DenseParameters(jnp.asarray(b), jnp.asarray(W)) for b, W in values)


# --- the audit --------------------------------------------------------------------------------


def test_the_audit_measures_the_model_and_predicts_its_like():
    """Torch's defaults: gradients vanish, measured and predicted alike; ours at a good width: health."""
    X = np.random.default_rng(1).normal(size=(50, 10))
    torch.manual_seed(0)
    module = stack((10, *[100] * 11, 3), nn.Tanh)
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    bad = fw.torch.audit(module, X.astype(np.float32))
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    assert not bad.healthy and [f.what for f in bad.findings] == [f.what for f in bad.theory.findings]
    assert any(f.what == "gradient" and f.how == "vanishes" for f in bad.findings)
    assert abs(bad.C_W.value[5] - 1 / 3) < 4 * bad.C_W.stderr[5]
    assert np.abs(np.log(bad.measured.gradient / bad.predicted.gradient)).max() < 1  # over seven decades
    for piece in ("gradient vanishes", "predicted for networks", "C_W", "set C_b = 0 and C_W = 1"):
        assert piece in str(bad)

    fw.torch.initialize_(module, generator=torch.Generator().manual_seed(0))
    good = fw.torch.audit(module, torch.tensor(X))
    assert good.healthy and good.net.C_W == pytest.approx([1.0] * 12, abs=0.02)


@pytest.mark.parametrize(
    "names, activations",
    [*list(MIXED.items())[:1], *also_long(*list(MIXED.items())[1:2])],
    ids=map(", ".join, list(MIXED)[:2]),
)
def test_the_audit_of_mixed_activations_agrees_with_sampled_initializations(names, activations):
    """The prediction is the theory's; means of 12 networks of width 128 agree at order 1/n, pulls below 4."""
    widths = (8, *[128] * len(names), 3)
    X = np.random.default_rng(2).normal(size=(4, 8))
    module, generator = stack(widths, activations), torch.Generator().manual_seed(5)
    signals, ntks = [], []
    for _ in range(12):
        critical = fw.torch.initialize_(module, generator=generator)
        audit = fw.torch.audit(module, X, draws=2)
        signals.append(audit.measured.signal)
        ntks.append(audit.measured.ntk.sum())
    theory = fw.solve(audit.net, X, order=0)
    for l, signal in enumerate(audit.predicted.signal, start=1):
        assert signal == pytest.approx(np.diag(theory.layer(l).K).mean(), rel=1e-9)
    assert audit.predicted.ntk.sum() == pytest.approx(np.diag(theory.output.Theta).mean(), rel=1e-9)

    theory = fw.solve(critical.replace(lambda_b=1.0, lambda_W=1.0), X)
    mean, error = np.mean(signals, axis=0), np.std(signals, axis=0, ddof=1) / 12**0.5
    for l in range(1, critical.depth):
        assert abs(mean[l] - np.diag(theory.layer(l + 1).G).mean()) < 4 * error[l]
    assert abs(np.mean(ntks) - np.diag(theory.output.H).mean()) < 4 * np.std(ntks, ddof=1) / 12**0.5
    assert audit.healthy


def test_the_measured_ntk_is_that_of_automatic_differentiation():
    """Of one network, all of it: sum over layers, mean over the samples and output neurons, to 1e-10."""
    module = stack((3, 7, 6, 2), nn.GELU).double()
    fw.torch.initialize_(module, generator=torch.Generator().manual_seed(0))
    X = torch.tensor(np.random.default_rng(0).normal(size=(5, 3)))
    measured = fw.torch.audit(module, X, draws=2).measured
    layers = [part for part in module if isinstance(part, nn.Linear)]
    total = 0.0
    for z in module(X).reshape(-1):
        gradients = torch.autograd.grad(z, list(module.parameters()), retain_graph=True)
        for layer, by_W, by_b in zip(layers, gradients[::2], gradients[1::2], strict=True):
            total += float((by_W**2).sum() / layer.in_features + (by_b**2).sum())
    assert measured.ntk.sum() == pytest.approx(total / 10, rel=1e-10)
    assert measured.signal[-1] == pytest.approx(float((module(X).detach() ** 2).mean()), rel=1e-10)


@pytest.mark.parametrize(
    "sample, complaint",
    [
        (np.ones((4, 7)), "sample must be a batch"),
        (np.full((4, 3), np.nan), "NaN or infinity"),
        (np.zeros((4, 3)), "zeros only"),
        ("text", "must be a batch"),
        (np.ones((0, 3)), "sample has shape"),
    ],
)
def test_bad_samples_are_refused(sample, complaint):
    with pytest.raises(ValueError, match=complaint):
        fw.torch.audit(normal_block(), sample)


def test_a_model_through_which_nothing_passes_is_refused():
    module = normal_block()
    nn.init.zeros_(module[2].weight)
    with pytest.raises(ValueError, match="weights of layer '2' are all zero"):
        fw.torch.audit(module, np.ones((2, 3)))
    nn.init.constant_(module[2].weight, float("nan"))
    with pytest.raises(ValueError, match="layer '2' has NaN"):
        fw.torch.audit(module, np.ones((2, 3)))


# --- without the packages ---------------------------------------------------------------------


@pytest.mark.parametrize("package", ["torch", "optax"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(package, monkeypatch):
    def without(name, *rest, **more):
        if name == package:
            raise ModuleNotFoundError(f"No module named {package!r}")
        return real(name, *rest, **more)

    real = builtins.__import__
    monkeypatch.delitem(sys.modules, f"finitewidth.interface.adapters.{package}", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=re.escape(f"pip install '.[{package}]'")):
        importlib.import_module(f"finitewidth.interface.adapters.{package}")


# --- training ---------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", pytest.param("gelu", marks=pytest.mark.long)])
def test_fifty_layers_train_here_and_not_by_default(activation):
    """On four digits PyTorch's defaults stay below 0.45 of the training images at every learning rate, where
    guessing is 0.25; the critical network passes 0.9 with the same optimizer and as many steps."""
    script = example("torch_deep")
    data = script.task(quick=True)
    assert max(script.by_default(activation, data, rate) for rate in script.DEFAULT_RATES) < 0.45
    assert script.critical(activation, data, script.CRITICAL_RATES[activation]) > 0.9
