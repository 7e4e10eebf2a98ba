"""The tables [training], [ensemble], [record], [stepping] and [theory] of a run file."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from finitewidth.core.inputs import as_count
from finitewidth.core.methods import FirstOrder, LegByLeg, Sampling, Tensors
from finitewidth.core.run import Run
from finitewidth.experiment.ensemble.plan import Record, Stepping
from finitewidth.interface.runs.toml_tables import check_keys, check_kind, choice
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import Newton, TwoStep
from finitewidth.network.algorithms.stochastic import StochasticGradientDescent
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.cross_entropy import CrossEntropy
from finitewidth.network.losses.huber import Huber
from finitewidth.network.losses.logistic import Logistic
from finitewidth.network.losses.squared_error import MSE

_DESCENT = ("momentum", "nesterov", "ridge")
_ALGORITHMS = {
    "gradient_flow": (GradientFlow, ("time",)),
    "gradient_descent": (GradientDescent, ("learning_rate", "steps", "batches", *_DESCENT)),
    "stochastic_gradient_descent": (
        StochasticGradientDescent,
        ("learning_rate", "steps", "batch_size", "replacement", *_DESCENT),
    ),
    "newton": (Newton, ()),
    "two_step": (TwoStep, ()),
}
_LOSSES = {
    "mse": (MSE, ()),
    "cross_entropy": (CrossEntropy, ("temperature",)),
    "huber": (Huber, ("delta",)),
    "logistic": (Logistic, ()),
}
_OF_LOSSES = tuple(name for _, names in _LOSSES.values() for name in names)
_METHODS = {"tensors": Tensors, "leg_by_leg": LegByLeg, "sampling": Sampling}
_ARGUMENTS = {"variance": "true or false", "remember": "true, false or a number"}  # others are numbers
_PORTIONS = {"batch_size": "a number", "memory": "a number"}
_RECORD = {
    "at": "a list of numbers",
    "ntk": "true or false",
    "kernels": "true or false",
    "members": "true or false",
}
_STEPPING = {"tolerance": "a number", "max_steps": "a number", "training_error": "a number"}
_Value = TypeVar("_Value", Record, Run, Stepping)


def read_algorithm(training: Mapping, where: str) -> AbstractAlgorithm:
    """The algorithm of [training]."""
    if "algorithm" not in training:
        raise ValueError(f"{where}: 'algorithm' is missing; known are {', '.join(_ALGORITHMS)}.")
    kind, fields = _ALGORITHMS[choice("algorithm", training["algorithm"], _ALGORITHMS, where)]
    check_keys(training, ("algorithm",), (*fields, "loss", *_OF_LOSSES), where)
    try:
        return kind(**{name: training[name] for name in fields if name in training})
    except TypeError:
        needed = ", ".join(fields)
        raise ValueError(
            f"{where}: algorithm {training['algorithm']!r} needs {needed}; add what is missing."
        ) from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_loss(training: Mapping, where: str) -> AbstractLoss:
    """The loss of [training]; the squared one if none is named."""
    name = choice("loss", training.get("loss", "mse"), _LOSSES, where)
    kind, names = _LOSSES[name]
    for other in _OF_LOSSES:
        if other in training and other not in names:
            raise ValueError(f"{where}: {other} does not belong to loss {name!r}; remove it.")
    try:
        return kind(**{one: training[one] for one in names if one in training})
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_options(tables: Mapping, where: str) -> dict[str, Any] | None:
    """Options of `train_ensemble` from [ensemble], [record] and [stepping]; None: no networks are trained."""
    ensemble = tables.get("ensemble")
    if ensemble is None:
        for name in ("record", "stepping"):
            if name in tables:
                raise ValueError(
                    f"{where}: [{name}] is about networks that are trained; add a table [ensemble]."
                )
        return None
    here = f"{where}: [ensemble]"
    check_keys(ensemble, ("members", "key"), tuple(_PORTIONS), where=here)
    try:
        as_count("members", ensemble["members"], lowest=1)
        as_count("key", ensemble["key"], lowest=0)
    except ValueError as error:
        raise ValueError(f"{here}: {error}") from None
    portions = {name: ensemble[name] for name in _PORTIONS if name in ensemble}
    return {
        "members": ensemble["members"],
        "key": ensemble["key"],
        "record": _value(Record, tables.get("record", {}), _RECORD, f"{where}: [record]"),
        "method": _value(Stepping, tables.get("stepping", {}), _STEPPING, f"{where}: [stepping]"),
        "run": _value(Run, portions, _PORTIONS, here),
    }


def _value(kind: type[_Value], table: Mapping, kinds: Mapping[str, str], where: str) -> _Value:
    """A table as the value of its name."""
    check_keys(table, (), tuple(kinds), where=where)
    for name, value in table.items():
        check_kind(name, value, kinds[name], where)
    try:
        return kind(**table)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_theory(table: Mapping, where: str) -> tuple[int | None, FirstOrder | None]:
    """The order of [theory] and its method, None where the run does not say."""
    kind = None
    if "method" in table:
        kind = _METHODS[choice("method", table["method"], _METHODS, where)]
    names = [] if kind is None else [field.name for field in fields(kind)]
    for name in sorted({one.name for kind in _METHODS.values() for one in fields(kind)} - set(names)):
        if name in table and kind is None:
            known = [word for word, other in _METHODS.items() if name in {one.name for one in fields(other)}]
            raise ValueError(
                f"{where}: {name} belongs to a method; add method = {' or '.join(map(repr, known))}."
            )
    check_keys(table, (), ("order", "method", *names), where=where)
    order = table.get("order")
    if order not in (None, 0, 1) or isinstance(order, bool):
        raise ValueError(f"{where}: order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    if kind is None:
        return order, None
    arguments = {name: table[name] for name in names if name in table}
    for name, value in arguments.items():
        check_kind(name, value, _ARGUMENTS.get(name, "a number"), where)
    try:
        return order, kind(**arguments)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
