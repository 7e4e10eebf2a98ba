"""Order 1/n in samples of neurons: times, pairs, every contribution against whole tensors."""

import itertools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers.many_points import INPUTS, NET, TARGETS, sampled
from helpers.paths import ROOT
from helpers.problems import also_long

import finitewidth as fw
from finitewidth.network.algorithms.clock import Clock
from finitewidth.theory.unrolled.pair_corrections import pair_corrections
from finitewidth.training.first_order.eigenmodes import with_free_symbols
from finitewidth.training.first_order.prepared import Prepared
from finitewidth.training.many_points.time_bins import TimeBins, kronecker
from finitewidth.training.many_points.time_integrals import Replay

PULL = 4.0
CONTRIBUTIONS = ("ntk_fluctuation", "dntk", "ddntk_1", "ddntk_2")


def whole(net: fw.MLP) -> Prepared:
    return fw.prepare(net, INPUTS[:6], TARGETS, INPUTS[6:], method=fw.Tensors(tolerance=1e-6))


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return whole(NET)


def pulls(estimate: fw.records.Prediction, exact: fw.records.Prediction) -> dict[str, np.ndarray]:
    assert estimate.sampling is not None
    errors = estimate.sampling.contributions
    return {
        name: (estimate.contributions[name] - exact.contributions[name]) / errors[name]
        for name in CONTRIBUTIONS
    }


# --- times --------------------------------------------------------------------------------------------


def test_drawn_times_integrate_without_bias():
    times = TimeBins(span=7.0, scale=0.1)
    fractions = (np.arange(200) + 0.5) / 200
    drawn = [times.in_bin(one, u) for one in range(times.count) for u in fractions]
    for f, exact in ((lambda t: np.exp(-3 * t), (1 - np.exp(-21)) / 3), (lambda t: t**2, 7**3 / 3)):
        assert sum(weight * f(time) for time, weight in drawn) / 200 == pytest.approx(exact, rel=1e-4)


LONG = pytest.mark.long
CLOCKS = (
    Clock(0.9, 2),
    *(pytest.param(c, marks=LONG) for c in (Clock(0.3, 1), Clock(0.55, 6), Clock(0.0, 4.0))),
)


@pytest.mark.parametrize("clock", CLOCKS)
def test_factors_of_single_modes_integrate_to_the_symbols(clock):
    """Also what training mode e has absorbed of them; coincident steps of descent are in the factors."""
    l = np.array([0.3, 1.1, 2.0])
    replay = Replay(clock, l)
    known = with_free_symbols(clock.symbols(l), l)
    assert known.absorbed is not None
    mine = {name: 0.0 for name in ("ff", "B", "IB", "A", "IA", "IIA", "IIB")}
    last = {name: 0.0 for name in mine}
    for kind in ("fluctuation", "symmetric", "ordered", "nested"):
        bins, count = replay.time_bins(kind).count, 1500
        for one, number in itertools.product(range(bins), range(count)):
            node = replay.node(kind, one, kronecker(np.array([0.2, 0.7]), number))
            absorbed = replay.absorbed(node.remaining)[2]
            for name, part in _products(kind, node.e, node.a, node.b).items():
                mine[name] = mine[name] + node.weight / count * part
                last[name] = last[name] + node.weight / count * absorbed * part
    for integrals, exact in ((mine, known.outputs), (last, known.absorbed(2))):
        for name, symbol in integrals.items():
            np.testing.assert_allclose(
                symbol + 0 * exact[name],
                exact[name],
                atol=4e-3,
                err_msg=name,
            )


def _products(kind: str, e: np.ndarray, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """The symbols, modes in order, that contractions make of the factors of a node."""

    def three(x, y, z):
        return np.einsum("a,b,c->abc", x, y, z)

    if kind == "fluctuation":
        return {"ff": np.outer(e, a)}  # the mode that stands twice, and that of the targets
    if kind == "symmetric":
        cubic = -(three(e, a, a) + three(a, e, a) + three(a, a, e)) / 6
        return {"B": (np.outer(e, a) + np.outer(a, e)) / 2, "IB": cubic}
    if kind == "ordered":
        return {"A": np.outer(e, a), "IA": -three(e, a, a) / 2, "IIB": -three(e, b, a)}
    return {"IIA": -three(b, e, a), "IIB": -three(e, b, a)}


# --- pairs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activations", [("gelu", "tanh", "gelu"), ("tanh",)])
def test_corrections_of_pairs_are_those_of_whole_tensors(activations):
    net = fw.MLP((3, *(30 + 10 * k for k in range(len(activations))), 2), activations, C_b=0.2, C_W=1.4)
    X = np.concatenate([INPUTS[:3], INPUTS[:1] * (1 + 1e-6)])  # two inputs nearly equal
    output, pairs = fw.solve(net, X, layers=(net.depth,), tensors=()).output, pair_corrections(net, X)
    assert pairs.error < 1e-8
    for mine, exact in ((pairs.G1, output.G1), (pairs.H1, output.H1)):
        np.testing.assert_allclose(mine, exact, rtol=0, atol=1e-6 * max(np.abs(output.H1).max(), 1e-9))


def test_an_input_without_variance_has_corrections_too():
    X = np.concatenate([np.zeros((1, 3)), INPUTS[:2]])
    net = fw.MLP((3, 20, 20, 1), "tanh", C_b=0.0, C_W=1.0)
    output, pairs = fw.solve(net, X, layers=(3,), tensors=()).output, pair_corrections(net, X)
    np.testing.assert_allclose(pairs.H1, output.H1, atol=1e-7)


# --- samples against whole tensors ----------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [fw.GradientFlow(0.8), fw.GradientDescent(0.05, 30), fw.GradientDescent(0.12, 2)],
    ids=["flow", "descent", "two steps"],
)
def test_every_contribution_agrees_with_whole_tensors(prepared, algorithm):
    estimate, exact = sampled(algorithm), prepared.predict(algorithm)
    assert (estimate.method, exact.method) == (fw.Sampling(samples=20_000), fw.Tensors(tolerance=1e-6))
    np.testing.assert_allclose(estimate.contributions["ntk_mean"], exact.contributions["ntk_mean"], atol=1e-7)
    for name, pull in pulls(estimate, exact).items():
        assert np.abs(pull).max() < PULL, name
    np.testing.assert_array_less(np.abs(estimate.mean - exact.mean), PULL * estimate.stderr)


@pytest.mark.long
@pytest.mark.parametrize("activations", ["gelu", ("tanh", "gelu", "tanh")])
@pytest.mark.parametrize("algorithm", [fw.GradientFlow(1.5), fw.GradientDescent(0.06, 40)])
def test_every_contribution_agrees_in_deeper_and_mixed_networks(activations, algorithm):
    widths = (3, 48, 40, 56, 2) if isinstance(activations, tuple) else (3, 48, 64, 40, 2)
    net = fw.MLP(widths, activations, C_b=0.1, C_W=1.3)
    estimate, exact = sampled(algorithm, net, samples=300_000), whole(net).predict(algorithm)
    for name, pull in pulls(estimate, exact).items():
        assert np.abs(pull).max() < PULL, name


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:corrections of order 1/n")  # half of the targets, by either method
@pytest.mark.parametrize("algorithm", [fw.GradientFlow(), pytest.param(fw.GradientDescent(0.06), marks=LONG)])
def test_the_end_of_training_is_reached_in_mean_and_variance(prepared, algorithm):
    estimate, exact = sampled(algorithm, samples=30_000, variance=True), prepared.predict(algorithm)
    for name, pull in pulls(estimate, exact).items():
        assert np.abs(pull).max() < PULL, name
    for name, pull in variance_pulls(estimate, prepared.predict(algorithm)).items():
        assert np.abs(pull).max() < PULL, name


def test_a_key_gives_the_same_bits_and_another_key_other_samples(prepared):
    algorithm = fw.GradientDescent(0.1, 5)
    one, again, other = (sampled(algorithm, samples=5000, key=key) for key in (3, 3, 4))
    np.testing.assert_array_equal(one.mean, again.mean)
    np.testing.assert_array_equal(one.stderr, again.stderr)
    assert (one.mean != other.mean).any()


@pytest.mark.long  # `test_tasks.py` interrupts a prediction too
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path):
    class Enough(Exception):
        pass

    def listen(done, total):
        if done == 20:
            raise Enough

    algorithm, options = fw.GradientDescent(0.1, 5), {"samples": 5000}
    with pytest.raises(Enough):
        sampled(algorithm, run=fw.Run(tmp_path / "run.zarr", progress=listen), **options)
    resumed = sampled(algorithm, run=fw.Run(tmp_path / "run.zarr"), **options)
    np.testing.assert_array_equal(resumed.mean, sampled(algorithm, **options).mean)


KILLED = """
import os, signal, sys, finitewidth as fw
from helpers.many_points import sampled
def listen(done, total):
    if done == 30:
        os.kill(os.getpid(), signal.SIGKILL)
sampled(fw.GradientDescent(0.1, 5), samples=5000, run=fw.Run(sys.argv[1], progress=listen))
"""


@LONG
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path):
    store, told = tmp_path / "run.zarr", []
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    command = [sys.executable, "-c", KILLED, str(store)]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}).returncode == -signal.SIGKILL
    algorithm, options = fw.GradientDescent(0.1, 5), {"samples": 5000}
    run = fw.Run(store, progress=lambda done, total: told.append(done))
    resumed = sampled(algorithm, run=run, **options)
    assert told[0] == 31, "thirty tasks were not done again"
    np.testing.assert_array_equal(resumed.mean, sampled(algorithm, **options).mean)


def test_no_training_is_no_shift():
    assert not np.any(sampled(fw.GradientDescent(0.1, 0)).contributions["dntk"])


def test_a_trajectory_is_sampled_at_each_of_its_times(prepared):
    path = fw.trajectory(
        NET, INPUTS[:6], TARGETS, INPUTS[6:], times=(2, 4), algorithm=fw.GradientDescent(0.1),
        method=fw.Sampling(samples=5000),
    )  # fmt: skip
    for steps, prediction in zip((2, 4), path.predictions, strict=True):
        exact = prepared.predict(fw.GradientDescent(0.1, steps))
        assert np.abs((prediction.mean - exact.mean) / prediction.stderr).max() < PULL


def test_many_samples_before_the_end_are_sampled_by_themselves(monkeypatch):
    monkeypatch.setattr("finitewidth.training.first_order.chosen_method.DENSE", 4)
    prepared = fw.prepare(NET, INPUTS[:6], TARGETS, INPUTS[6:])
    assert prepared.method is None, "the algorithm is not known"
    served = {how: prepared.tensors.serving(how, 6).method for how in (fw.GradientFlow(), fw.TwoStep())}
    assert set(served.values()) == {fw.LegByLeg(tolerance=1e-8)}, "the end of few is exact"
    assert prepared.tensors.serving(fw.GradientDescent(0.1, 3), 6).method == fw.Sampling()
    data = (NET, INPUTS[:6], TARGETS, INPUTS[6:])
    whole = fw.predict(*data, algorithm=fw.GradientDescent(0.1, 3), covariance=True)
    assert isinstance(whole.method, fw.Tensors)


@pytest.mark.filterwarnings("ignore::finitewidth.warnings.ExpansionWarning")  # the numbers are compared here
def test_legs_one_by_one_agree_with_whole_tensors(prepared):
    legs = fw.predict(NET, INPUTS[:6], TARGETS, INPUTS[6:], method=fw.LegByLeg(tolerance=1e-9))
    assert legs.method == fw.LegByLeg(tolerance=1e-9) and not legs.gives_variance
    np.testing.assert_allclose(legs.mean, prepared.predict().mean, rtol=1e-5)


# --- the variance -------------------------------------------------------------------------------------


def variance_pulls(estimate: fw.records.Prediction, exact: fw.records.Prediction) -> dict[str, np.ndarray]:
    """Of every contribution to the variance of each output, of all together, and averaged over outputs."""
    assert estimate.sampling is not None and estimate.sampling.variance is not None
    errors = estimate.sampling.variance.contributions
    assert {"mean_kernels", *errors} == exact.variance_contributions.keys()
    gaps = {
        name: estimate.variance_contributions[name] - exact.variance_contributions[name] for name in errors
    }
    pulls = {name: gap / errors[name] for name, gap in gaps.items()}
    pulls["all"] = (estimate.variance - exact.variance) / estimate.variance_stderr
    pulls["averaged"] = (estimate.output_variance - exact.output_variance) / estimate.output_variance_stderr
    return pulls


@pytest.mark.parametrize(
    "algorithm", [*also_long(fw.GradientFlow(0.8)), fw.GradientDescent(0.05, 30)], ids=["flow", "descent"]
)
def test_every_contribution_to_the_variance_agrees_with_whole_tensors(prepared, algorithm):
    estimate, exact = sampled(algorithm, samples=20_000, variance=True), prepared.predict(algorithm)
    for name, pull in variance_pulls(estimate, exact).items():
        assert np.abs(pull).max() < PULL, name
    for name in ("uncertainty", "variance_uncertainty"):  # samples do not know what training points add
        ratio = getattr(estimate, name) / getattr(exact, name)
        assert 1 / 8 < ratio.min() and ratio.max() < 4, name
    assert estimate.verdict == exact.verdict


@pytest.mark.long
@pytest.mark.parametrize("activations", ["gelu", ("tanh", "gelu", "tanh")])
def test_every_contribution_to_the_variance_agrees_in_deeper_networks(activations):
    widths = (3, 48, 40, 56, 2) if isinstance(activations, tuple) else (3, 48, 64, 40, 2)
    net, algorithm = fw.MLP(widths, activations, C_b=0.1, C_W=1.3), fw.GradientDescent(0.06, 40)
    prepared, estimate = whole(net), sampled(algorithm, net, samples=400_000, variance=True)
    for name, pull in variance_pulls(estimate, prepared.predict(algorithm)).items():
        assert np.abs(pull).max() < PULL, name


@pytest.mark.long
def test_many_test_samples_share_columns_of_the_variance(prepared, monkeypatch):
    monkeypatch.setattr("finitewidth.training.many_points.observables._COLUMNS", 2)
    algorithm = fw.GradientFlow(0.8)
    estimate = sampled(algorithm, samples=20_000, variance=True)
    for name, pull in variance_pulls(estimate, prepared.predict(algorithm)).items():
        assert np.abs(pull).max() < PULL, name


def test_single_precision_is_far_below_the_standard_error(monkeypatch):
    """The same samples in double precision."""
    algorithm = fw.GradientDescent(0.1, 5)
    single = sampled(algorithm, samples=5000)
    monkeypatch.setattr("finitewidth.training.many_points.sampled_training._SINGLE", 0.0)
    double = sampled(algorithm, samples=5000)
    assert (single.mean != double.mean).any()
    assert np.abs((single.mean - double.mean) / double.stderr).max() < 1e-4


@pytest.mark.long
def test_the_expected_loss_of_many_samples_is_sampled():
    data = (NET.with_widths((3, 40, 40, 2)), INPUTS[:6], TARGETS, INPUTS[6:], INPUTS[6:, :2])
    options = {"depths": (3,), "widths": (64,), "algorithm": fw.GradientFlow(0.8)}
    exact = fw.expected_loss(*data, **options)
    estimate = fw.expected_loss(*data, **options, method=fw.Sampling(samples=4000))
    assert exact.stderr == 0 and estimate.stderr > 0
    assert np.abs((estimate.total - exact.total) / estimate.stderr).max() < PULL
