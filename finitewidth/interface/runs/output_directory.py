"""Directories of results: the files in them, and their replacement as a whole or not at all."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from finitewidth.core.storage.files import drafted

STATISTICS = ("run.toml", "summary.json", "inputs.npy", "theory.zarr", "kernels.svg", "kernels.png")
PREDICTION = (
    "run.toml",
    "summary.json",
    "data.npz",
    "results.zarr",
    "report.html",
    "figure.svg",
    "figure.png",
)
FILES = tuple(dict.fromkeys((*STATISTICS, *PREDICTION)))


def check_replaceable(target: Path) -> None:
    """Refuse a directory for results that holds files which no run has written."""
    check_holds_only(target, FILES, "a result of a run", "the directory of earlier results")


def check_holds_only(target: Path, files: tuple[str, ...], what: str, instead: str) -> None:
    """Refuse a directory that holds anything but `files`, each of which is `what`."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(f"--output {str(target)!r} is a file; name a directory.")
    foreign = sorted(entry.name for entry in target.iterdir() if entry.name not in files)
    if foreign:
        raise ValueError(
            f"--output {str(target)!r} holds {foreign[0]!r}, which is not {what}; "
            f"name a new directory or {instead}."
        )


@contextlib.contextmanager
def replaced_directory(target: Path) -> Iterator[Path]:
    """A draft directory that replaces `target` when the block ends without an error."""
    check_replaceable(target)
    place = target.resolve()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with drafted(place) as draft:
            draft.mkdir()
            yield draft
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"--output {str(target)!r} cannot be written: {reason}; name another directory."
        ) from error


def unfinished(target: Path) -> Path:
    """The hidden directory beside the results that keeps finished tasks until the whole run is finished."""
    place = target.resolve()
    return place.with_name(f".{place.name}.unfinished")


def clear_unfinished(target: Path) -> None:
    """Remove the finished tasks of a finished run, unless another run works in the same directory."""
    place = unfinished(target)
    if not any(place.glob(".*.lock")):
        shutil.rmtree(place, ignore_errors=True)


@contextlib.contextmanager
def discarded_if_refused(store: Path) -> Iterator[None]:
    """Remove what a request has stored that is refused: another request has another store."""
    try:
        yield
    except ValueError:
        shutil.rmtree(store, ignore_errors=True)
        with contextlib.suppress(OSError):  # other runs may work there
            store.parent.rmdir()
        raise
