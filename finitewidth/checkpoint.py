"""A run on disk that can be killed at any moment: a Zarr store of finished tasks, and a lock beside it.

A list of tasks is a group of the store that holds what every task found, one chunk for each; a task counts
once its entry of `done` is written, which comes last. Tasks depend on the configuration and their number
alone, so finished tasks are all the state there is. The configuration stands in the store's attributes.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import zarr


class Store(NamedTuple):
    """An open store."""

    path: Path
    group: "zarr.Group"


@contextlib.contextmanager
def opened(path: str | Path, configuration: dict, *, kind: str) -> Iterator[Store]:
    """The store of this configuration, made if it is not there; no other run has it at the same time."""
    path = Path(path)
    if path.suffix != ".zarr":
        raise ValueError(f"store must end in .zarr, got {str(path)!r}; rename it.")
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        with writable(path):
            group = _group(path, configuration, kind)
        yield Store(path, group)


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Say in one sentence that a store cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"store {str(path)!r} cannot be written: {reason}; choose another place.") from error


def _group(path: Path, configuration: dict, kind: str) -> "zarr.Group":
    import zarr

    if path.exists():
        return _checked(path, configuration, kind)
    draft = path.with_name(f".{path.name}.draft")  # only the holder of the lock is here
    shutil.rmtree(draft, ignore_errors=True)
    group = zarr.open_group(draft, mode="w")
    group.attrs.update({"kind": _mark(kind), "finished": False, "configuration": json.dumps(configuration)})
    os.replace(draft, path)
    return open_group(path)


def open_group(path: Path) -> "zarr.Group":
    """A store as it is on disk now."""
    import zarr

    return zarr.open_group(path, mode="r+", use_consolidated=False)


def _mark(kind: str) -> str:
    return f"finitewidth {kind}"


def _checked(path: Path, configuration: dict, kind: str) -> "zarr.Group":
    try:
        group = open_group(path)
        same = group.attrs.get("kind") == _mark(kind)
        known = json.loads(group.attrs["configuration"]) if same else None  # type: ignore[arg-type]
    except PermissionError:
        raise
    except Exception:  # zarr raises many kinds for what is no store
        known = None
    if known is None:
        raise ValueError(f"store {str(path)!r} exists and holds no {kind}; choose another place.")
    configuration = json.loads(json.dumps(configuration))  # what it looks like once written
    for name in [*configuration, *known]:
        if configuration.get(name) != known.get(name):
            raise ValueError(
                f"store {str(path)!r} belongs to another configuration: its {name} is "
                f"{_short(known.get(name))}, not {_short(configuration.get(name))}; use another "
                "store, or the same configuration."
            )
    return group


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def digest(array: np.ndarray) -> str:
    """An array in a configuration."""
    return hashlib.sha256(json.dumps(array.shape).encode() + array.tobytes()).hexdigest()[:16]


# --- tasks --------------------------------------------------------------------------------------------


def finished_tasks(store: Store, tasks: str) -> set[int]:
    """The tasks of a list that were finished, now or before the run was killed."""
    if f"{tasks}/done" not in store.group:
        return set()
    return set(np.flatnonzero(np.asarray(store.group[f"{tasks}/done"][:])).tolist())  # type: ignore[index]


def write_task(store: Store, tasks: str, task: int, count: int, found: Mapping[str, np.ndarray]) -> None:
    """All arrays of one task out of `count`, then the entry that says they are whole."""
    with writable(store.path):
        if tasks not in store.group:
            store.group.create_group(tasks)
        for name, value in found.items():
            array(store, f"{tasks}/{name}", (count, *np.shape(value)))[task] = value
        array(store, f"{tasks}/done", (count,))[task] = 1.0


def read_task(store: Store, tasks: str, task: int) -> dict[str, np.ndarray]:
    """What `write_task` wrote."""
    arrays = store.group[tasks].arrays()  # type: ignore[union-attr]
    return {name: np.asarray(whole[task]) for name, whole in arrays if name != "done"}


def array(
    store: Store, name: str, shape: tuple[int, ...], chunk: int = 1, dimensions: tuple[str, ...] | None = None
) -> "zarr.Array":
    """An array of the store, made if it is not there, in chunks along its first axis."""
    if name in store.group:
        return store.group[name]  # type: ignore[return-value]
    chunks = (chunk, *shape[1:])
    return store.group.create_array(
        name, shape=shape, chunks=chunks, dtype="float64", fill_value=0.0, dimension_names=dimensions
    )


# --- the lock -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file beside `path`; the system lets go of it when a process dies, however it dies."""
    lock = path.with_name(f".{path.name}.lock")
    with writable(path):
        descriptor = _acquired(lock, path)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _acquired(lock: Path, path: Path) -> int:
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(descriptor)
            os.close(descriptor)
            raise ValueError(_in_use(path, lock, owner)) from None
        owner = _owner(descriptor)
        if owner.get("host", socket.gethostname()) != socket.gethostname():
            os.close(descriptor)  # a file system may not carry locks between machines
            raise ValueError(_in_use(path, lock, owner))
        with contextlib.suppress(FileNotFoundError):
            if os.stat(lock).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # its holder removed it while we waited; take the new one


def _owner(descriptor: int) -> dict:
    with contextlib.suppress(ValueError):
        found = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
        return found if isinstance(found, dict) else {}
    return {}


def _in_use(path: Path, lock: Path, owner: dict) -> str:
    return (
        f"store {str(path)!r} is in use by process {owner.get('pid', 'unknown')} on host "
        f"{owner.get('host', 'unknown')}; wait for it, use another store, or delete {str(lock)!r} if that "
        "run is dead."
    )
