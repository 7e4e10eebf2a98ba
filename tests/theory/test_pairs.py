"""Kernels in panels: the same numbers as in one piece, after a kill and on workers; training from disk."""

import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.core.checkpoint import open_group
from finitewidth.theory.pairs import panels
from finitewidth.training.infinite import iterative

NET = fw.MLP((4, 32, 32, 2), "relu", C_b=0.05, C_W=2.0)
IMAGES = fw.Network(
    (4, 4, 1), fw.Conv(8, C_W=2.0), "relu", fw.Conv(8, C_W=2.0), "relu", fw.GlobalAveragePool(), fw.Dense(1)
)


def inputs(count, *shape):
    return np.random.default_rng(count).normal(size=(count, *shape))


@pytest.fixture
def small_panels(monkeypatch):
    monkeypatch.setattr(panels, "_WIDEST", 16)
    monkeypatch.setattr(iterative, "LANDMARKS", 12)


@pytest.mark.parametrize("net", [NET, IMAGES], ids=["perceptron", "images"])
def test_panels_are_the_parts_of_the_kernel(net, small_panels, tmp_path):
    X, other = inputs(37, *net.input_shape), inputs(5, *net.input_shape)
    other[2] = X[20]
    for second in (None, other):
        whole = fw.kernels(net, X, second)
        parts = fw.kernels(net, X, second, run=fw.Run(store=tmp_path / f"{second is None}.zarr"))
        np.testing.assert_allclose(parts.K, whole.K, rtol=1e-13)
        np.testing.assert_allclose(parts.Theta, whole.Theta, rtol=1e-13)
        assert parts.error <= whole.error * (1 + 1e-9)


@pytest.mark.parametrize("net", [NET, IMAGES], ids=["perceptron", "images"])
def test_whoever_watches_progress_gets_the_same_bits(net, small_panels):
    X, told = inputs(300 if net is NET else 37, *net.input_shape), []
    plain = fw.kernels(net, X)
    watched = fw.kernels(net, X, run=fw.Run(progress=lambda done, total: told.append((done, total))))
    assert np.array_equal(plain.K, watched.K) and np.array_equal(plain.Theta, watched.Theta)
    total = told[0][1]
    assert told == [(done, total) for done in range(1, total + 1)]


def test_finished_panels_are_not_computed_again(small_panels, tmp_path, monkeypatch):
    X, place = inputs(37, 4), tmp_path / "kernel.zarr"
    before = fw.kernels(NET, X, run=fw.Run(store=place))
    done = open_group(place)[f"{panels.NAME}/done"]
    done[3] = 0  # as if the run had been killed before this panel
    computed = []
    original = panels._panel
    monkeypatch.setattr(panels, "_panel", lambda *given: computed.append(given[-1]) or original(*given))
    after = fw.kernels(NET, X, run=fw.Run(store=place))
    assert computed == [3]
    assert np.array_equal(before.Theta, after.Theta) and np.array_equal(before.K, after.K)
    with refused("belongs to another configuration: its X"):
        fw.kernels(NET, X + 1, run=fw.Run(store=place))


def test_training_from_disk_is_training_in_memory(small_panels, tmp_path):
    X, X_test = inputs(60, 4), inputs(6, 4)
    Y = np.sin(X[:, :2])
    for ridge in (0.0, 0.01):
        memory = fw.fit(NET, X, Y, ridge=ridge)
        disk = fw.fit(NET, X, Y, ridge=ridge, accuracy=1e-10, run=fw.Run(tmp_path / "kernel.zarr"))
        mean, std = disk.mean_and_std(X_test)
        assert max(disk.response.reached) <= 1e-10
        np.testing.assert_allclose(mean, memory.mean(X_test), atol=1e-7)
        np.testing.assert_allclose(std, memory.std(X_test), atol=1e-7)
        np.testing.assert_allclose(
            disk.predict(X_test).covariance, memory.predict(X_test).covariance, atol=1e-7
        )


def test_accuracy_that_is_not_reached_is_said(small_panels, tmp_path, monkeypatch):
    monkeypatch.setattr(iterative, "MOST_ITERATIONS", 2)
    X = inputs(60, 4)
    with pytest.warns(fw.warnings.AccuracyWarning, match="not accuracy=1e-12, in 2 iterations; add a ridge"):
        fitted = fw.fit(NET, X, X[:, :2], accuracy=1e-12, run=fw.Run(tmp_path / "kernel.zarr"))
    residual = fw.kernels(NET, X).Theta @ fitted.weights - X[:, :2]
    reached = (np.linalg.norm(residual, axis=0) / np.linalg.norm(X[:, :2], axis=0)).max()
    np.testing.assert_allclose(fitted.response.reached, [reached], rtol=1e-6)


def test_training_that_needs_eigenmodes_is_refused_from_disk(tmp_path):
    X = inputs(10, 4)
    with refused("store needs networks trained to the end and no cutoff"):
        fw.fit(NET, X, X[:, :2], algorithm=fw.GradientFlow(time=2.0), run=fw.Run(tmp_path / "kernel.zarr"))


def test_panels_on_a_cluster_have_the_same_bits(small_panels, tmp_path):
    distributed = pytest.importorskip("dask.distributed")
    X = inputs(40, 4)
    here = fw.kernels(NET, X, run=fw.Run(store=tmp_path / "here.zarr"))
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = fw.kernels(NET, X, run=fw.Run(client=client))
    assert np.array_equal(here.Theta, there.Theta)
