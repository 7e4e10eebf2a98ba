"""A run on disk that can be killed at any moment: a Zarr store of finished tasks, and a lock beside it.

A list of tasks is a group of the store. It holds the arrays of every task, one chunk for each task. A task
counts as finished once its entry of `done` is written, which happens last. A task depends on its number and
on the configuration alone, so the finished tasks are the whole state of a run. The configuration is kept in
the attributes of the store. Every task has a seal, and arrays that do not match their seal are refused.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from finitewidth.core.storage.files import require_assertions, seal, with_checksums, writable
from finitewidth.core.storage.lock import locked

if TYPE_CHECKING:
    import zarr


_FINGERPRINT = re.compile("[0-9a-f]{16}")  # as `digest` makes them
_TYPED = 2**24  # numbers of a key that are larger were hashed, or typed by nobody


class Store(NamedTuple):
    """An open store."""

    path: Path
    group: "zarr.Group"


@contextlib.contextmanager
def opened(path: str | Path, configuration: dict, *, kind: str) -> Iterator[Store]:
    """The store of this configuration, created if it does not exist, and locked against other runs."""
    path = Path(path)
    if path.suffix != ".zarr":
        raise ValueError(f"store must end in .zarr, got {str(path)!r}; rename it.")
    require_assertions(path)
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path):
        with writable(path):
            group = _group(path, configuration, kind)
        yield Store(path, group)


def _group(path: Path, configuration: dict, kind: str) -> "zarr.Group":
    import zarr

    if path.exists():
        return _checked(path, configuration, kind)
    draft = path.with_name(f".{path.name}.draft")  # only the holder of the lock gets here
    shutil.rmtree(draft, ignore_errors=True)
    group = zarr.open_group(draft, mode="w")
    group.attrs.update({"kind": _mark(kind), "finished": False, "configuration": json.dumps(configuration)})
    os.replace(draft, path)
    return open_group(path)


def open_group(path: Path) -> "zarr.Group":
    """A store as it is on disk now, without cached metadata."""
    import zarr

    return zarr.open_group(path, mode="r+", use_consolidated=False)


def _mark(kind: str) -> str:
    return f"finitewidth {kind}"


def _checked(path: Path, configuration: dict, kind: str) -> "zarr.Group":
    try:
        group = open_group(path)
        same = group.attrs.get("kind") == _mark(kind)
        stored = json.loads(group.attrs["configuration"]) if same else None  # type: ignore[arg-type]
    except PermissionError:
        raise
    except Exception:  # zarr raises exceptions of many types for files that are no store
        group, stored = None, None
    if group is None or not isinstance(stored, dict):
        raise ValueError(
            f"store {str(path)!r} exists and holds no {kind}, or is damaged; choose another place."
        )
    configuration = json.loads(json.dumps(configuration))  # as it reads once it has been written
    for name in [*configuration, *stored]:
        asked, kept = configuration.get(name), stored.get(name)
        if asked != kept:
            values = "another one" if _unreadable(asked, kept) else f"{_short(kept)}, not {_short(asked)}"
            raise ValueError(
                f"store {str(path)!r} belongs to another configuration: its {name} is {values}; use another "
                f"store, or the same {name}."
            )
    return group


def _unreadable(*values: Any) -> bool:
    """Whether values are fingerprints or hashed keys, which tell a user nothing."""
    return any(
        _FINGERPRINT.match(value) is not None
        if isinstance(value, str)
        else isinstance(value, list) and any(isinstance(part, int) and part > _TYPED for part in value)
        for value in values
    )


def _short(value: Any) -> str:
    text = "None" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def digest(array: np.ndarray) -> str:
    """A short fingerprint of an array, which stands for the array in a configuration."""
    return hashlib.sha256(json.dumps(array.shape).encode() + array.tobytes()).hexdigest()[:16]


# --- tasks --------------------------------------------------------------------------------------------


def finished_tasks(store: Store, tasks: str) -> set[int]:
    """The finished tasks of a list, from this run and from runs before it; damaged tasks are refused."""
    try:
        if f"{tasks}/{_DONE}" not in store.group:
            return set()
        done = np.asarray(store.group[f"{tasks}/{_DONE}"][:])  # type: ignore[index]
    except Exception as error:  # zarr raises exceptions of many types for damaged stores
        raise _damaged(store, f"the list of finished {tasks}", store.path / tasks) from error
    finished = set(np.flatnonzero(done).tolist())
    for task in finished:  # before any work is done, not after it
        read_task(store, tasks, task)
    return finished


def write_task(store: Store, tasks: str, task: int, count: int, results: Mapping[str, np.ndarray]) -> None:
    """Write all arrays of one task out of `count`, then the entry that marks the task as finished."""
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in results.items()}
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
        except Exception as error:  # zarr raises exceptions of many types for damaged stores
            raise _damaged(store, f"the list of {tasks}", store.path / tasks) from error


_SEAL, _DONE = "seal", "done"


def read_task(store: Store, tasks: str, task: int) -> dict[str, np.ndarray]:
    """The arrays that `write_task` wrote, to the last bit."""
    try:
        names = [entry.name for entry in (store.path / tasks).iterdir() if entry.is_dir()]
        arrays = {name: np.asarray(store.group[f"{tasks}/{name}"][task]) for name in names}  # type: ignore[index]
        mark = arrays.pop(_SEAL).tobytes().hex()
        whole = int(arrays.pop(_DONE)) == 1 and mark == seal(arrays)
        reason = None
    except Exception as error:  # zarr raises exceptions of many types for damaged stores
        arrays, whole, reason = {}, False, error
    if not whole:
        entry = store.path / tasks / _DONE / "c" / str(task)
        raise _damaged(store, f"number {task} of its {tasks}", entry) from reason
    return arrays


def _damaged(store: Store, part: str, remove: Path) -> ValueError:
    return ValueError(
        f"store {str(store.path)!r} is damaged: {part} is not what was written; delete {str(remove)!r} to "
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
    """An array of the store, created if it does not exist, in chunks along its first axis.

    Entries whose chunk is not yet written, or was deleted, read as NaN.
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
