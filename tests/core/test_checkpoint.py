"""Runs on disk: killed and resumed, refused to others, opened by xarray."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
import zarr
from helpers.problems import INPUTS, refused

import finitewidth as fw
from finitewidth.core import checkpoint

ROOT = Path(fw.__file__).parents[1]
X, Y = INPUTS["generic"], np.array([[0.7], [-0.4]])
NET = fw.MLP((3, 5, 4, 1), "tanh", C_b=0.1, C_W=1.2)
LONG = {"algorithm": fw.GradientDescent(0.1, 20_000), "members": 60, "key": 1}

# the same run in a process of its own, which may be killed
SCRIPT = """
import sys, numpy as np, finitewidth as fw
X = np.array({inputs})
fw.train_ensemble(
    fw.MLP((3, 5, 4, 1), "tanh", C_b=0.1, C_W=1.2), X[:2], np.array([[0.7], [-0.4]]), X[2:],
    algorithm=fw.GradientDescent(0.1, 20_000), members=60, key=1, run=fw.Run(batch_size=5, store=sys.argv[1]),
)
"""


def train(**options):
    return fw.train_ensemble(NET, X[:2], Y, X[2:], **options)


def quick(store, batch_size=3, **options):
    options = {"algorithm": fw.GradientDescent(0.1, 3), "members": 7, "key": 1, **options}
    return train(**options, run=fw.Run(store=store, batch_size=batch_size))


def started(store) -> subprocess.Popen:
    script = SCRIPT.format(inputs=X.tolist())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", script, str(store)], env=environment)


def batches_done(store: Path) -> int:
    # a write that was killed leaves a file of another name
    return sum(path.name.isdigit() for path in store.glob("batches/done/c/*"))


def wait_for(condition, seconds=120.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def assert_same_bits(one: fw.records.Ensemble, other: fw.records.Ensemble):
    for name in ("outputs", "output_covariance", "loss", "steps"):
        for first, second in zip(getattr(one, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(first, second, err_msg=name)


def test_a_run_that_was_killed_goes_on_and_ends_with_the_same_bits(tmp_path):
    store = tmp_path / "run.zarr"
    process = started(store)
    try:
        wait_for(lambda: batches_done(store) >= 2)
        process.send_signal(signal.SIGSTOP)  # it holds the store, and does not get ahead of this test
        with refused(rf"in use by process {process.pid} on host"):  # a second run on a store that is in use
            train(**LONG, run=fw.Run(store=store, batch_size=5))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = batches_done(store)
    assert 2 <= done < 12, "the run was killed between its first and its last batch"
    assert not zarr.open_group(store, mode="r").attrs["finished"]
    resumed = train(**LONG, run=fw.Run(store=store, batch_size=5))
    assert_same_bits(resumed, train(**LONG, run=fw.Run(batch_size=5)))
    assert batches_done(store) == 12 and zarr.open_group(store, mode="r").attrs["finished"]


def test_finished_batches_are_not_computed_again(tmp_path, monkeypatch):
    first = quick(tmp_path / "run.zarr")
    monkeypatch.setattr("finitewidth.experiment.ensemble.training.train_batch", pytest.fail)
    assert_same_bits(quick(tmp_path / "run.zarr"), first)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"members": 8}, "its members is 7, not 8"),
        ({"key": jax.random.fold_in(jax.random.key(1), 24)}, "its key is another one; .* or the same key"),
        ({"key": 2}, r"its key is \[0, 1\], not \[0, 2\]"),
        ({"batch_size": 2}, "its batch_size is 3, not 2"),
        ({"algorithm": fw.GradientDescent(0.2, 3)}, "its algorithm is .*learning_rate=0.1, .*not .*0.2"),
        ({"record": fw.Record(ntk=True)}, "its ntk is false, not true"),
    ],
)
def test_a_store_of_another_configuration_is_refused(tmp_path, changes, message):
    path = tmp_path / "run.zarr"
    configuration = {"version": fw.__version__, **quick(None).configuration}
    with checkpoint.opened(path, configuration, kind="ensemble"):
        pass
    with refused(f"belongs to another configuration: {message}"):
        quick(path, **changes)


def test_places_that_cannot_hold_a_store_are_refused(tmp_path):
    (tmp_path / "file").write_text("taken")
    (tmp_path / "other.zarr").mkdir()
    for path, message in (
        (tmp_path / "file" / "run.zarr", "cannot be written: .*; choose another place"),
        (tmp_path / "other.zarr", "exists and holds no ensemble, or is damaged; choose another place"),
        (tmp_path / "run.npz", "store must end in .zarr"),
    ):
        with refused(message):
            quick(path)


def test_the_lock_is_gone_when_a_run_ends_and_one_of_another_machine_is_respected(tmp_path):
    path, owner = tmp_path / "run.zarr", tmp_path / ".run.zarr.owner"
    quick(path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.zarr"]
    owner.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))
    with refused("in use by process 1 on host elsewhere; .* delete .* if that run is dead"):
        quick(path)
    owner.write_text("")  # left by a process that died before it wrote its name
    quick(path)
    assert [file.name for file in tmp_path.iterdir()] == ["run.zarr"]


def test_results_open_with_xarray_and_know_where_they_come_from(tmp_path):
    path = tmp_path / "run.zarr"
    ensemble = quick(path, record=fw.Record(at=(0,), ntk=True, kernels=True, members=True))
    with xarray.open_zarr(path) as data:
        assert data["outputs"].dims == ("record", "sample", "output")
        assert data["output_covariance"].dims == ("record", "sample", "output", "sample_2", "output_2")
        assert data["kernels"].dims == ("record", "hidden_layer", "sample", "sample_2")
        np.testing.assert_array_equal(data["outputs"], ensemble.outputs.value)
        np.testing.assert_array_equal(data["outputs_stderr"], ensemble.outputs.stderr)
        np.testing.assert_array_equal(data["point"], [0, 3])
        np.testing.assert_array_equal(data["is_trained"], [True, True, False, False])
        assert data["member_outputs"].dims == ("member", "record", "sample", "output")
        members = data["member_outputs"].values
        np.testing.assert_array_equal(ensemble.member_outputs(), members)
        np.testing.assert_array_equal(ensemble.member_outputs(2), members[:2])
        np.testing.assert_allclose(members.mean(axis=0), ensemble.outputs.value, rtol=1e-12)
        assert members.shape == (7, 2, 4, 1) and np.all(members.std(axis=0) > 0)
        configuration = json.loads(data.attrs["configuration"])
    assert configuration["version"] == fw.__version__ == data.attrs["version"]
    assert configuration["network"] == NET.to_dict() and data.attrs["key"] == [0, 1]
    assert configuration["algorithm"] == "GradientDescent(learning_rate=0.1, steps=3)"
    assert data.attrs["members"] == 7 and data.attrs["diverged"] == 0


def test_outputs_of_members_are_read_only_where_they_were_kept(tmp_path):
    for ensemble in (quick(None), quick(tmp_path / "run.zarr")):
        with refused("store has no outputs of members; .*record=fw.Record.members=True"):
            ensemble.member_outputs()


def test_an_activation_that_cannot_be_written_down_needs_no_store(tmp_path):
    net = NET.replace(activation=fw.Activation(lambda z: z - z**3 / 9, name="mine"))
    options = {"algorithm": fw.GradientDescent(0.1, 3), "members": 3, "key": 1}
    assert np.isfinite(fw.train_ensemble(net, X[:2], Y, X[2:], **options).mean.value).all()
    with refused("activation 'mine' is a function of yours and cannot be written down"):
        fw.train_ensemble(net, X[:2], Y, X[2:], **options, run=fw.Run(store=tmp_path / "run.zarr"))
