"""Tasks on several devices and on a cluster: the same bits as in one process."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import INPUTS, refused

import finitewidth as fw
from finitewidth.core.tasks import in_any_order, in_order

ROOT = Path(fw.__file__).parents[1]
X, Y = INPUTS["generic"], np.array([[0.7], [-0.4]])
NET = fw.MLP((3, 5, 4, 1), "tanh", C_b=0.1, C_W=1.2)


def train(**options):
    descent, run = fw.GradientDescent(0.1, 5000), fw.Run(batch_size=3, **options)
    return fw.train_ensemble(NET, X[:2], Y, X[2:], algorithm=descent, members=60, key=1, run=run)


def assert_same_bits(one, other):
    for name in ("outputs", "output_covariance", "loss"):
        for first, second in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(first, second, err_msg=name)


def test_results_are_put_in_order_whoever_comes_first():
    assert list(in_order(iter([(2, "c"), (0, "a"), (3, "d"), (1, "b")]), [0, 1, 2, 3])) == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
        (3, "d"),
    ]


TWO_DEVICES = """
import jax, numpy as np, finitewidth as fw
from finitewidth.experiment.ensemble import batch
assert len(jax.local_devices()) == 2
used = set()
plain = batch._train_batch
def watched(*arguments):
    used.add(next(iter(jax.numpy.zeros(1).devices())).id)
    return plain(*arguments)
batch._train_batch = watched
X = np.array({inputs})
ensemble = fw.train_ensemble(
    fw.MLP((3, 5, 4, 1), "tanh", C_b=0.1, C_W=1.2), X[:2], np.array([[0.7], [-0.4]]), X[2:],
    algorithm=fw.GradientDescent(0.1, 5000), members=60, key=1, run=fw.Run(batch_size=3),
)
np.savez({path!r}, value=ensemble.outputs.value, covariance=ensemble.output_covariance.value)
print(sorted(used))
"""


@pytest.mark.long
def test_two_devices_share_the_batches_and_give_the_same_bits(tmp_path):
    path = str(tmp_path / "ensemble.npz")
    result = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES.format(inputs=X.tolist(), path=path)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        },
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[0, 1]"
    alone = train()
    with np.load(path) as arrays:
        np.testing.assert_array_equal(arrays["value"], alone.outputs.value)
        np.testing.assert_array_equal(arrays["covariance"], alone.output_covariance.value)


@pytest.fixture(scope="module")
def client():
    """Two worker processes."""
    from dask.distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_a_killed_worker_loses_nothing_and_a_refusal_is_not_tried_again(client, tmp_path):
    """One test, because a cluster takes three seconds to start."""
    sent = set(client.run(os.getpid).values())

    def dies_once(task):
        begun = tmp_path / f"begun-{task}"
        if task == 3 and not begun.exists():
            begun.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full(3, float(task) ** 2)

    told = dict(in_any_order(dies_once, range(12), client))
    assert len(sent) == 2 and os.getpid() not in sent and (tmp_path / "begun-3").exists()
    assert set(client.run(os.getpid).values()) != sent, "a worker was killed"
    for task in range(12):
        np.testing.assert_array_equal(told[task], task**2)

    def refuses(task):
        (tmp_path / f"tried-{len(list(tmp_path.iterdir()))}").touch()
        raise ValueError(f"task {task} is refused.")

    with refused("task 5 is refused."):
        list(in_any_order(refuses, [5], client))
    assert len(list(tmp_path.glob("tried-*"))) == 1


@pytest.mark.long
def test_leg_slices_on_a_cluster_give_the_same_bits(client, monkeypatch):
    """Five samples leg by leg; the averages of sin cost little."""
    monkeypatch.setattr("finitewidth.training.first_order.chosen_method.DENSE", 4)
    net = fw.MLP((3, 40, 30, 1), "sin", C_b=0.1)
    inputs, told = np.random.default_rng(3).standard_normal((5, 3)), []

    def mean(**options):
        data = (inputs[:3], np.sin(inputs[:3, :1]), inputs[3:])
        return fw.predict(net, *data, covariance=False, **options).mean

    on_cluster = mean(run=fw.Run(client=client, progress=lambda done, total: told.append((done, total))))
    np.testing.assert_array_equal(on_cluster, mean())
    assert told == [(n, 10) for n in range(1, 11)]  # legs


@pytest.mark.long
def test_samples_of_neurons_on_a_cluster_give_the_same_bits(client):
    net, inputs = fw.MLP((3, 40, 30, 2), "tanh", C_b=0.1), np.random.default_rng(3).standard_normal((6, 3))
    data = (inputs[:4], np.sin(inputs[:4, :2]), inputs[4:])
    options = {"algorithm": fw.GradientDescent(0.1, 4), "method": fw.Sampling(samples=10_000, key=5)}
    run = fw.Run(client=client)
    there, here = fw.predict(net, *data, run=run, **options), fw.predict(net, *data, **options)
    np.testing.assert_array_equal(there.mean, here.mean)
    np.testing.assert_array_equal(there.stderr, here.stderr)


@pytest.mark.long
def test_a_source_layer_of_a_function_of_ones_own_gives_the_same_bits(client):
    """Only cloudpickle can send the function."""
    own = fw.Activation(lambda z: jnp.tanh(z) + z / 3, name="mine")
    net = fw.MLP((3, 40, 1), own, C_b=0.1)
    there, here = fw.solve(net, X[:3], run=fw.Run(client=client)), fw.solve(net, X[:3])
    for name in "VDAFBPQRSTU":
        np.testing.assert_array_equal(getattr(there.output, name), getattr(here.output, name))


@pytest.mark.long
def test_depths_on_a_cluster_give_the_same_bits(client, tmp_path):
    def losses(**options):
        data = (X[:2], Y, X[2:], np.zeros((len(X) - 2, 1)))
        net = NET.replace(activation="sin")
        return fw.expected_loss(net, *data, depths=(2, 3, 4), widths=(64,), **options)

    there, here = losses(run=fw.Run(tmp_path / "sweep.zarr", client)), losses()
    for name in ("bias", "variance", "coefficient"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name))


@pytest.mark.long
def test_a_refusal_comes_back_from_the_cluster_as_it_is(client):
    again = X[[0, 0, 1]]
    with refused("condition number .* rows 0 and 1 of X_train are equal"):
        run = fw.Run(client=client)
        fw.expected_loss(NET, again, np.zeros((3, 1)), X, X[:, :1], depths=(2,), widths=(8,), run=run)


@pytest.mark.long
def test_a_cluster_that_loses_a_worker_gives_the_right_answer(client, tmp_path):
    """One of two is killed once two batches are done, and many are not."""
    store = tmp_path / "run.zarr"
    done = []

    def kill_one(victim):
        while len(list(store.glob("batches/done/c/*"))) < 2:
            time.sleep(0.01)
        done.append(len(list(store.glob("batches/done/c/*"))))
        os.kill(victim, signal.SIGKILL)

    workers = client.run(os.getpid)
    assert len(set(workers.values())) == 2 and os.getpid() not in workers.values()
    killer = threading.Thread(target=kill_one, args=(next(iter(workers.values())),), daemon=True)
    killer.start()
    ensemble = train(client=client, store=store)
    killer.join(timeout=10)
    sampled = fw.sample_statistics(NET, X[:1], members=40, key=1, tensors=("V",), run=fw.Run(client=client))
    assert done and 2 <= done[0] < 20, "a worker was killed while there was work"
    assert_same_bits(ensemble, train())
    here = fw.sample_statistics(NET, X[:1], members=40, key=1, tensors=("V",))
    np.testing.assert_array_equal(sampled.V.value, here.V.value)


class NoWorkers:
    def nthreads(self):
        return {}


def test_a_cluster_without_workers_is_refused():
    with refused("client has no workers; start some"):
        train(client=NoWorkers())
