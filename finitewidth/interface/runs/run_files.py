"""Run files: a TOML file that describes a network, its data and its training becomes a run."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from finitewidth.core.display.progress import Progress
from finitewidth.core.methods import FirstOrder
from finitewidth.interface.runs.data_files import read_matrix
from finitewidth.interface.runs.network_table import read_network
from finitewidth.interface.runs.toml_tables import check_keys, parse
from finitewidth.interface.runs.training_tables import (
    read_algorithm,
    read_loss,
    read_options,
    read_theory,
)
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.network import Network
from finitewidth.training.first_order.learning_problem import check_network

_TABLES = ("training", "ensemble", "record", "stepping", "theory")
_ARRAYS = ("train_inputs", "train_targets", "test_inputs")


@dataclass(frozen=True, eq=False)
class InitializationRun:
    """A network at initialization and the inputs at which its statistics are computed."""

    name: str
    network: Network
    inputs: np.ndarray  # (N, n_0) or (N, positions ..., channels)
    source: str  # of the inputs, in words


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """A network, its data and a training algorithm, for a prediction and for an ensemble."""

    name: str
    network: Network
    X_train: np.ndarray  # (N, n_0) or (N, positions ..., channels)
    Y_train: np.ndarray  # (N, n_L)
    X_test: np.ndarray  # (M, n_0)
    Y_test: np.ndarray | None  # (M, n_L), shown beside the answers and not used otherwise
    algorithm: AbstractAlgorithm
    loss: AbstractLoss
    order: int  # of the theory
    method: FirstOrder | None  # how order 1/n is computed; None: by the number of inputs
    options: dict[str, Any] | None  # of `train_ensemble`; None: no networks are trained
    source: str  # of the data, in words
    tables: dict[str, dict] = field(repr=False)  # [training], [ensemble] and so on as they were written
    labels: tuple[str, ...] | None = None  # one per test input, for axes

    def options_at(self, store: Path, progress: Progress) -> dict[str, Any]:
        """The options of `train_ensemble` with a store and a bar."""
        assert self.options is not None
        return {**self.options, "run": replace(self.options["run"], store=store, progress=progress)}


def read(path: Path) -> InitializationRun | TrainingRun:
    """The run that a TOML file describes; every error names the file and the key."""
    tables = parse(path)
    check_keys(tables, required=("network", "data"), optional=_TABLES, where=str(path))
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} must be a table, got {table!r}; write [{name}].")
    data = tables["data"]
    check_keys(data, (), ("path", "inputs", *_ARRAYS, "test_targets"), where=f"{path}: [data]")
    if "training" in tables or any(name in data for name in _ARRAYS):
        return training_run(tables, path.parent, path.stem, str(path), source=_source(data, path))
    return _initialization_run(tables, path)


def _source(data: Mapping, path: Path) -> str:
    named = [value for value in data.values() if isinstance(value, str)]
    return ", ".join(named) if named else path.name


def _initialization_run(tables: dict[str, dict], path: Path) -> InitializationRun:
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
    table = read_network(tables["network"], str(path))  # before the data, which may take long to read
    inputs = read_matrix("path", data["path"], path.parent, data.get("inputs"))
    network = table.network(input_scale=_mean_square(inputs))
    inputs = _as_samples(network, "path", inputs)
    return InitializationRun(path.stem, network, inputs, source=str(path.parent / data["path"]))


def training_run(
    tables: dict[str, dict],
    folder: Path,
    name: str,
    where: str,
    *,
    source: str,
    labels: tuple[str, ...] | None = None,
) -> TrainingRun:
    """The run of tables whose [data] holds paths relative to `folder`, or the numbers themselves."""
    data, training = tables["data"], tables.get("training")
    if training is None:
        raise ValueError(f"{where}: 'training' is missing; add a table [training] with an algorithm.")
    check_keys(data, _ARRAYS, ("test_targets",), where=f"{where}: [data]")
    table = read_network(tables["network"], where)
    algorithm = read_algorithm(training, f"{where}: [training]")
    loss = read_loss(training, f"{where}: [training]")
    order, method = read_theory(tables.get("theory", {}), f"{where}: [theory]")
    options = read_options(tables, where)
    arrays = {key: read_matrix(key, value, folder) for key, value in data.items()}
    network = table.network(input_scale=_mean_square(arrays["train_inputs"]))
    arrays = _checked_arrays(network, arrays)
    return TrainingRun(
        name=name,
        network=network,
        X_train=arrays["train_inputs"],
        Y_train=arrays["train_targets"],
        X_test=arrays["test_inputs"],
        Y_test=arrays.get("test_targets"),
        algorithm=algorithm,
        loss=loss,
        order=_order(order, network, where),
        method=method,
        options=options,
        source=source,
        tables={key: dict(tables[key]) for key in _TABLES if key in tables},
        labels=labels,
    )


def _order(order: int | None, network: Network, where: str) -> int:
    """The order of the theory: 1 where the run does not say and order 1/n knows the network."""
    if order == 1 and network.unknown_layer is not None:
        raise ValueError(
            f"{where}: [theory] order is 1, but order 1/n knows dense layers, activations and residual "
            f"blocks of them only, not {network.unknown_layer}; write order = 0."
        )
    if order is not None:
        return order
    return int(network.not_dense is None or _has_first_order(network))


def _has_first_order(network: Network) -> bool:
    """Whether order 1/n knows how a network with layers beyond dense ones is trained."""
    if network.unknown_layer is not None:
        return False
    try:
        check_network(network)
    except ValueError:
        return False
    return True


def _mean_square(inputs: np.ndarray) -> float:
    """The scale of inputs; one if they are all zero and have no scale."""
    return float(np.mean(inputs**2)) or 1.0


def _checked_arrays(network: Network, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {key: _as_samples(network, key, array) for key, array in arrays.items()}
    for part in ("train", "test"):
        targets, inputs = arrays.get(f"{part}_targets"), arrays[f"{part}_inputs"]
        if targets is not None and len(targets) != len(inputs):
            raise ValueError(
                f"[data] {part}_targets has {len(targets)} rows for {len(inputs)} rows of {part}_inputs; "
                "give one for each."
            )
    return arrays


def _as_samples(network: Network, key: str, array: np.ndarray) -> np.ndarray:
    """Inputs or targets in the shape that the network asks for; flat rows become samples with positions."""
    is_target = key.endswith("targets")
    shape = network.output_shape if is_target else network.input_shape
    if array.shape[1:] == shape:
        return array
    expected = math.prod(shape)
    if array.ndim > 2:
        raise ValueError(
            f"[network] takes inputs of shape {shape}, channels last, but [data] {key} has samples of shape "
            f"{array.shape[1:]}; make them equal."
        )
    if array.shape[1] != expected:
        wanted = f"gives {expected} outputs" if is_target else f"takes {expected} inputs"
        raise ValueError(
            f"[network] {wanted}, but [data] {key} has {array.shape[1]} columns; make them equal."
        )
    return array.reshape(-1, *shape)
