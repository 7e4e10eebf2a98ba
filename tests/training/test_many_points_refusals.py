"""What order 1/n in samples of neurons refuses: requests it does not know, budgets, and memory."""

import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.many_points import INPUTS, NET, TARGETS, sampled

import finitewidth as fw
from finitewidth.core.display.durations import spoken
from finitewidth.training.first_order import leg_by_leg_cost, prepared
from finitewidth.training.many_points import estimation
from finitewidth.training.many_points.allocation import Tally, effective_batches, likely_work_for, work_for
from finitewidth.training.many_points.sampling_tasks import SamplingTasks, Stratum


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 10**10, "budget": 90.0}, r"above budget=90 s; use samples=\d+, or raise the budget"),
        ({"samples": None, "tolerance": 1e-6, "budget": 5.0}, "raise one of the two: no earlier time fits"),
        ({"samples": 10}, "samples must be"),
        ({"tolerance": 0.1}, "not both"),
        ({"samples": None, "tolerance": -1.0}, "tolerance must be"),
        ({"covariance": True}, "gives the mean and, with variance=True"),
    ],
)
def test_what_cannot_be_sampled_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        sampled(fw.GradientDescent(0.02, 50), **options)


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (
            fw.GradientFlow(1e20),
            r"time=1e\+20 is l_max T = .*, above 1e\+08.*; stop at time=\d.*\(time=math.inf, method=",
        ),
        (
            fw.GradientDescent(0.02, 10**15),
            r"steps=1e\+15 is l_max T = .*; stop at steps=\d+ \(l_max T = 1000\)",
        ),
        (fw.GradientDescent(1e-14, 10**15), r"more than 1e\+09, .* use .*fw.GradientFlow\(10\)"),
    ],
)
def test_a_training_too_long_for_bins_of_time_is_refused_at_once(monkeypatch, algorithm, words):
    monkeypatch.setattr(estimation._Sampling, "run", lambda *_: pytest.fail("neurons were drawn"))
    with pytest.raises(ValueError, match=words):
        sampled(algorithm, samples=None, budget=20.0)


@pytest.mark.parametrize("kept", [False, True])
def test_a_pilot_that_is_longer_than_the_budget_is_ended(monkeypatch, tmp_path, kept):
    """Tasks that say they took ten seconds: after a few of them, and no earlier time is tried in vain."""
    drawn, draw = [], SamplingTasks.__call__

    def slow(tasks: SamplingTasks, task: int) -> dict:
        drawn.append(task)
        return {**draw(tasks, task), "seconds": np.asarray(10.0)}

    monkeypatch.setattr(SamplingTasks, "__call__", slow)
    store = tmp_path / "run.zarr" if kept else None
    words = r"the pilot alone, \d+ tasks .* l_max T = .* needs about \d+ hours, above budget=200 s; "
    with pytest.raises(ValueError, match=words + "raise the budget: no earlier time"):
        sampled(fw.GradientFlow(1e5), samples=None, budget=200.0, run=fw.Run(store))
    assert len(drawn) < 40


@pytest.mark.parametrize("samples", [1000, 5000, 20_000])
def test_samples_are_the_number_of_neurons(samples):
    """The pilot is part of them; where batches are few, the record says what that means."""
    sampling = sampled(fw.GradientDescent(0.1, 5), samples=samples, variance=True).sampling
    assert sampling is not None and sampling.variance is not None
    for drawn in (sampling.samples, sampling.variance.samples):
        assert 0.95 * samples <= drawn <= samples
    assert (sampling.note is not None) == (sampling.batches < 100)
    if samples == 1000:
        assert "10 to 20 percent too small" in repr(sampling)


@pytest.mark.filterwarnings("ignore::finitewidth.warnings.ExpansionWarning")
def test_samples_too_few_for_a_standard_error_are_refused():
    with pytest.raises(
        ValueError, match=r"samples=1000 are too few .*; use samples=(\d+) or more"
    ) as refusal:
        sampled(fw.GradientFlow(1e5), samples=1000)
    named = re.search(r"use samples=(\d+)", str(refusal.value))
    assert named is not None
    estimate = sampled(fw.GradientFlow(1e5), samples=int(named[1])).sampling
    assert estimate is not None and estimate.samples == int(named[1])


def test_a_refusal_names_a_time_that_fits_the_budget(monkeypatch):
    """With one second for a unit of work, whatever the machine; the first earlier time is too late still."""
    monkeypatch.setattr(estimation._Sampling, "seconds_of_work", 1.0)
    options = {"samples": None, "tolerance": 0.05, "budget": 800.0}
    with pytest.raises(ValueError, match="above budget=800 s, in which 0.[0-9]+ of the largest") as refusal:
        sampled(fw.GradientDescent(0.02, 4000), **options)
    named = re.search(r"or stop at steps=(\d+), where about (\d+) s are enough\.$", str(refusal.value))
    assert named is not None and int(named[2]) <= 400
    assert sampled(fw.GradientDescent(0.02, int(named[1])), **options).sampling.accuracy <= 0.05


def test_the_end_leg_by_leg_is_refused_before_it_begins(monkeypatch):
    """By a pilot, with the number of inputs that would do; forced onto few samples."""
    monkeypatch.setattr(leg_by_leg_cost, "_QUICK", 4)
    data = (NET, INPUTS[:6], TARGETS, INPUTS[6:])
    monkeypatch.setattr(leg_by_leg_cost, "_processor_seconds", lambda slices: 3200.0)
    monkeypatch.setattr(leg_by_leg_cost, "available", lambda: 2)
    words = (
        "end of training of 6 inputs needs about 1600 s leg by leg, above budget=100 s; raise the budget, "
    )
    with pytest.raises(ValueError, match=words + "pass at most 3 inputs, or stop at time="):
        fw.predict(*data, method=fw.LegByLeg(budget=100))
    with pytest.raises(ValueError, match=r"budget=5 s; raise the budget, pass at most \d inputs\.$"):
        fw.predict(*data, method=fw.LegByLeg(budget=5))  # too short for samples, which take minutes


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (
            fw.Sampling(),
            r"order 1/n for 120 inputs needs .* GB .* pass at most (\d+) inputs, training and test",
        ),
        (
            fw.Tensors(),
            r"for 120 inputs needs .*covariance=False.*variance=True\), or pass at most (\d+) inputs",
        ),
    ],
)
def test_a_refusal_for_memory_says_how_many_inputs_fit(monkeypatch, method, words):
    available = SimpleNamespace(available=8e6)
    monkeypatch.setattr("finitewidth.core.memory.psutil.virtual_memory", lambda: available)
    X = np.random.default_rng(5).standard_normal((120, 3))
    with pytest.raises(ValueError, match=words) as refusal:
        fw.prepare(NET, X[:100], np.zeros((100, 2)), X[100:], method=method)
    named = re.search(words, str(refusal.value))
    assert named is not None and 5 < int(named[1]) < 120


def test_noise_does_not_make_an_accuracy_look_cheap():
    """A shift that is lost in the noise of a pilot is believed to be a third of what it seems."""
    draws = np.random.default_rng(0).standard_normal((4, 1, 30, 2))
    lost, seen = Tally(), Tally()
    for noise in draws:
        for tally, shift in ((lost, 0.0), (seen, 100.0)):
            tally.add({"contributions": noise + shift, "seconds": np.asarray(1.0)})
    stratum = Stratum(0, "ordered", 0)
    for tally, factor in ((lost, 9.0), (seen, 1.0)):
        likely, naive = (f({stratum: tally}, 0.03) for f in (likely_work_for, work_for))
        assert likely == pytest.approx(factor * naive, rel=1e-3)


def test_a_standard_error_rests_on_as_many_batches_as_the_rule_of_welch_and_satterthwaite_counts():
    """One stratum has as many degrees of freedom as tasks, minus one; two add their squared errors."""

    def tally(*values):
        one = Tally()
        for value in values:
            one.add({"contributions": np.full((1, 1, 1), value), "seconds": np.asarray(1.0)})
        return one

    few, many = tally(1.0, 3.0), tally(0.0, 0.0, 3.0, 3.0, 3.0, 3.0)  # variances of the mean 1 and 2.4 / 6
    first, second = Stratum(0, "ordered", 0), Stratum(1, "ordered", 0)
    assert effective_batches({first: few}) == pytest.approx(1)
    assert effective_batches({second: many}) == pytest.approx(5)
    assert effective_batches({first: few, second: many}) == pytest.approx(1.4**2 / (1 / 1 + 0.4**2 / 5))
    assert effective_batches({first: tally(2.0, 2.0)}) == np.inf


def test_other_algorithms_and_skips_are_not_sampled():
    with pytest.raises(ValueError, match="cannot be replayed"):
        sampled(fw.TwoStep())
    net = fw.Network(3, fw.Dense(8), fw.Residual("tanh", fw.Dense(8)), "tanh", fw.Dense(2))
    with pytest.raises(ValueError, match="dense networks only"):
        sampled(fw.GradientDescent(0.02, 3), net)


@pytest.mark.long
def test_a_refused_run_goes_on_with_a_larger_budget(tmp_path, monkeypatch):
    """One second for a unit of work, whatever the machine; the pilot that refused is in the store."""
    monkeypatch.setattr(estimation._Sampling, "seconds_of_work", 1.0)
    store, told, counts = tmp_path / "run.zarr", [], []
    algorithm, options = fw.GradientDescent(0.1, 5), {"samples": None, "tolerance": 0.3}
    with pytest.raises(ValueError, match="above budget=1 s"):
        sampled(algorithm, run=fw.Run(store), budget=1.0, **options)
    resumed = sampled(algorithm, run=fw.Run(store, progress=lambda done, total: told.append(done)), **options)
    listening = fw.Run(progress=lambda done, total: counts.append(done))
    plain = sampled(algorithm, run=listening, **options)
    assert 0 < len(told) < len(counts)
    np.testing.assert_array_equal(resumed.mean, plain.mean)


WORDS = """
import finitewidth as fw
for ask in (lambda: fw.Sampling(variance="yes"), lambda: fw.Run(progress="yes")):
    try:
        ask()
    except ValueError as error:
        print(error)
"""


def test_words_are_not_taken_as_true():
    """In a process of its own, where no types are checked."""
    said = subprocess.run([sys.executable, "-c", WORDS], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [
        "variance must be True or False, got 'yes'.",
        "progress must be True, False, None or a function of two numbers, got 'yes'.",
    ]


@pytest.mark.parametrize("skips", [False, True])
def test_a_finite_time_that_no_method_reaches_is_refused_before_any_work(monkeypatch, skips):
    """With the number of inputs that fits, and no advice that is refused in turn."""
    monkeypatch.setattr(prepared, "prepare_with", lambda *_: pytest.fail("work"))
    net = fw.Network(3, fw.Dense(8), fw.Residual("tanh", fw.Dense(8)), "tanh", fw.Dense(2)) if skips else NET
    X = np.random.default_rng(5).standard_normal((80, 3))
    remedy = r"use method=fw.Tensors\(\)" if skips else r"use method=fw.Sampling\(\)"
    words = f"order 1/n of 80 inputs needs whole tensors.*; pass at most 64 .*, {remedy}.*, train to the end"
    method = None if skips else fw.LegByLeg()
    with pytest.raises(ValueError, match=words) as refusal:
        fw.predict(net, X, np.zeros((80, 2)), algorithm=fw.GradientFlow(0.01), method=method)
    assert skips != ("Sampling" in str(refusal.value))
    with pytest.raises(ValueError, match=words):
        fw.trajectory(net, X, np.zeros((80, 2)), times=[0.01], method=method)


def test_a_store_names_the_argument_that_differs(tmp_path):
    run, algorithm = fw.Run(tmp_path / "run.zarr"), fw.GradientDescent(0.1, 5)
    sampled(algorithm, samples=2000, run=run)
    with pytest.raises(ValueError, match="its samples is 2000, not 3000; use another store"):
        sampled(algorithm, samples=3000, run=run)
    with pytest.raises(ValueError, match="its key is 0, not 3; use another store"):
        sampled(algorithm, samples=2000, key=3, run=run)
    with pytest.raises(ValueError, match='its method is "Sampling", not "Tensors"; use another store'):
        fw.predict(NET, INPUTS[:6], TARGETS, INPUTS[6:], algorithm=algorithm, run=run)


def test_times_are_said_as_people_say_them():
    said = [spoken(seconds) for seconds in (1600.4, 40 * 3600, 12 * 86400, 3e15)]
    assert said == ["about 1600 s", "about 40 hours", "about 12 days", "more than a year"]


def test_a_trajectory_without_deviations_says_what_it_takes():
    path = fw.trajectory(NET, INPUTS[:6], TARGETS, INPUTS[6:], times=[0.1], method=fw.Sampling(samples=2000))
    with pytest.raises(ValueError, match=r"use fw.trajectory\(..., method=fw.Sampling\(variance=True\)\)"):
        _ = path.std
