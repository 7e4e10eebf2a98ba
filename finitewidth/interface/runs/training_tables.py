"""The tables [training], [ensemble], [record], [stepping], [theory] and [sampling] of a run file."""

from collections.abc import Mapping
from typing import Any, TypeVar

from finitewidth.core.inputs import as_count
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
from finitewidth.network.losses.squared_error import MSE
from finitewidth.training.first_order.route import Route

_DESCENT = ("momentum", "nesterov", "ridge")
_ALGORITHMS = {
    "gradient_flow": (GradientFlow, ("time",)),
    "gradient_descent": (GradientDescent, ("learning_rate", "steps", *_DESCENT)),
    "stochastic_gradient_descent": (
        StochasticGradientDescent,
        ("learning_rate", "steps", "batch_size", "replacement", *_DESCENT),
    ),
    "newton": (Newton, ()),
    "two_step": (TwoStep, ()),
}
_LOSSES = {"mse": MSE, "cross_entropy": CrossEntropy}
_ROUTES = {"deterministic": None, "sampled": None}
_SAMPLING = {
    "tolerance": "a number",
    "samples": "a number",
    "budget": "a number",
    "variance": "true or false",
    "key": "a number",
}
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
    check_keys(training, ("algorithm",), (*fields, "loss"), where)
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


def read_theory(table: Mapping, where: str) -> tuple[int | None, float | None]:
    """The order of [theory] and the tolerance of its four-leg averages, None where the run does not say."""
    check_keys(table, (), ("order", "tolerance", "route"), where=where)
    order, tolerance = table.get("order"), table.get("tolerance")
    if order not in (None, 0, 1) or isinstance(order, bool):
        raise ValueError(f"{where}: order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    if tolerance is not None:
        check_kind("tolerance", tolerance, "a number", where)
        if not 0 < tolerance < 1:
            raise ValueError(f"{where}: tolerance must lie between 0 and 1, got {tolerance!r}; use 1e-8.")
    return order, tolerance


def read_route(theory: Mapping, sampling: Mapping | None, where: str) -> dict[str, Any]:
    """Options of `predict`: the `route` of [theory], and what [sampling] asks of samples."""
    route = theory.get("route")
    if route is not None:
        choice("route", route, _ROUTES, f"{where}: [theory]")
    if sampling is None:
        return {"route": route}
    if route == "deterministic":
        raise ValueError(
            f"{where}: [sampling] has no meaning where [theory] route is 'deterministic'; remove one of them."
        )
    where = f"{where}: [sampling]"
    check_keys(sampling, (), tuple(_SAMPLING), where=where)
    for name, value in sampling.items():
        check_kind(name, value, _SAMPLING[name], where)
    try:
        as_count("key", sampling.get("key", 0), lowest=0)
        Route.of(route, **sampling)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return {"route": route, **sampling}
