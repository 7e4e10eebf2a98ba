"""The tables [training], [ensemble], [theory] and [sampling] of a run file."""

from collections.abc import Mapping
from typing import Any

from finitewidth.core.inputs import as_count
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
_STOPPING = ("training_error", "tolerance", "max_steps")
_ROUTES = {"deterministic": None, "sampled": None}
_SAMPLING = {
    "tolerance": "a number",
    "samples": "a number",
    "budget": "a number",
    "variance": "true or false",
    "key": "a number",
}
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
