"""Runs of `finitewidth ensemble`: networks are trained without theory, in a directory with a store."""

from pathlib import Path

from finitewidth.core.storage.lock import lock_files
from finitewidth.interface.runs import run_files
from finitewidth.interface.runs.output_directory import check_holds_only
from finitewidth.interface.runs.run_files import TrainingRun

STORE, SUMMARY = "ensemble.zarr", "summary.json"
_HIDDEN = (*(file.name for file in lock_files(Path(STORE))), f".{STORE}.draft", f".{SUMMARY}")


def read(path: Path) -> TrainingRun:
    """The run that a TOML file describes, which must train networks."""
    run = run_files.read(path)
    if not isinstance(run, TrainingRun) or run.options is None:
        missing = "ensemble" if isinstance(run, TrainingRun) else "training"
        raise ValueError(f"{path}: {missing!r} is missing; add a table [{missing}].")
    return run


def check_directory(target: Path) -> None:
    """Refuse a directory that holds anything but an ensemble."""
    files = (STORE, SUMMARY, *_HIDDEN)
    check_holds_only(target, files, "a result of an ensemble", "the directory of the ensemble to continue")
