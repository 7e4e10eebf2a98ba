"""An ensemble from a TOML file: what to train, and the document that says what came of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import finitewidth
from finitewidth.algorithm import (
    Algorithm,
    GradientDescent,
    GradientFlow,
    Newton,
    StochasticGradientDescent,
    TwoStep,
)
from finitewidth.interface.runs import check_keys, load_array, parse
from finitewidth.loss import MSE, CrossEntropy, Loss
from finitewidth.network import MLP

STORE = "ensemble.zarr"
FILES = (STORE, f".{STORE}.lock", f".{STORE}.draft", "summary.json", ".summary.json")

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
_OPTIONS = ("record_at", "ntk", "kernels", "batch_size", "memory", "keep_members")


@dataclass(frozen=True, eq=False)
class EnsembleRun:
    """What `train_ensemble` is called with, and the name of the file that said so."""

    name: str
    network: MLP
    X_train: np.ndarray
    Y_train: np.ndarray
    X_test: np.ndarray
    algorithm: Algorithm
    loss: Loss
    options: dict[str, Any]


def read(path: Path) -> EnsembleRun:
    """The run that a TOML file describes; every complaint names the file and the key."""
    tables = parse(path)
    check_keys(tables, required=("network", "data", "training", "ensemble"), optional=(), where=str(path))
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {name} must be a table, got {table!r}; write [{name}].")
    training, ensemble = tables["training"], tables["ensemble"]
    check_keys(ensemble, ("members", "key"), _OPTIONS, where=f"{path}: [ensemble]")
    try:
        network = MLP.from_dict(tables["network"])
    except ValueError as error:
        raise ValueError(f"{path}: [network] {error}") from None
    algorithm = _algorithm(training, f"{path}: [training]")
    loss = _LOSSES[_choice("loss", training.get("loss", "mse"), _LOSSES, f"{path}: [training]")]()
    stopping = {name: training[name] for name in _STOPPING if name in training}
    X_train, Y_train, X_test = _arrays(tables["data"], path)
    return EnsembleRun(
        path.stem, network, X_train, Y_train, X_test, algorithm, loss, {**ensemble, **stopping}
    )


def _arrays(data: Mapping, path: Path) -> list[np.ndarray]:
    names = ("train_inputs", "train_targets", "test_inputs")
    check_keys(data, names, (), where=f"{path}: [data]")
    for name in names:
        if not isinstance(data[name], str):
            raise ValueError(f"{path}: [data] {name} must be a path, got {data[name]!r}; put it in quotes.")
    return [load_array(path.parent / data[name], None) for name in names]


def _algorithm(training: Mapping, where: str) -> Algorithm:
    if "algorithm" not in training:
        raise ValueError(f"{where}: 'algorithm' is missing; known are {', '.join(_ALGORITHMS)}.")
    kind, fields = _ALGORITHMS[_choice("algorithm", training["algorithm"], _ALGORITHMS, where)]
    check_keys(training, ("algorithm",), (*fields, "loss", *_STOPPING), where)
    try:
        return kind(**{name: training[name] for name in fields if name in training})
    except TypeError:
        needed = ", ".join(fields)
        raise ValueError(
            f"{where}: algorithm {training['algorithm']!r} needs {needed}; add what is missing."
        ) from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _choice(name: str, value: Any, known: Mapping, where: str) -> str:
    if isinstance(value, str) and value in known:
        return value
    raise ValueError(f"{where}: {name} {value!r} is not known; known are {', '.join(known)}.")


def check_directory(target: Path) -> None:
    """Refuse a place that holds anything but an ensemble."""
    if target.exists() and not target.is_dir():
        raise ValueError(f"--output {str(target)!r} is a file; name a directory.")
    foreign = sorted(e.name for e in target.iterdir() if e.name not in FILES) if target.exists() else []
    if foreign:
        raise ValueError(
            f"--output {str(target)!r} holds {foreign[0]!r}, which is not a result of an ensemble; "
            "name a new directory or that of the ensemble to go on with."
        )


def document(run: EnsembleRun, ensemble: Any, target: Path) -> dict[str, Any]:
    """What --json prints and summary.json holds."""
    return {
        "finitewidth": finitewidth.__version__,
        "command": "ensemble",
        "network": run.network.to_dict(),
        "algorithm": repr(run.algorithm),
        "loss_function": repr(run.loss),
        "members": ensemble.members,
        "diverged": ensemble.diverged,
        "unfinished": ensemble.unfinished,
        "points": [_plain(point) for point in ensemble.points],
        "loss": _estimate(ensemble.loss),
        "mean": _estimate(ensemble.mean),
        "std": _plain(ensemble.std),
        "results": {"directory": str(target), "files": [STORE, "summary.json"]},
    }


def _estimate(estimate: Any) -> dict[str, Any]:
    return {"value": _plain(estimate.value), "stderr": _plain(estimate.stderr)}


def _plain(value: Any) -> Any:
    """Numbers and lists; None where JSON has no number."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return float(value) if math.isfinite(value) else None
