"""PyTorch modules of any kind: audited by hooks, initialized with skips and norms, advised on their rates."""

import warnings

import numpy as np
import pytest

import finitewidth as fw
from finitewidth.critical.architectures.one_signal import Size, propagate

torch = pytest.importorskip("torch")
from helpers.torch_models import Pictures, residual, stack  # noqa: E402

nn, F = torch.nn, torch.nn.functional
torch.set_num_threads(1)


def normal(*shape, seed=0, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), **options)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Attending(nn.Module):
    """What the theory does not know: attention, batch normalization, weights of one's own."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.5)
        self.own = nn.Parameter(normal(8, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.drop(self.norm(x.mean(1))) @ self.own)


# --- the audit ----------------------------------------------------------------------------------


def test_a_module_that_the_theory_does_not_know_is_measured_and_the_part_is_named():
    torch.manual_seed(0)
    model, X = Attending().train(), normal(8, 4, 8)
    model.own.requires_grad_(False)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    verdict = fw.torch.audit(model, X, draws=2)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert model.training and not model.own.requires_grad
    assert verdict.theory is None and "attention, MultiheadAttention" in str(verdict.unknown)
    assert verdict.layers[-1] == "head" and any("attention" in name for name in verdict.layers)
    out = model.double().eval()(X.double())
    assert verdict.measured.signal[-1] == pytest.approx(float((out.detach() ** 2).mean()), rel=1e-12)
    assert verdict.measured.gradient[-1] == pytest.approx(1.0, rel=1e-12)
    assert any("dropout ('drop') counts as in evaluation" in note for note in verdict.notes)
    assert any("'own' is frozen" in note for note in verdict.notes)
    assert "no prediction" in str(verdict) and verdict.healthy


@pytest.mark.parametrize("wrap", [nn.DataParallel, pytest.param(torch.compile, marks=pytest.mark.long)])
def test_wrappers_are_unwrapped(wrap):
    model, X = stack((5, 8, 2), nn.Tanh), normal(6, 5)
    plain, verdict = (fw.torch.audit(one, X, draws=2) for one in (model, wrap(model)))
    np.testing.assert_array_equal(verdict.measured.signal, plain.measured.signal)
    assert "was unwrapped" in verdict.notes[0] and verdict.theory is not None


def test_six_relu_layers_are_not_called_sick_and_forty_are():
    """PyTorch's defaults lose a factor 1/6 of the squared gradient in each layer: 1e-4 in six layers."""
    torch.manual_seed(0)
    shallow = fw.torch.audit(stack((16, *[64] * 5, 3), nn.ReLU), normal(30, 16), draws=4)
    lost = shallow.measured.gradient[0] / shallow.measured.gradient[-1]
    assert 1e-5 < lost < 1e-3 and shallow.healthy and shallow.width_verdict.startswith("trusted")
    deep = fw.torch.audit(stack((16, *[32] * 39, 3), nn.ReLU), normal(30, 16), draws=2)
    assert not deep.healthy and any(finding.what == "gradient" for finding in deep.findings)


def test_a_change_by_chance_is_a_matter_of_width():
    """Critical relu networks of width 6 and 60 layers differ from each other by orders of magnitude."""
    model = stack((6, *[6] * 59, 2), nn.ReLU, bias=False)
    fw.torch.initialize_(model, generator=generator(3))
    verdict = fw.torch.audit(model, normal(20, 6))
    assert verdict.healthy and "too deep for this width" in verdict.width_verdict
    assert verdict.spread.gradient[0] > 1


def test_shares_of_convolutions_in_the_ntk_are_those_of_automatic_differentiation():
    model = Pictures().double()
    X = normal(3, 1, 6, 6, dtype=torch.float64)
    verdict = fw.torch.audit(model, X, draws=2)
    assert set(verdict.layers) == {"first", "inner", "last", "skip", "head"} and verdict.theory is not None
    total, outputs = 0.0, model(X).reshape(-1)
    for z in outputs:
        for gradient in torch.autograd.grad(z, list(model.parameters()), retain_graph=True):
            total += float((gradient**2).sum()) / (gradient[0].numel() if gradient.ndim > 1 else 1)
    assert verdict.measured.ntk.sum() == pytest.approx(total / len(outputs), rel=1e-10)


@pytest.mark.long
def test_the_prediction_of_residual_networks_agrees_with_draws():
    """Means of log signals and gradients over 10 networks of width 256: within 4 standard errors and 1/n."""
    X = normal(8, 6)
    X = X / (X**2).mean(dim=1, keepdim=True).sqrt()
    logs = []
    for seed in range(10):
        model = residual(3, 256, norm=True)
        fw.torch.initialize_(model, generator=generator(seed))
        verdict = fw.torch.audit(model, X, draws=2)
        logs.append(
            [
                np.log(getattr(verdict.measured, name) / getattr(verdict.predicted, name))
                for name in ("signal", "gradient")
            ]
        )
    mean, error = np.mean(logs, axis=0), np.std(logs, axis=0, ddof=1) / 10**0.5
    assert (np.abs(mean) < 4 * error + 8 / 256).all()
    assert verdict.healthy


# --- initialization -----------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"scale": 0.5}, {"norm": True}], ids=["bare", "scaled", "norm"])
def test_branches_get_the_share_of_the_theory(options):
    """The network that a drawn module is read as has the C_W of Network.critical, factors included."""
    model = residual(4, 128, **options)
    net = fw.torch.initialize_(model, generator=generator())
    read = fw.network_of(model)
    wanted, drawn = ([x for x in n.walked if isinstance(x, fw.Dense)] for n in (net, read))
    for one, other in zip(wanted, drawn, strict=True):
        assert other.C_W == pytest.approx(one.C_W, rel=0.15)
    stream = Size(1.0)
    for block in net.layers[1:-1]:  # adds a quarter of the stream, or of one behind a norm
        added = propagate(block.layers, stream, (128,)).size.square
        assert added == pytest.approx(0.25 * (1.0 if "norm" in options else stream.square), rel=1e-4)
        stream = Size(stream.square + added)
    assert fw.torch.audit(model, normal(10, 6), draws=2).healthy


def test_convolutions_norms_and_slopes_are_initialized_and_the_frozen_stay():
    parts = [nn.Conv1d(2, 16, 3, padding=1), nn.GroupNorm(1, 16), nn.PReLU(), nn.Flatten(), nn.Linear(64, 2)]
    model = nn.Sequential(*parts)
    nn.init.constant_(model[1].weight, 3.0)
    model[4].weight.requires_grad_(False)
    before = model[4].weight.clone()
    net = fw.torch.initialize_(model, normal(3, 2, 4), generator=generator())
    assert torch.equal(model[4].weight, before) and not model[4].weight.requires_grad
    assert bool((model[1].weight == 1).all()) and net.activation_name == "leaky_relu(0.25)"
    assert float((model[0].weight.detach() ** 2).mean() * 6) == pytest.approx(net.layers[0].C_W, rel=0.5)


def test_outputs_may_start_smaller():
    for model in (residual(2, 64), stack((6, 64, 2), nn.Tanh)):
        whole = fw.torch.initialize_(model, generator=generator())
        X = normal(20, 6)
        first = model(X).detach()
        net = fw.torch.initialize_(model, output_scale=0.1, generator=generator())
        torch.testing.assert_close(model(X).detach(), 0.1 * first)
        last, before = (n.layers[-1] for n in (net, whole))
        assert last.C_W == pytest.approx(0.01 * before.C_W) and net.layers[0] == whole.layers[0]


def test_gelu_without_biases_gets_the_best_that_exists():
    model = stack((8, *[64] * 19, 2), nn.GELU, bias=False)
    with pytest.warns(fw.torch.InitializationWarning, match="no biases, which the critical point of gelu"):
        net = fw.torch.initialize_(model, generator=generator())
    assert not any(net.C_b) and not fw.audit(net).findings
    path = fw.audit(net).path
    assert np.abs(np.log(np.prod(path.perpendicular[:-1]))) < 1.1


def test_nothing_is_changed_where_something_is_refused():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 5), nn.Sigmoid(), nn.Linear(5, 1))
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match="no critical point"):
        fw.torch.initialize_(model)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


# --- learning rates -----------------------------------------------------------------------------


def largest_stable(model, X, Y, loss, groups, factor) -> bool:
    """Whether 60 steps of gradient descent at `factor` times the rates of the groups stay bounded."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD([{**group, "lr": factor * group["lr"]} for group in groups], lr=0.1)
    first = float(loss(model(X), Y).detach())
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(model(X), Y)
        value.backward()
        optimizer.step()
    return bool(torch.isfinite(value)) and float(value.detach()) < 3 * first + 1


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_curvature_is_the_largest_eigenvalue_of_the_ntk(reduction):
    """Against the whole matrix from automatic differentiation, squared loss, to 1e-2 of the iteration."""
    model = stack((3, 16, 2), nn.Tanh).double()
    fw.torch.initialize_(model, generator=generator())
    X = normal(5, 3, dtype=torch.float64)
    advice = fw.torch.recommend(model, X, loss=nn.MSELoss(reduction=reduction))
    rates = {id(group["params"][0]): group["lr"] / advice.learning_rate for group in advice.groups}
    rows = []
    for z in model(X).reshape(-1):
        gradients = torch.autograd.grad(z, list(model.parameters()), retain_graph=True)
        pairs = zip(model.parameters(), gradients, strict=True)
        rows.append(torch.cat([rates[id(p)] ** 0.5 * g.reshape(-1) for p, g in pairs]))
    J = torch.stack(rows)
    largest = float(torch.linalg.eigvalsh(J @ J.T)[-1]) * 2 / (10 if reduction == "mean" else 1)
    assert advice.curvature == pytest.approx(largest, rel=1e-2)
    assert advice.learning_rate == pytest.approx(0.9 * advice.largest_learning_rate)
    assert advice.largest_learning_rate == pytest.approx(2 / advice.curvature)
    assert sum(advice.shares.values()) == pytest.approx(1)
    with_momentum = fw.torch.recommend(model, X, loss=nn.MSELoss(reduction=reduction), momentum=0.9)
    assert with_momentum.learning_rate == pytest.approx(0.1 * advice.learning_rate)
    assert with_momentum.largest_learning_rate == pytest.approx(1.9 * advice.largest_learning_rate)
    assert all(group["momentum"] == 0.9 for group in with_momentum.optimizer().param_groups)


def test_the_limit_of_squared_loss_is_where_descent_becomes_unstable():
    """Of one linear layer, whose curvature does not change: 0.95 and 1.1 times the limit."""
    X, Y = normal(6, 4, dtype=torch.float64), normal(6, 2, seed=1, dtype=torch.float64)
    for factor, stable in ((0.95 / 0.9, True), (1.1 / 0.9, False)):
        model = nn.Linear(4, 2).double()
        fw.torch.initialize_(model, generator=generator())
        advice = fw.torch.recommend(model, X, loss="squared")
        assert largest_stable(model, X, Y, F.mse_loss, advice.groups, factor) is stable


def test_the_curvature_of_the_cross_entropy_is_about_one_over_the_classes():
    """With equal probabilities diag(p) - p p^T has the eigenvalue 1/C, of all parameters with one rate."""
    model = stack((4, 64, 10), nn.Tanh).double()
    fw.torch.initialize_(model, generator=generator())
    nn.init.normal_(model[2].weight, std=1e-4, generator=generator())
    nn.init.zeros_(model[2].bias)
    X = normal(8, 4, dtype=torch.float64)
    hidden = model[:2](X).detach()
    largest = float(torch.linalg.eigvalsh(hidden @ hidden.T + 1)[-1]) / (8 * 10)
    advice = fw.torch.recommend(model, X)
    assert advice.curvature == pytest.approx(largest, rel=0.01)
    summed = fw.torch.recommend(model, X, loss=nn.CrossEntropyLoss(reduction="sum"))
    assert summed.curvature == pytest.approx(8 * advice.curvature)
    assert summed.learning_rate == pytest.approx(advice.learning_rate / 8)


def test_rates_of_adam_keep_updates_of_outputs_of_order_one():
    """A first step of Adam changes outputs alike from width 32 to 512 and 3 to 12 layers, to a factor 4."""
    X, labels, changes = normal(20, 8), torch.arange(20) % 3, []
    for depth, width in ((3, 32), (3, 512), (12, 64), (12, 256)):
        model = stack((8, *[width] * (depth - 1), 3), nn.ReLU)
        fw.torch.initialize_(model, generator=generator())
        before, optimizer = model(X).detach(), fw.torch.recommend(model, X, optimizer="Adam").optimizer()
        F.cross_entropy(model(X), labels).backward()
        optimizer.step()
        changes.append(float(((model(X).detach() - before) ** 2).mean().sqrt()))
    assert max(changes) < 4 * min(changes) and 0.02 < min(changes) and max(changes) < 3, changes


def test_weight_decay_of_adamw_scales_against_the_rates():
    model, X = stack((8, 64, 3), nn.ReLU), normal(9, 8)
    advice = fw.torch.recommend(model, X, optimizer=torch.optim.AdamW, weight_decay=0.1)
    weights = [group for group in advice.groups if group["name"].startswith("weights")]
    assert all(group["lr"] * group["weight_decay"] == pytest.approx(1e-4) for group in weights)
    assert all(g["weight_decay"] == 0 for g in advice.groups if g["name"].startswith("biases"))
    assert isinstance(advice.optimizer(), torch.optim.AdamW) and "forget at the same speed" in str(advice)


def test_a_wrong_optimizer_is_noticed_at_its_first_step():
    model, X = stack((4, 8, 2), nn.Tanh), normal(5, 4)
    groups = fw.torch.parameter_groups(model, 0.1)
    right, wrong = torch.optim.SGD(groups, lr=0.1), torch.optim.Adam(groups)
    model(X).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right.step()
    with pytest.warns(fw.torch.OptimizerWarning, match="rates for SGD are used by Adam"):
        wrong.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrong.step()  # it is said once
    assert fw.torch.check_optimizer(right)


def test_modules_that_the_theory_does_not_know_get_one_rate():
    model = Attending()
    model.head.bias.requires_grad_(False)
    advice = fw.torch.recommend(model, normal(8, 4, 8), loss="squared")
    held = {id(group["params"][0]) for group in advice.groups}
    assert held == {id(p) for p in model.parameters() if p.requires_grad}
    assert advice.net is None and "the theory does not know the module" in advice.notes[0]
    assert len({group["lr"] for group in advice.groups}) == 1


def test_rates_of_the_cross_entropy_are_one_for_all_and_fall_with_depth():
    """As (2/layers)^1.25 without skips and with 0.75 with them, and as the fourth root of the eigenvalue."""
    models = [(stack((6, *[8] * (depth - 1), 3), nn.Tanh), 1.25) for depth in (2, 4)]
    for model, power in (*models, (residual(2, 8), 0.75)):
        advice = fw.torch.recommend(model, normal(20, 6))
        layers = sum(p.ndim > 1 for p in model.parameters())
        law = 1.5 * (2 / layers) ** power / advice.curvature**0.25
        assert {group["lr"] for group in advice.groups} == {advice.learning_rate}
        assert advice.learning_rate == pytest.approx(law)


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"loss": "hinge"}, "loss must be .* got 'hinge'"),
        ({"optimizer": "LBFGS"}, "optimizer must be .* got 'LBFGS'"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1, got 1.0"),
        ({"optimizer": "Adam", "momentum": 0.9}, "momentum belongs to SGD"),
        ({"weight_decay": 0.1}, "weight_decay is scaled with the rates of AdamW"),
        ({"loss": "mse", "bias_share": -1.0}, "bias_share must be"),
        ({"bias_share": 0.1}, "bias_share belongs to rates by layer"),
    ],
)
def test_bad_advice_is_refused_in_one_sentence(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        fw.torch.recommend(stack((4, 8, 2), nn.Tanh), normal(5, 4), **options)
