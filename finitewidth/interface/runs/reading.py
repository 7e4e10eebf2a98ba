"""What to run: the embedded example, or a TOML file that names a network, its data and its training."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from finitewidth.core.inputs import as_count
from finitewidth.interface.runs.data_files import read_matrix
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import Newton, TwoStep
from finitewidth.network.algorithms.stochastic import StochasticGradientDescent
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.losses.cross_entropy import CrossEntropy
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.mlp import MLP

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
_TABLES = ("training", "ensemble", "theory")
_HYPERPARAMETERS = ("C_b", "C_W", "lambda_b", "lambda_W")
_ARRAYS = ("train_inputs", "train_targets", "test_inputs")
_OPTIONS = {
    "record_at": "a list of numbers",
    "ntk": "true or false",
    "kernels": "true or false",
    "batch_size": "a number",
    "memory": "a number",
    "keep_members": "true or false",
}


@dataclass(frozen=True, eq=False)
class Run:
    """A network at initialization, the inputs it is asked about, and where they came from."""

    name: str
    network: MLP
    inputs: np.ndarray  # (N, n_0)
    source: str


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A network, data and a training algorithm: what theory predicts and an ensemble measures."""

    name: str
    network: MLP
    X_train: np.ndarray  # (N, n_0)
    Y_train: np.ndarray  # (N, n_L)
    X_test: np.ndarray  # (M, n_0)
    Y_test: np.ndarray | None  # (M, n_L), only shown
    algorithm: AbstractAlgorithm
    loss: AbstractLoss
    order: int  # of the theory
    tolerance: float | None  # of its four-leg averages
    options: dict[str, Any] | None  # of `train_ensemble`; None: no networks are trained
    source: str
    tables: dict[str, dict] = field(repr=False)  # [training], [ensemble] and [theory] as they were written
    labels: tuple[str, ...] | None = None  # one per test input, for axes


def read(path: Path) -> Run | TrainingRun:
    """The run that a TOML file describes; every complaint names the file and the key."""
    tables = parse(path)
    check_keys(tables, required=("network", "data"), optional=_TABLES, where=str(path))
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} must be a table, got {table!r}; write [{name}].")
    data = tables["data"]
    check_keys(data, (), ("path", "inputs", *_ARRAYS, "test_targets"), where=f"{path}: [data]")
    if "training" in tables or any(name in data for name in _ARRAYS):
        return training_run(tables, path.parent, path.stem, str(path), source=_source(data, path))
    return _inputs_only(tables, path)


def _source(data: Mapping, path: Path) -> str:
    named = [value for value in data.values() if isinstance(value, str)]
    return ", ".join(named) if named else path.name


def _inputs_only(tables: dict[str, dict], path: Path) -> Run:
    data = tables["data"]
    if "path" not in data:
        raise ValueError(
            f"{path}: [data]: 'path' is missing; add it, or {', '.join(_ARRAYS)} and a table [training]."
        )
    for name in _TABLES:
        if name in tables:
            raise ValueError(f"{path}: [{name}] needs training data; write {', '.join(_ARRAYS)} in [data].")
    for name, value in data.items():
        if not isinstance(value, str):
            raise ValueError(f"{path}: [data] {name} must be a string, got {value!r}; put it in quotes.")
    check_network(tables["network"], str(path))
    inputs = read_matrix("path", data["path"], path.parent, data.get("inputs"))
    network = read_network(tables["network"], str(path), input_scale=_mean_square(inputs))
    _check_width(network, "widths begin with", 0, "path", inputs)
    return Run(path.stem, network, inputs, source=str(path.parent / data["path"]))


def training_run(
    tables: dict[str, dict],
    folder: Path,
    name: str,
    where: str,
    *,
    source: str,
    labels: tuple[str, ...] | None = None,
) -> TrainingRun:
    """The run of tables whose [data] are paths relative to `folder`, or the numbers themselves."""
    data, training = tables["data"], tables.get("training")
    if training is None:
        raise ValueError(f"{where}: 'training' is missing; add a table [training] with an algorithm.")
    check_keys(data, _ARRAYS, ("test_targets",), where=f"{where}: [data]")
    check_network(tables["network"], where)
    algorithm = _algorithm(training, f"{where}: [training]")
    loss = _LOSSES[_choice("loss", training.get("loss", "mse"), _LOSSES, f"{where}: [training]")]()
    order, tolerance = _theory(tables.get("theory", {}), f"{where}: [theory]")
    options = _options(tables.get("ensemble"), training, f"{where}: [ensemble]")
    arrays = {key: read_matrix(key, value, folder) for key, value in data.items()}
    network = read_network(tables["network"], where, input_scale=_mean_square(arrays["train_inputs"]))
    _check_arrays(network, arrays)
    return TrainingRun(
        name=name,
        network=network,
        X_train=arrays["train_inputs"],
        Y_train=arrays["train_targets"],
        X_test=arrays["test_inputs"],
        Y_test=arrays.get("test_targets"),
        algorithm=algorithm,
        loss=loss,
        order=order,
        tolerance=tolerance,
        options=options,
        source=source,
        tables={key: dict(tables[key]) for key in _TABLES if key in tables},
        labels=labels,
    )


def _mean_square(inputs: np.ndarray) -> float:
    """The scale of inputs; one where they are all zero and have none."""
    return float(np.mean(inputs**2)) or 1.0


def _check_arrays(network: MLP, arrays: Mapping[str, np.ndarray]) -> None:
    for key, found in arrays.items():
        inputs = key.endswith("inputs")
        _check_width(
            network, "widths begin with" if inputs else "widths end with", 0 if inputs else -1, key, found
        )
    for part in ("train", "test"):
        targets, inputs = arrays.get(f"{part}_targets"), arrays[f"{part}_inputs"]
        if targets is not None and len(targets) != len(inputs):
            raise ValueError(
                f"[data] {part}_targets has {len(targets)} rows for {len(inputs)} rows of {part}_inputs; "
                "give one for each."
            )


def _check_width(network: MLP, verb: str, place: int, key: str, found: np.ndarray) -> None:
    if found.shape[1] != network.widths[place]:
        raise ValueError(
            f"[network] {verb} {network.widths[place]}, but [data] {key} has "
            f"{found.shape[1]} columns; make them equal."
        )


# --- the network --------------------------------------------------------------------------------------


def check_network(table: Mapping, where: str) -> None:
    """Refuse a [network] whose keys are wrong, before its data are read."""
    fields = ("widths", "activation")
    check_keys(table, (), (*fields, *_HYPERPARAMETERS, "critical"), where=f"{where}: [network]")
    for name in fields:
        if name not in table:
            raise ValueError(f"{where}: [network] network needs a field {name!r}; add it.")
    critical = table.get("critical", False)
    if not isinstance(critical, bool):
        raise ValueError(f"{where}: [network] critical must be true or false, got {critical!r}.")
    for name in ("C_b", "C_W"):
        if critical and name in table:
            raise ValueError(
                f"{where}: [network] {name} cannot stand beside critical = true, which sets it; remove one."
            )


def read_network(table: Mapping, where: str, input_scale: float) -> MLP:
    """The network of a table; `input_scale` matters with critical = true alone."""
    check_network(table, where)
    fields = {name: value for name, value in table.items() if name != "critical"}
    try:
        network = MLP.from_dict(fields)
        if table.get("critical", False):
            rates = {name: fields[name] for name in ("lambda_b", "lambda_W") if name in fields}
            network = MLP.critical(network.widths, network.activation, **rates, input_scale=input_scale)
    except ValueError as error:
        raise ValueError(f"{where}: [network] {error}") from None
    return network


# --- training, ensemble and theory --------------------------------------------------------------------


def _algorithm(training: Mapping, where: str) -> AbstractAlgorithm:
    if "algorithm" not in training:
        raise ValueError(f"{where}: 'algorithm' is missing; known are {', '.join(_ALGORITHMS)}.")
    kind, fields = _ALGORITHMS[_choice("algorithm", training["algorithm"], _ALGORITHMS, where)]
    check_keys(training, ("algorithm",), (*fields, "loss", *_STOPPING), where)
    for name in _STOPPING:
        if name in training:
            _check_kind(name, training[name], "a number", where)
    try:
        return kind(**{name: training[name] for name in fields if name in training})
    except TypeError:
        needed = ", ".join(fields)
        raise ValueError(
            f"{where}: algorithm {training['algorithm']!r} needs {needed}; add what is missing."
        ) from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _options(ensemble: Mapping | None, training: Mapping, where: str) -> dict[str, Any] | None:
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
            _check_kind(name, ensemble[name], kind, where)
    return {**ensemble, **{name: training[name] for name in _STOPPING if name in training}}


def _theory(table: Mapping, where: str) -> tuple[int, float | None]:
    check_keys(table, (), ("order", "tolerance"), where=where)
    order, tolerance = table.get("order", 1), table.get("tolerance")
    if order not in (0, 1) or isinstance(order, bool):
        raise ValueError(f"{where}: order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    if tolerance is not None:
        _check_kind("tolerance", tolerance, "a number", where)
        if not 0 < tolerance < 1:
            raise ValueError(f"{where}: tolerance must lie between 0 and 1, got {tolerance!r}; use 1e-8.")
    return order, tolerance


def _choice(name: str, value: Any, known: Mapping, where: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    raise ValueError(f"{where}: {name} {value!r} is not known; known are {', '.join(known)}.")


def _check_kind(name: str, value: Any, kind: str, where: str) -> None:
    right = {
        "a number": _is_number,
        "true or false": lambda given: isinstance(given, bool),
        "a list of numbers": lambda given: isinstance(given, list) and all(map(_is_number, given)),
    }
    if not right[kind](value):
        raise ValueError(f"{where}: {name} must be {kind}, got {value!r}; change it.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- TOML ---------------------------------------------------------------------------------------------


def parse(path: Path) -> dict:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"RUN {str(path)!r} does not exist; give the path of a TOML file.") from None
    except IsADirectoryError:
        raise ValueError(f"RUN {str(path)!r} is a directory; give the path of a TOML file.") from None
    except OSError as error:
        raise ValueError(f"RUN {str(path)!r} cannot be read: {error.strerror or error}.") from None
    except RecursionError:
        raise ValueError(f"RUN {str(path)!r} nests lists or tables too deeply; flatten it.") from None
    except ValueError as error:  # also undecodable text, and numbers of too many digits
        raise ValueError(f"RUN {str(path)!r} is not valid TOML: {error}; correct it.") from None


def check_keys(table: Mapping, required: tuple[str, ...], optional: tuple[str, ...], where: str) -> None:
    """Refuse keys that are unknown, with the nearest that is known, and name those that are missing."""
    known = (*required, *optional)
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
            raise ValueError(f"{where}: {key!r} is not a key of a run; {hint}")
    for key in required:
        if key not in table:
            raise ValueError(f"{where}: {key!r} is missing; add it.")
