"""Ensembles without theory: which runs they take, where they write, the document of what came of them."""

from pathlib import Path
from typing import Any

import finitewidth
from finitewidth.interface.runs.main_job import plain
from finitewidth.interface.runs.reading import TrainingRun
from finitewidth.interface.runs.reading import read as read_run
from finitewidth.interface.runs.results import check_holds_only

STORE = "ensemble.zarr"
FILES = (STORE, f".{STORE}.lock", f".{STORE}.draft", "summary.json", ".summary.json")


def read(path: Path) -> TrainingRun:
    """The run that a TOML file describes; networks must be trained in it."""
    run = read_run(path)
    if not isinstance(run, TrainingRun) or run.options is None:
        missing = "ensemble" if isinstance(run, TrainingRun) else "training"
        raise ValueError(f"{path}: {missing!r} is missing; add a table [{missing}].")
    return run


def check_directory(target: Path) -> None:
    """Refuse a place that holds anything but an ensemble."""
    check_holds_only(target, FILES, "a result of an ensemble", "that of the ensemble to go on with")


def document(run: TrainingRun, ensemble: Any, target: Path) -> dict[str, Any]:
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
        "points": [plain(point) for point in ensemble.points],
        "loss": _estimate(ensemble.loss),
        "mean": _estimate(ensemble.mean),
        "std": plain(ensemble.std),
        "results": {"directory": str(target), "files": [STORE, "summary.json"]},
    }


def _estimate(estimate: Any) -> dict[str, Any]:
    return {"value": plain(estimate.value), "stderr": plain(estimate.stderr)}
