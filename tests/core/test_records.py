"""Records show what they hold: in one line, in a notebook, as named arrays and as a figure."""

import copy
import dataclasses
import inspect
import pickle
import re
import typing
import warnings
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import finitewidth as fw
from finitewidth.core.display.numbers import number
from finitewidth.core.display.records import shown

X = np.array([[1.0, 0.5], [-0.5, 2.0], [0.3, -1.0], [2.0, 1.0]])
Y = np.array([[0.5], [-0.5], [1.0]])
NET = fw.MLP((2, 64, 64, 1), "tanh", C_b=0.1, C_W=1.2)
FLOW = fw.GradientFlow(1.0)
# described by their settings and not by results, or with a text of their own
VALUES = {"Control", "Projectors", "Record", "Run", "Schedule", "Symbols"}
VALUES |= {"FunctionSpace", "LegByLeg", "Sampling", "Stepping", "Tensors"}
ROOMS = (fw, fw.bayes, fw.critical, fw.empirical, fw.records, fw.textbook)


def public() -> dict[str, object]:
    """What users reach at the top and in the rooms of results, by name."""
    return {name: getattr(room, name) for room in ROOMS for name in room.__all__}


def from_other_rooms(kind: object) -> bool:
    """Whether this is a class of the library outside of `network`."""
    home = getattr(kind, "__module__", "")
    return isinstance(kind, type) and home.startswith("finitewidth.") and "finitewidth.network" not in home


def test_every_public_record_shows_itself_in_a_notebook():
    kinds = {n: k for n, k in public().items() if from_other_rooms(k) and not issubclass(k, Warning)}
    assert [n for n, kind in kinds.items() if n not in VALUES and not hasattr(kind, "_repr_html_")] == []


def results() -> set[type]:
    """Classes that public functions say they return, other than networks."""
    hints = [typing.get_type_hints(inspect.unwrap(f)) for f in public().values() if inspect.isfunction(f)]
    returned = [kind for hint in hints for kind in typing.get_args(hint["return"]) or (hint["return"],)]
    return {kind for kind in returned if from_other_rooms(kind)}


def test_everything_that_a_public_function_returns_shows_itself_in_a_notebook():
    assert len(results()) > 30
    assert {one.__name__ for one in results() if not hasattr(one, "_repr_html_")} <= {"Control"}


RECORDS = {
    "prediction": lambda: fw.predict(NET, X[:3], Y, X[2:], algorithm=FLOW),
    "infinite": lambda: fw.predict(NET, X[:3], Y, X[2:], order=0),
    "posterior": lambda: fw.bayes.posterior(NET, X[:3], Y, X[3:], noise=0.1, order=0),
    "evidence": lambda: fw.bayes.evidence(NET, X[:3], Y, noise=0.1, order=0),
    "fitted": lambda: fw.fit(NET, X[:3], Y),
    "trajectory": lambda: fw.trajectory(NET, X[:3], Y, X[3:], times=[0.0, 1.0], order=0),
    "kernels": lambda: fw.kernels(NET, X),
    "theory": lambda: fw.solve(NET, X, order=0),
    "layer": lambda: fw.solve(NET, X, order=0).output,
    "layer at order 1": lambda: fw.solve(NET, X[:2]).output,
    "neighbour": lambda: fw.textbook.neighbour(NET, X[0], X[1]),
    "nearby inputs": lambda: fw.textbook.delta_expansion(NET, X[0], X[0] + 0.01),
    "finite angle": lambda: fw.textbook.finite_angle(fw.MLP((2, 8, 1), "relu"), [1.0, 0.0], [0.0, 1.0]),
    "ridges": lambda: fw.choose_ridge(NET, X[:3], Y),
    "hidden layer": lambda: fw.bayes.posterior(NET, X[:3], Y, X[3:], noise=0.1, order=1).layer(1),
    "spectrum": lambda: fw.textbook.spectrum(NET, X),
    "criticality": lambda: fw.criticality("relu"),
    "susceptibilities": lambda: fw.critical.susceptibilities("tanh", K=0.5, C_W=1.0),
    "audit": lambda: fw.audit(NET),
    "information": lambda: fw.critical.information(NET, X[0]),
    "test loss": lambda: fw.predict(NET, X[:3], Y, X[3:], order=0).test_loss([[0.2]]),
    "estimate": lambda: fw.Estimate(np.float64(0.5), np.float64(0.01)),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_shows_its_numbers_in_one_line_and_as_a_table(name):
    record = RECORDS[name]()
    line = repr(record)
    assert line.startswith(f"{type(record).__name__}(") and "\n" not in line and " at 0x" not in line
    assert re.search(r"\d", line)
    assert repr(pickle.loads(pickle.dumps(record))) == repr(copy.deepcopy(record)) == line
    table = ElementTree.fromstring(record._repr_html_())  # well formed
    labels = [cell.text for cell in table.iter("th")]
    assert len(labels) >= 2 and all(f"{str(label).replace(' ', '_')}=" in line for label in labels)


def test_eight_threads_at_once_get_what_each_gets_alone():
    names = ("prediction", "posterior", "trajectory", "kernels", "ridges", "spectrum", "audit", "information")
    with ThreadPoolExecutor(8) as threads:
        together = [*threads.map(lambda name: repr(RECORDS[name]()), names)]
    assert together == [repr(RECORDS[name]()) for name in names]


def test_a_prediction_shows_mean_and_spread():
    record = RECORDS["infinite"]()
    mean, std = (", ".join(number(x, 4) for x in part.ravel()) for part in (record.mean, record.std))
    assert f"mean=[{mean}], std=[{std}], order=0" in repr(record)


def test_named_arrays():
    data = RECORDS["trajectory"]().to_xarray()
    assert dict(data.sizes) == {"time": 2, "sample": 1, "output": 1}
    record = RECORDS["infinite"]()
    data = record.to_xarray()
    np.testing.assert_array_equal(data["mean"], record.mean)
    assert data["std"].dims == ("sample", "output") and data.attrs["record"] == repr(record)


ERRORS = {"stderr", "uncertainty", "variance_stderr", "variance_uncertainty"}


def test_a_sampled_prediction_shows_its_errors_and_how_many_neurons_were_drawn():
    sampling = fw.Sampling(samples=2000, variance=True, key=1)
    record = fw.predict(NET, X[:3], Y, X[2:], algorithm=FLOW, method=sampling)
    line, data = repr(record), record.to_xarray()
    assert all(f"{name}=[" in line for name in ERRORS) and f"samples={record.sampling.samples}" in line
    for name in ERRORS:
        np.testing.assert_array_equal(data[name], getattr(record, name))
        assert f">{name.replace('_', ' ')}<" in record._repr_html_()


def test_errors_that_nothing_has_are_not_shown():
    line, data = repr(RECORDS["infinite"]()), RECORDS["infinite"]().to_xarray()
    assert not [name for name in (*ERRORS, "samples") if f"{name}=" in line or name in data]
    record = RECORDS["prediction"]()
    assert ERRORS & set(record.to_xarray()) == {"uncertainty", "variance_uncertainty"}
    assert "variance_uncertainty=[" in repr(record) and "stderr=" not in repr(record)


def test_a_posterior_shows_its_uncertainties():
    record = fw.bayes.posterior(NET, X[:3], Y, X[3:], noise=0.1, order=1)
    data = record.to_xarray()
    for name in ("uncertainty", "variance_uncertainty"):
        np.testing.assert_array_equal(data[name], getattr(record, name))
        assert f"{name}=[" in repr(record)


def test_a_trajectory_has_the_errors_of_its_elements_and_their_worst_verdict():
    narrow = fw.MLP((2, 4, 4, 1), "tanh", C_W=1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
        path = fw.trajectory(narrow, X[:3], 30 * Y, X[2:], times=[0.0, 3.0])
    assert path[0].verdict == "trusted" and path[1].verdict == path.verdict == "meaningless"
    np.testing.assert_array_equal(path.uncertainty[1], path[1].uncertainty)
    assert not path.stderr.any() and "stderr" not in path.to_xarray()
    assert path.to_xarray()["uncertainty"].dims == ("time", "sample", "output")


def test_a_trajectory_of_drawn_members_has_standard_errors():
    two, entropy = fw.MLP((2, 8, 2), "tanh"), fw.CrossEntropy()
    labels = fw.losses.one_hot([0, 1, 0], 2)
    drawn = fw.FunctionSpace(members=20)
    path = fw.trajectory(two, X[:3], labels, X[3:], times=[0.5, 1.0], loss=entropy, order=0, method=drawn)
    np.testing.assert_array_equal(path.stderr[1], path[1].mean.stderr)
    assert path.verdict == "trusted" and not path.uncertainty.any() and "stderr=[" in repr(path)


def test_records_draw_themselves():
    figure = RECORDS["spectrum"]().plot()
    assert figure.axes and not hasattr(RECORDS["kernels"](), "plot")


@shown("mean", "missing", "refused", dimensions={"estimate": "sample"})
@dataclasses.dataclass(frozen=True)
class Invented:
    mean: np.ndarray
    estimate: fw.Estimate
    verdict: str = "within <range>"

    @property
    def refused(self):
        raise ValueError("was not computed")


def test_what_a_record_does_not_have_is_left_out():
    record = Invented(np.arange(12.0).reshape(3, 4), fw.Estimate(np.ones(2), np.zeros(2)))
    assert repr(record) == "Invented(mean=3 x 4 from 0 to 11, verdict=within <range>)"
    assert "within &lt;range&gt;" in record._repr_html_()
    assert set(record.to_xarray()) == {"estimate", "estimate_stderr"}


def test_the_range_of_an_array_is_that_of_its_numbers():
    some = Invented(np.array([[1.0, 2.0, np.nan, 4.0], [np.nan, 5.0, 6.0, 7.0]]), fw.Estimate(0.0, 0.0))
    assert "mean=2 x 4 from 1 to 7, 2 missing" in repr(some)
    assert "mean=8, all missing" in repr(Invented(np.full(8, np.nan), fw.Estimate(0.0, 0.0)))


@pytest.mark.parametrize(
    "value, text",
    [
        (110.3, "110"),
        (0.012345, "0.0123"),
        (123456.0, "123000"),
        (1234567.0, "1.23e6"),
        (9.8e-20, "9.8e-20"),
        (0.0, "0"),
        (-2.0, "-2"),
        (999999.0, "1e6"),
        (float("inf"), "infinite"),
        (float("nan"), "not a number"),
    ],
)
def test_numbers_are_as_people_write_them(value, text):
    assert number(value) == text
