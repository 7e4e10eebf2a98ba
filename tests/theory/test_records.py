"""What a solve keeps, stores, reports and refuses."""

import functools
import types

import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import FINE, VARIED, inputs, solved

import finitewidth as fw
from finitewidth.core import memory
from finitewidth.theory.tensors import MATRICES, TENSORS

EXACT = 1e-12

# --- what is kept, stored and refused ------------------------------------------------------------------


def test_what_was_asked_for_is_kept_and_nothing_else():
    net = fw.MLP(activation="tanh", **VARIED)
    theory = fw.solve(net, inputs(2), layers=[2, 4], tensors=("V", "U"), method=fw.Tensors(tolerance=FINE))
    assert set(theory.layers) == {2, 4} and set(theory.output.arrays) == {*MATRICES, "V", "U"}
    assert_close(theory.output.U, solved(count=2).output.U, EXACT)
    with pytest.raises(ValueError, match="layer 3 was not kept"):
        theory.layer(3)
    with pytest.raises(ValueError, match="D was not computed.*tensors="):
        theory.output.D  # noqa: B018


def test_mean_kernels_of_a_width_add_their_corrections():
    output = solved().output
    np.testing.assert_array_equal(output.G, output.K + output.G1 / 25)
    np.testing.assert_array_equal(output.H, output.Theta + output.H1 / 25)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"order": 2}, "order must be 0 .* or 1 .*got 2"),
        ({"tensors": ("Z",)}, "tensors must be among V, .*got 'Z'"),
        ({"layers": ()}, "layers must name at least one layer"),
        ({"layers": (5,)}, "layer must be a whole number from 1 to 4, got 5"),
        ({"layers": (0,)}, "layer must be a whole number from 1 to 4, got 0"),
    ],
)
def test_requests_that_cannot_be_met_say_why(options, message):
    with pytest.raises(ValueError, match=message):
        fw.solve(fw.MLP(activation="tanh", **VARIED), inputs(2), **options)


def test_tensors_at_infinite_width_name_the_remedy():
    theory = fw.solve(fw.MLP(activation="tanh", **VARIED), inputs(2), order=0)
    with pytest.raises(ValueError, match="V was not computed; use .*order=1"):
        theory.output.V  # noqa: B018
    with pytest.raises(ValueError, match="order=1"):
        theory.report()
    with pytest.raises(AttributeError, match="no attribute 'W'"):
        theory.output.W  # noqa: B018


def test_an_activation_without_a_slope_has_no_statistics_at_order_one():
    with pytest.raises(ValueError, match="perceptron.*no NTK.*order=0"):
        fw.solve(fw.MLP((4, 5, 1), "perceptron"), inputs(2))


def test_a_request_larger_than_memory_names_what_it_needs_and_what_there_is(monkeypatch):
    small = types.SimpleNamespace(available=2e6)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: small)
    with pytest.raises(ValueError, match=r"for 50 inputs needs .* GB but 0.002 GB .*layers=.*tensors="):
        fw.solve(fw.MLP(activation="tanh", **VARIED), inputs(50))


def test_an_accuracy_beyond_reach_is_refused():
    with pytest.raises(ValueError, match="tolerance"):
        fw.solve(fw.MLP(activation="tanh", **VARIED), 300 * inputs(2), method=fw.Tensors(tolerance=1e-11))


def test_labelled_statistics_have_named_slots():
    data = solved().to_xarray()
    assert data["B"].dims == ("layer", "sample_a", "sample_b", "sample_c", "sample_d")
    np.testing.assert_array_equal(data["T"].sel(layer=3), solved().layer(3).T)


def test_a_stored_theory_comes_back_bit_for_bit(tmp_path):
    path = tmp_path / "theory.zarr"
    for theory in (solved(count=2), solved()):  # the second replaces the first
        theory.save(path)
        again = fw.load(path)
        assert again.net == theory.net and again.order == 1 and set(again.layers) == set(theory.layers)
        assert (again.error, again.four_leg_error) == (theory.error, theory.four_leg_error)
        np.testing.assert_array_equal(again.X, theory.X)
        for index, layer in theory.layers.items():
            assert set(again.layer(index).arrays) == {*MATRICES, *TENSORS}
            for name, value in layer.arrays.items():
                np.testing.assert_array_equal(again.layer(index).arrays[name], value)


def test_a_store_is_refused_where_it_would_do_harm(tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.zarr"):
        solved().save(tmp_path / "theory.npz")
    foreign = tmp_path / "other.zarr"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("keep")
    with pytest.raises(ValueError, match="not a theory"):
        solved().save(foreign)
    assert (foreign / "notes.txt").read_text() == "keep"
    with pytest.raises(ValueError, match="cannot be written"):
        solved().save(tmp_path / "absent" / "theory.zarr")
    assert [entry.name for entry in tmp_path.iterdir()] == ["other.zarr"]


def test_stores_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        fw.load(tmp_path / "absent.zarr")
    path = tmp_path / "theory.zarr"
    solved().save(path)
    for chunk in (path / "V" / "c").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"not a chunk")
    with pytest.raises(ValueError, match=r"theory\.zarr' is damaged"):
        fw.load(path)
    (path / "zarr.json").write_text("{")
    with pytest.raises(ValueError, match=r"theory\.zarr' is not a readable store"):
        fw.load(path)


def test_a_report_holds_dimensionless_ratios_and_verdicts():
    report = solved().report()
    layer = solved().output
    K, Theta, rows = np.diag(layer.K), np.diag(layer.Theta), {row.name: row for row in report.rows}
    assert set(rows) == {"G1", "H1", *TENSORS}
    for name, scale in {"V": K**2, "A": Theta**2, "R": Theta**3 / K, "G1": K}.items():
        values = layer.arrays[name]
        of_sample = [scale ** (1 / values.ndim)] * values.ndim
        largest = np.abs(values / (25 * functools.reduce(np.multiply.outer, of_sample))).max()
        assert abs(rows[name].ratio) == pytest.approx(largest, rel=EXACT)
    assert report.expansion_parameter == max(abs(row.ratio) for row in report.rows)
    lines = str(report).splitlines()
    assert lines[0].startswith("layer 4, n = 25: expansion parameter") and len(lines) == 2 + len(rows)
    assert any(line.split()[0] == "V" and line.endswith(rows["V"].verdict) for line in lines[2:])


@pytest.mark.parametrize("width, verdict", [(10_000, "trusted"), (12, "doubtful"), (2, "meaningless")])
def test_narrow_networks_are_out_of_the_range_of_the_expansion(width, verdict):
    theory = fw.solve(fw.MLP((4, width, width, width, 1), "linear", lambda_b=0.0), inputs(1))
    assert theory.report().verdict == verdict
