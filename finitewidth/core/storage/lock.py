"""A lock beside a store or a file, so that no two runs work on it at the same time.

The operating system releases the lock when its process dies, however it dies. A second file names the holder,
because on Windows nobody else can read a locked file.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from finitewidth.core.storage.files import writable

_PATIENCE = 0.2  # seconds: a holder that has just finished may still be removing its files


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of `path`, or raise an error that names the process that holds it."""
    lock, owner = lock_files(path)
    guard = FileLock(lock, timeout=_PATIENCE, poll_interval=0.02)
    with writable(path):
        try:
            guard.acquire()
        except Timeout:
            raise ValueError(_in_use(path, lock, owner)) from None
    try:
        with _owned(path, lock, owner):
            yield
    finally:
        with contextlib.suppress(OSError):  # Windows removes the file when it is released, and not before
            lock.unlink()
        guard.release()


def lock_files(path: Path) -> tuple[Path, Path]:
    """The locked file and the file that names its holder, both hidden beside `path`."""
    return path.with_name(f".{path.name}.lock"), path.with_name(f".{path.name}.owner")


@contextlib.contextmanager
def _owned(path: Path, lock: Path, owner: Path) -> Iterator[None]:
    """Write this process into the owner file, unless a process on another machine is named there."""
    here = socket.gethostname()
    if _holder(owner).get("host", here) != here:  # a file system may not carry locks between machines
        raise ValueError(_in_use(path, lock, owner))
    try:
        with writable(path):
            owner.write_text(json.dumps({"pid": os.getpid(), "host": here}), encoding="utf-8")
        yield
    finally:
        owner.unlink(missing_ok=True)


def _holder(owner: Path) -> dict:
    """The process and the host in an owner file; empty where a process died before it wrote them."""
    try:
        holder = json.loads(owner.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def _in_use(path: Path, lock: Path, owner: Path) -> str:
    holder = _holder(owner)
    return (
        f"store {str(path)!r} is in use by process {holder.get('pid', 'unknown')} on host "
        f"{holder.get('host', 'unknown')}; wait for it, use another store, or delete {str(lock)!r} and "
        f"{owner.name!r} if that run is dead."
    )
