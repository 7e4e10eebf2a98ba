"""A run on disk that can be killed at any moment: a Zarr store of finished batches, and a lock beside it.

`store/batches` holds the moments of every batch, one chunk for each; a batch counts once its entry of
`done` is written, which comes last. The randomness of a member comes from the key and its number, so finished
batches are all the state there is. The group itself holds the results when the run is over.
"""

import contextlib
import fcntl
import json
import os
import shutil
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import zarr

from finitewidth.experiment.partition import Partition
from finitewidth.experiment.streaming import JointMoments, Moments

if TYPE_CHECKING:
    import xarray

KIND = "finitewidth ensemble"


class Store(NamedTuple):
    """An open store."""

    path: Path
    group: zarr.Group
    parts: Partition


@contextlib.contextmanager
def opened(path: str | Path, configuration: dict, parts: Partition) -> Iterator[Store]:
    """The store of this configuration, made if it is not there; no other run has it at the same time."""
    path = Path(path)
    if path.suffix != ".zarr":
        raise ValueError(f"store must end in .zarr, got {str(path)!r}; rename it.")
    with _writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path):
        with _writable(path):
            group = _group(path, configuration)
        yield Store(path, group, parts)


@contextlib.contextmanager
def _writable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"store {str(path)!r} cannot be written: {reason}; choose another place.") from error


def _group(path: Path, configuration: dict) -> zarr.Group:
    if path.exists():
        return _checked(path, configuration)
    draft = path.with_name(f".{path.name}.draft")  # only the holder of the lock is here
    shutil.rmtree(draft, ignore_errors=True)
    group = zarr.open_group(draft, mode="w")
    group.attrs.update({"kind": KIND, "finished": False, "configuration": json.dumps(configuration)})
    os.replace(draft, path)
    return _open(path)


def _open(path: Path) -> zarr.Group:
    return zarr.open_group(path, mode="r+", use_consolidated=False)


def _checked(path: Path, configuration: dict) -> zarr.Group:
    try:
        group = _open(path)
        known = json.loads(group.attrs["configuration"]) if group.attrs.get("kind") == KIND else None  # type: ignore[arg-type]
    except PermissionError:
        raise
    except Exception:  # zarr raises many kinds for what is no store
        known = None
    if known is None:
        raise ValueError(f"store {str(path)!r} exists and is not an ensemble; choose another place.")
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


# --- batches ------------------------------------------------------------------------------------------


def done_batches(store: Store) -> list[int]:
    """The batches that were finished, now or before the run was killed."""
    if "batches/done" not in store.group:
        return []
    return np.flatnonzero(np.asarray(store.group["batches/done"][:])).tolist()  # type: ignore[index]


def write_batch(store: Store, batch: int, found: dict[str, Any]) -> None:
    """All arrays of a batch, then the entry that says they are whole."""
    with _writable(store.path):
        _write_batch(store, batch, found)


def _write_batch(store: Store, batch: int, found: dict[str, Any]) -> None:
    for name, value in _flattened(found):
        if name == "member_outputs":
            start = batch * store.parts.batch_size
            whole = _array(store, name, (store.parts.members, *value.shape[1:]), store.parts.batch_size)
            whole[start : start + len(value)] = value
        else:
            whole = _array(store, f"batches/{name}", (store.parts.batches, *value.shape), 1)
            whole[batch] = value
    _array(store, "batches/done", (store.parts.batches,), 1)[batch] = 1.0


def read_batch(store: Store, batch: int) -> dict[str, Any]:
    """What `write_batch` wrote, without the members' own outputs."""
    group = store.group["batches"]
    found: dict[str, Any] = {}
    nested: dict[str, dict[str, np.ndarray]] = {}
    for name, array in group.arrays():  # type: ignore[union-attr]
        value = np.asarray(array[batch])
        whole, _, part = name.partition(".")
        if part:
            nested.setdefault(whole, {})[part] = value
        elif name != "done":
            found[name] = value
    for name, parts in nested.items():
        kind = JointMoments if "M22" in parts else Moments
        found[name] = kind(**parts)
    return found


def _array(store: Store, name: str, shape: tuple[int, ...], chunk: int) -> zarr.Array:
    if name in store.group:
        return store.group[name]  # type: ignore[return-value]
    names = ("member", "record", "sample", "output") if name == "member_outputs" else None
    return store.group.create_array(
        name, shape=shape, chunks=(chunk, *shape[1:]), dtype="float64", fill_value=0.0, dimension_names=names
    )


def _flattened(found: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for name, value in found.items():
        if isinstance(value, Moments | JointMoments):
            for part, array in value._asdict().items():
                yield f"{name}.{part}", np.asarray(array, dtype=np.float64)
        else:
            yield name, np.asarray(value, dtype=np.float64)


def write_results(store: Store, results: "xarray.Dataset") -> None:
    """The results beside the batches; the store is finished when all of them are there."""
    if store.group.attrs["finished"]:
        return
    with _writable(store.path), warnings.catch_warnings():
        results.to_zarr(store.path, mode="a", consolidated=False)
        _open(store.path).attrs["finished"] = True
        warnings.simplefilter(
            "ignore"
        )  # consolidated metadata are beyond the standard, but xarray asks for them
        zarr.consolidate_metadata(store.path)


# --- the lock -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file beside `path`; the system lets go of it when a process dies, however it dies."""
    lock = path.with_name(f".{path.name}.lock")
    with _writable(path):
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
