"""Nothing is dropped silently: every argument of a public function acts, or is refused in one sentence.

All pairs of an argument with an order and a method are tried. An argument acts if the record that comes
back differs, a store if there is a file, a listener if it is told of progress, a client if it is asked for
workers.
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from helpers.arguments import ALWAYS, METHODS_CHANGED, ROWS, UNTRIED, Either, NoWorkers, Row

import finitewidth as fw

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ROOMS = {"": fw, "bayes": fw.bayes, "critical": fw.critical, "textbook": fw.textbook}
NAMED = ("order", "method", "run")  # which make a function choose


def public_functions() -> dict[str, Any]:
    """The functions at the top and in the rooms that take an order, a method or a run."""
    found = {}
    for room, module in ROOMS.items():
        for name in module.__all__ if room else dir(module):
            value = getattr(module, name)
            if inspect.isfunction(value) and set(NAMED) & set(inspect.signature(value).parameters):
                found[f"{room}.{name}" if room else name] = value
    return found


def fingerprint(value: Any, seen: int = 0) -> Any:
    """All numbers of a record and the values it names, as something that can be compared."""
    if isinstance(value, np.ndarray | np.generic):
        return value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((repr(key), fingerprint(part, seen)) for key, part in value.items())
    if isinstance(value, tuple | list):
        return tuple(fingerprint(part, seen) for part in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and seen < 5:
        parts = (getattr(value, field.name) for field in dataclasses.fields(value))
        return type(value).__name__, *(fingerprint(part, seen + 1) for part in parts)
    return value if isinstance(value, int | float | str | None) else type(value).__name__


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a call gave: a sentence that refuses it, or all numbers of its record."""

    refusal: str | None
    record: Any = None


def outcome(row: Row, given: Mapping[str, Any]) -> Outcome:
    try:
        return Outcome(None, fingerprint(row.call(**given)))
    except ValueError as error:
        return Outcome(str(error))
    except BeartypeCallHintViolation:  # by the checks of types in tests; `as_method` refuses for users
        return Outcome("its type has no meaning here.")


def given(label: str, number: int) -> Mapping[str, Any]:
    return {**ROWS[label].given, **ROWS[label].choices[number]}


@functools.cache
def unchanged(label: str, number: int) -> Outcome:
    """The same for all arguments that are changed, so it is computed once."""
    return outcome(ROWS[label], given(label, number))


def is_one_sentence(words: str) -> bool:
    return words.endswith(".") and "\n" not in words and ". " not in words.replace("e.g. ", "")


def acts_or_is_refused(label: str, number: int, changed: Mapping[str, Any]) -> bool:
    """Whether a changed call says what is wrong, or has another record than the call as given."""
    now = outcome(ROWS[label], {**given(label, number), **changed})
    if now.refusal is not None:
        assert is_one_sentence(now.refusal), now.refusal
        return True
    before = unchanged(label, number)
    return before.refusal is not None or now.record != before.record


CHOICES = [(label, number) for label, row in ROWS.items() for number in range(len(row.choices))]
# which compile a program for most arguments
SLOW = {
    "extrapolate",
    "train_ensemble",
    "sample_statistics",
    "bayes.sample",
    "expected_loss",
    "predict, of classes",
}


def cases(rows: list[tuple[str, int, str]]) -> list[Any]:
    """Parameters of a test, with what is left to `make test-long`."""
    slow = (row[0] in SLOW or row[0] == "predict" and row[2] in ("store", "samples") for row in rows)
    return [
        pytest.param(*row, marks=pytest.mark.long if one else ()) for row, one in zip(rows, slow, strict=True)
    ]


@pytest.mark.parametrize(
    ("label", "number", "argument"),
    cases([(label, number, argument) for label, number in CHOICES for argument in ROWS[label].changes]),
)
def test_an_argument_acts_or_is_refused(label, number, argument):
    value = ROWS[label].changes[argument]
    others = value if isinstance(value, Either) else (value,)
    assert any(acts_or_is_refused(label, number, {argument: other}) for other in others)


@pytest.mark.parametrize(
    ("label", "number", "name"),
    cases(
        [
            (label, number, name)
            for label, number in CHOICES
            for name in METHODS_CHANGED.get(type(given(label, number).get("method")), {})
            if (label, name) not in ALWAYS
        ]
    ),
)
def test_an_argument_of_a_method_acts_or_is_refused(label, number, name):
    method = given(label, number)["method"]
    other = dataclasses.replace(method, **{name: METHODS_CHANGED[type(method)][name]})
    assert acts_or_is_refused(label, number, {"method": other})


@pytest.mark.parametrize(
    ("label", "number", "name"),
    cases(
        [
            (label, number, field.name)
            for label, number in CHOICES
            if "run" in inspect.signature(ROWS[label].call).parameters
            for field in dataclasses.fields(fw.Run)
        ]
    ),
)
def test_a_run_acts_or_is_refused(label, number, name, tmp_path):
    told: list[int] = []
    store = tmp_path / "run.zarr"
    value = {
        "store": store,
        "client": NoWorkers(),
        "progress": lambda done, total: told.append(done),
        "batch_size": 2,
        "memory": 1.0,  # too little for anything
    }[name]
    now = outcome(ROWS[label], {**given(label, number), "run": fw.Run(**{name: value})})
    if now.refusal is not None:
        assert is_one_sentence(now.refusal), now.refusal
        return
    acted = {"store": store.exists(), "progress": bool(told), "batch_size": True}
    assert acted.get(name, False), f"{name} is dropped without a word"


def test_the_table_has_every_function_and_argument():
    functions = {row.call: name for name, row in ROWS.items()}
    missing = {name for name, function in public_functions().items() if function not in functions}
    assert not missing
    for name, row in ROWS.items():
        known = {*row.given, *row.changes, *NAMED, *(key for choice in row.choices for key in choice)}
        assert set(inspect.signature(row.call).parameters) <= known, name


def test_the_table_has_every_argument_of_a_method():
    for kind, changes in METHODS_CHANGED.items():
        names = {field.name for field in dataclasses.fields(kind)}
        assert names == set(changes) | UNTRIED.get(kind, set()), kind


def test_no_function_takes_more_than_twelve_arguments():
    for name, function in public_functions().items():
        assert len(inspect.signature(function).parameters) <= 12, name


def test_the_order_is_one_by_default_everywhere():
    defaults = {
        name: inspect.signature(function).parameters["order"].default
        for name, function in public_functions().items()
        if "order" in inspect.signature(function).parameters
    }
    assert defaults.pop("learning_curve") == 0  # whose order 1 is not known
    assert set(defaults.values()) == {1}, defaults


def test_a_sentence_is_told_from_two():
    assert is_one_sentence("order must be 0 or 1, got 1.5; use 1.")
    assert not is_one_sentence("That is wrong. Use 1.") and not is_one_sentence("no end")
