"""Independent tasks of a prediction and of a sweep: stopped or killed, resumed, refused to others."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers.problems import refused
from threadpoolctl import threadpool_info

import finitewidth as fw
from finitewidth.core.checkpoint import opened
from finitewidth.core.cores import SingleThreadedProducts, on_all_cores
from finitewidth.core.tasks import HERE, in_any_order, runner

ROOT = Path(fw.__file__).parents[1]
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((6, 3))
Y = np.sin(X[:, :1])
NET = fw.MLP((3, 40, 30, 1), "sin", C_b=0.1, C_W=1.2)  # its four-leg averages cost little


def predict(**options):
    """Leg by leg: 2 source layers of 6 legs."""
    return fw.predict(NET, X[:4], Y[:4], X[4:], **{"covariance": False, **options})


def sweep(**options):
    defaults = {"depths": (2, 3), "widths": (32, 64)}
    return fw.expected_loss(NET, X[:4], Y[:4], X[4:], Y[4:], **{**defaults, **options})


@pytest.fixture
def few_are_many(monkeypatch):
    """Six samples are too many for whole tensors."""
    monkeypatch.setattr("finitewidth.training.first_order.chosen_method.DENSE", 4)


def assert_same_bits(one, other):
    for name, part in one.contributions.items():
        np.testing.assert_array_equal(part, other.contributions[name], err_msg=name)
    np.testing.assert_array_equal(one.mean, other.mean)


class StopHere(Exception):
    pass


def stop_after(tasks):
    """A listener to progress that has seen enough."""

    def listen(done, total):
        if done == tasks:
            raise StopHere

    return listen


def done_in(store, tasks):
    return int(zarr.open_group(store, mode="r")[f"{tasks}/done"][:].sum())


# --- the mechanism ------------------------------------------------------------------------------------


def squares(task):
    return {"square": np.full(3, float(task) ** 2), "plain": np.asarray(float(task))}


def test_what_was_finished_is_not_done_again_and_progress_is_told(tmp_path):
    calls, told = [], []

    def work(task):
        calls.append(task)
        return squares(task)

    def results(progress):
        place = runner(None, tmp_path / "run.zarr", progress, kind="test", configuration=dict)
        with place as running:
            return list(running.results(work, 5, name="squares", what="squaring"))

    with pytest.raises(StopHere):
        results(stop_after(2))
    computed = results(lambda done, total: told.append((done, total)))
    assert calls == [0, 1, 2, 3, 4] and told == [(3, 5), (4, 5), (5, 5)]
    for task, values in enumerate(computed):
        for name, value in squares(task).items():
            np.testing.assert_array_equal(values[name], value)
    assert not (tmp_path / ".run.zarr.lock").exists()


def test_results_become_named_arrays_for_a_store_only(tmp_path):
    """A result is any object; a store is told how to write it and how to read it."""
    written = []

    def to_arrays(result):
        written.append(result)
        return {"value": np.asarray(float(result[0, 1]))}

    def from_arrays(arrays):
        return {(0, 1): float(arrays["value"])}

    def results(running):
        work, ways = (
            (lambda task: {(0, 1): float(task)}),
            {"to_arrays": to_arrays, "from_arrays": from_arrays},
        )
        return list(running.results(work, 3, name="pairs", what="pairing", **ways))

    expected = [{(0, 1): 0.0}, {(0, 1): 1.0}, {(0, 1): 2.0}]
    assert results(HERE) == expected and not written
    with runner(None, tmp_path / "run.zarr", False, kind="test", configuration=dict) as running:
        assert results(running) == results(running) == expected == written


@pytest.mark.parametrize("at_once", [1, 2])
def test_results_come_in_order_and_errors_come_through(at_once):
    squared = HERE.results(squares, 7, name="squares", what="squaring", at_once=at_once)
    assert [float(values["plain"]) for values in squared] == list(range(7))

    def fails(task):
        raise ValueError(f"task {task} fails.")

    with refused("task . fails"):
        list(in_any_order(fails, [3, 4], at_once=at_once))


def test_what_is_no_client_is_refused():
    with refused("client must be a dask.distributed.Client, got 'tcp://somewhere:8786'"):
        fw.solve(NET, X[:2], run=fw.Run(client="tcp://somewhere:8786"))


# --- predictions --------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_prediction_that_was_stopped_goes_on_with_the_same_bits(tmp_path, few_are_many):
    """Stopped twice among its legs."""
    store = tmp_path / "run.zarr"
    for legs in (2, 5):
        with pytest.raises(StopHere):
            predict(run=fw.Run(store, progress=stop_after(legs)))
        assert done_in(store, "legs") == legs
    plain = predict()
    assert_same_bits(predict(run=fw.Run(store)), plain)
    assert done_in(store, "legs") == 12
    prepared = fw.prepare(NET, X[:4], Y[:4], X[4:], covariance=False)
    assert_same_bits(prepared.predict(run=fw.Run(tmp_path / "two.zarr")), plain)


KILLED = """
import os, signal, sys, numpy as np, finitewidth as fw
import finitewidth.training.first_order.chosen_method as choice
choice.DENSE = 4
def listen(done, total):
    if total == 12 and done == 4:
        os.kill(os.getpid(), signal.SIGKILL)
X, Y = np.array({X}), np.array({Y})
net = fw.MLP((3, 40, 30, 1), "sin", C_b=0.1, C_W=1.2)
fw.predict(net, X[:4], Y[:4], X[4:], covariance=False, run=fw.Run(sys.argv[1], progress=listen))
"""


def test_a_prediction_that_was_killed_goes_on_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("finitewidth.training.first_order.chosen_method.DENSE", 4)
    store = tmp_path / "run.zarr"
    script = KILLED.format(X=X.tolist(), Y=Y.tolist())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", script, str(store)], env=environment)
    assert killed.returncode == -signal.SIGKILL and done_in(store, "legs") == 4
    told = []
    resumed = predict(run=fw.Run(store, progress=lambda done, total: told.append(done)))
    assert told == list(range(5, 13)), "four legs were not done again"
    assert_same_bits(resumed, predict())


def test_a_store_of_another_request_or_kind_is_refused(tmp_path):
    """Source layers, which is how few samples are treated."""
    store = tmp_path / "run.zarr"
    whole = predict(covariance=True, run=fw.Run(store))
    assert done_in(store, "layers") == 2
    np.testing.assert_array_equal(whole.covariance, predict(covariance=True).covariance)
    for changes, name in (
        ({"algorithm": fw.TwoStep()}, "algorithm"),
        ({"method": fw.Tensors(tolerance=1e-7)}, "tolerance"),
        ({"covariance": False}, "covariance"),
    ):
        with refused(f"belongs to another configuration: its {name} is"):
            predict(**{"covariance": True, "run": fw.Run(store), **changes})
    with refused("belongs to another configuration: its Y_train is"):
        fw.predict(NET, X[:4], 2 * Y[:4], X[4:], run=fw.Run(store))
    with refused("belongs to another configuration: its network is"):
        fw.predict(NET.replace(C_W=1.3), X[:4], Y[:4], X[4:], run=fw.Run(store))
    with refused("exists and holds no sweep"):
        sweep(run=fw.Run(store))
    with opened(tmp_path / "held.zarr", {}, kind="prediction"), refused("held.zarr' is in use by process"):
        predict(run=fw.Run(tmp_path / "held.zarr"))
    with refused("store must end in .zarr"):
        fw.solve(NET, X, run=fw.Run(store=tmp_path / "run.npz"))
    mine = NET.replace(activation=fw.Activation(lambda z: z - z**3 / 9, name="mine"))
    with refused("activation 'mine' is a function of yours and cannot be written down"):
        fw.predict(mine, X[:4], Y[:4], X[4:], run=fw.Run(tmp_path / "mine.zarr"))
    assert {path.name for path in tmp_path.iterdir()} == {"run.zarr", "held.zarr"}


def test_projectors_are_known_by_what_they_do(tmp_path):
    store = tmp_path / "run.zarr"

    def own(factor):
        return fw.algorithms.Projectors(Z_A=lambda a, b: factor / (a * b))

    first = predict(covariance=True, algorithm=own(0.1), run=fw.Run(store))
    again = predict(covariance=True, algorithm=own(0.1), run=fw.Run(store))
    np.testing.assert_array_equal(first.mean, again.mean)
    with refused("its algorithm is .*Projectors"):
        predict(covariance=True, algorithm=own(0.2), run=fw.Run(store))


def test_sampled_statistics_that_were_stopped_go_on_with_the_same_bits(tmp_path):
    store, net = tmp_path / "run.zarr", fw.MLP((3, 4, 1), "sin")

    def sampled(**options):
        run = fw.Run(batch_size=4, **options)
        return fw.sample_statistics(net, X[:1], members=12, key=2, tensors=("V",), run=run)

    with pytest.raises(StopHere):
        sampled(store=store, progress=stop_after(8))
    assert done_in(store, "batches") == 2
    for resumed, plain in zip(sampled(store=store).V, sampled().V, strict=True):
        np.testing.assert_array_equal(resumed, plain)


# --- sweeps -------------------------------------------------------------------------------------------


def test_a_sweep_that_was_stopped_goes_on_with_the_same_bits(tmp_path):
    store = tmp_path / "sweep.zarr"
    with pytest.raises(StopHere):
        sweep(run=fw.Run(store, progress=stop_after(1)))
    told = []
    resumed = sweep(run=fw.Run(store, progress=lambda done, total: told.append((done, total))))
    assert told == [(2, 2)]
    plain = sweep()
    for name in ("total", "infinite_total", "coefficient", "target_scale"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(plain, name))
    with refused(r"its widths is \[32, 64\], not \[32, 128\]"):
        sweep(run=fw.Run(store), widths=(32, 128))


def test_a_sweep_warns_also_of_what_it_had_on_disk(tmp_path):
    for _ in range(2):
        with pytest.warns(fw.warnings.ExpansionWarning, match="order 1/n is doubtful"):
            sweep(depths=(3,), widths=(2,), run=fw.Run(tmp_path / "sweep.zarr"))


def test_products_are_single_threaded_in_any_thread():
    """threadpoolctl obeys the first thread that ever sets a limit; tasks run in others."""

    def value() -> set[int]:
        return {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"}

    def inside(_=None) -> set[int]:
        with SingleThreadedProducts():
            return value()

    before = value()
    assert inside() == {1}
    with ThreadPoolExecutor(2) as pool:
        assert all(threads == {1} for threads in pool.map(inside, range(4)))
    assert value() == before


def test_tasks_on_all_cores_may_ask_for_all_cores_themselves():
    """Threads are shared: a task that waited for others of its own would wait for ever."""

    def outer(task: int) -> int:
        return sum(result for _, result in on_all_cores(lambda inner: task * inner, range(5)))

    assert list(on_all_cores(outer, range(20))) == [(task, 10 * task) for task in range(20)]


def test_nothing_goes_on_after_a_task_has_failed():
    begun = []

    def work(task: int) -> int:
        begun.append(task)
        return 1 // (3 - task)

    with pytest.raises(ZeroDivisionError):
        list(on_all_cores(work, range(1000)))
    count = len(begun)
    assert count < 1000
    assert list(on_all_cores(lambda task: task, range(3))) == [(0, 0), (1, 1), (2, 2)]
    assert len(begun) == count
