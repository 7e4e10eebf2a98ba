"""The tables [training], [ensemble] and [theory] of a run file."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from finitewidth.core.inputs import as_count
from finitewidth.core.methods import FirstOrder, LegByLeg, Sampling, Tensors
from finitewidth.interface.runs.toml_tables import check_keys, check_kind, choice
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import Newton, TwoStep
from finitewidth.network.algorithms.stochastic import StochasticGradientDescent
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.cross_entropy import CrossEntropy
from finitewidth.network.losses.squared_error import MSE

_ALGORITHMS = {
    "gradient_flow": (GradientFlow, ("time",)),
    "gradient_descent": (GradientDescent, ("learning_rate", "steps")),
    "stochastic_gradient_descent": (
        StochasticGradientDescent,
        ("learning_rate", "steps", "batch_size", "decay"),
    ),
    "newton": (Newton, ()),
    "two_step": (TwoStep, ()),
}
_LOSSES = {"mse": MSE, "cross_entropy": CrossEntropy}
_STOPPING = ("training_error", "tolerance", "max_steps")
_METHODS = {"tensors": Tensors, "leg_by_leg": LegByLeg, "sampling": Sampling}
_ARGUMENTS = {"variance": "true or false", "remember": "true, false or a number"}  # others are numbers
_OPTIONS = {
    "record_at": "a list of numbers",
    "ntk": "true or false",
    "kernels": "true or false",
    "batch_size": "a number",
    "memory": "a number",
    "keep_members": "true or false",
}


def read_algorithm(training: Mapping, where: str) -> AbstractAlgorithm:
    """The algorithm of [training]."""
    if "algorithm" not in training:
        raise ValueError(f"{where}: 'algorithm' is missing; known are {', '.join(_ALGORITHMS)}.")
    kind, fields = _ALGORITHMS[choice("algorithm", training["algorithm"], _ALGORITHMS, where)]
    check_keys(training, ("algorithm",), (*fields, "loss", *_STOPPING), where)
    for name in _STOPPING:
        if name in training:
            check_kind(name, training[name], "a number", where)
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
    return _LOSSES[choice("loss", training.get("loss", "mse"), _LOSSES, where)]()


def read_options(ensemble: Mapping | None, training: Mapping, where: str) -> dict[str, Any] | None:
    """Options of `train_ensemble` from [ensemble] and [training]; None if no networks are to be trained."""
    if ensemble is None:
        return None
    check_keys(ensemble, ("members", "key"), tuple(_OPTIONS), where=where)
    try:
        as_count("members", ensemble["members"], lowest=1)
        as_count("key", ensemble["key"], lowest=0)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for name, kind in _OPTIONS.items():
        if name in ensemble:
            check_kind(name, ensemble[name], kind, where)
    return {**ensemble, **{name: training[name] for name in _STOPPING if name in training}}


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
