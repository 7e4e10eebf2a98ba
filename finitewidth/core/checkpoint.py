"""A run on disk that can be killed at any moment: a Zarr store of finished tasks, and a lock beside it.

A list of tasks is a group of the store that holds what every task found, one chunk for each; a task counts
once its entry of `done` is written, which comes last. Tasks depend on the configuration and their number
alone, so finished tasks are all the state there is. The configuration stands in the store's attributes.
Every task has a seal: what is read and is not what was written is refused.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from finitewidth.core.storage import seal, with_checksums

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
    with locked(path):
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
    if not isinstance(known, dict):
        raise ValueError(
            f"store {str(path)!r} exists and holds no {kind}, or is damaged; choose another place."
        )
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
    """The tasks of a list that were finished, now or before the run was killed; damaged ones are refused."""
    try:
        if f"{tasks}/{_DONE}" not in store.group:
            return set()
        done = np.asarray(store.group[f"{tasks}/{_DONE}"][:])  # type: ignore[index]
    except Exception as error:  # zarr raises many kinds for damaged stores
        raise _damaged(store, f"the list of finished {tasks}", store.path / tasks) from error
    finished = set(np.flatnonzero(done).tolist())
    for task in finished:  # before any work, not after it
        read_task(store, tasks, task)
    return finished


def write_task(store: Store, tasks: str, task: int, count: int, found: Mapping[str, np.ndarray]) -> None:
    """All arrays of one task out of `count`, then the entry that says they are whole."""
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
    mark = np.frombuffer(bytes.fromhex(seal(arrays)), dtype=np.uint8)
    with writable(store.path):
        try:
            if tasks not in store.group:
                store.group.create_group(tasks)
            for name, value in arrays.items():
                array(store, f"{tasks}/{name}", (count, *value.shape))[task] = value
            array(store, f"{tasks}/{_SEAL}", (count, mark.size), dtype="uint8")[task] = mark
            array(store, f"{tasks}/{_DONE}", (count,), dtype="uint8")[task] = 1
        except (OSError, MemoryError):
            raise
        except Exception as error:  # zarr raises many kinds for damaged stores
            raise _damaged(store, f"the list of {tasks}", store.path / tasks) from error


_SEAL, _DONE = "seal", "done"


def read_task(store: Store, tasks: str, task: int) -> dict[str, np.ndarray]:
    """What `write_task` wrote, to the last bit."""
    try:
        names = [entry.name for entry in (store.path / tasks).iterdir() if entry.is_dir()]
        found = {name: np.asarray(store.group[f"{tasks}/{name}"][task]) for name in names}  # type: ignore[index]
        mark = found.pop(_SEAL).tobytes().hex()
        whole = int(found.pop(_DONE)) == 1 and mark == seal(found)
        reason = None
    except Exception as error:  # zarr raises many kinds for damaged stores
        whole, reason = False, error
    if not whole:
        entry = store.path / tasks / _DONE / "c" / str(task)
        raise _damaged(store, f"number {task} of its {tasks}", entry) from reason
    return found


def _damaged(store: Store, what: str, remove: Path) -> ValueError:
    return ValueError(
        f"store {str(store.path)!r} is damaged: {what} is not what was written; delete {str(remove)!r} to "
        "have it computed again, or use another store."
    )


def array(
    store: Store,
    name: str,
    shape: tuple[int, ...],
    chunk: int = 1,
    dimensions: tuple[str, ...] | None = None,
    dtype: str = "float64",
) -> "zarr.Array":
    """An array of the store, made if it is not there, in chunks along its first axis.

    Numbers that are not there yet, or not any more, are NaN.
    """
    if name in store.group:
        return store.group[name]  # type: ignore[return-value]
    return store.group.create_array(
        name,
        shape=shape,
        chunks=(chunk, *shape[1:]),
        dtype=dtype,
        fill_value=math.nan if dtype == "float64" else 0,
        dimension_names=dimensions,
        **with_checksums(),
    )


# --- the lock -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file beside `path`; the system lets go of it when a process dies, however it dies."""
    lock = path.with_name(f".{path.name}.lock")
    with writable(path):
        descriptor = _acquired(lock, path)
    try:
        with writable(path):
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
