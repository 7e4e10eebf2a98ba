"""Files and directories that are written whole or not at all, and seals that reveal later changes."""

import contextlib
import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_ABOUT = "about"


def write_arrays(path: str | Path, arrays: dict[str, np.ndarray], about: dict) -> None:
    """Write to a temporary file beside `path`, then rename it."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"path must end in .npz, got {str(path)!r}; rename it.")
    text = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".npz")
    except OSError as error:
        raise ValueError(f"path {str(path)!r} cannot be written: {error.strerror}; choose another.") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, allow_pickle=False, **{_ABOUT: text}, **arrays)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ValueError(f"path {str(path)!r} cannot be written: {error.strerror}.") from None
        raise


def read_arrays(path: str | Path, *, kind: str) -> tuple[dict[str, np.ndarray], dict]:
    """The arrays and the configuration that `write_arrays` wrote."""
    try:
        # zipfile closes a damaged file, which NumPy's own loader leaves open
        with zipfile.ZipFile(path) as archive:
            arrays = {name.removesuffix(".npy"): _array(archive, name) for name in archive.namelist()}
        about = json.loads(arrays.pop(_ABOUT).tobytes())
    except FileNotFoundError:
        raise ValueError(f"path {str(path)!r} does not exist; check the name.") from None
    except Exception:  # zipfile and NumPy raise exceptions of many types for damaged files
        raise ValueError(f"path {str(path)!r} is not a file that finitewidth wrote, or is damaged.") from None
    if not isinstance(about, dict) or about.get("kind") != kind:
        raise ValueError(f"path {str(path)!r} holds no {kind}; load it with the class that saved it.")
    return arrays, about


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


# --- seals --------------------------------------------------------------------------------------------


def seal(arrays: Mapping[str, np.ndarray], about: Any = None) -> str:
    """A hash of the arrays with their names, shapes and types, and of `about`: any changed bit changes it."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        value = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, np.shape(arrays[name]), value.dtype.str]).encode() + value.tobytes())
    return digest.hexdigest()


def with_checksums() -> dict[str, Any]:
    """Options of a Zarr array whose chunks carry checksums, so that any reader refuses a changed chunk."""
    from zarr.codecs import Crc32cCodec, ZstdCodec

    return {"compressors": (ZstdCodec(), Crc32cCodec())}


def require_assertions(path: Path) -> None:
    """Refuse a Zarr store under `python -O`: zarr then writes groups that it cannot read."""
    if sys.flags.optimize:
        raise ValueError(
            f"store {str(path)!r} cannot be used under python -O or PYTHONOPTIMIZE, because zarr needs its "
            "assertions; start Python without them, or leave the store out."
        )


# --- directories --------------------------------------------------------------------------------------


@contextlib.contextmanager
def drafted(place: Path) -> Iterator[Path]:
    """A path for a draft, which becomes the directory `place` when the block ends without an error.

    The earlier directory is removed only after that, and is put back if the last step fails.
    """
    _put_back(place)
    # beside `place`, because a rename is atomic only within one file system
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}-") as scratch:
        draft, earlier = Path(scratch) / "draft", Path(scratch) / _EARLIER
        _drafts.add(draft)
        try:
            yield draft
            if place.exists():
                place.rename(earlier)
            _put_in_place(draft, place, earlier)
        finally:
            _drafts.remove(draft)


def _put_in_place(draft: Path, place: Path, earlier: Path) -> None:
    try:
        draft.rename(place)
    except OSError:
        if earlier.exists():
            earlier.rename(place)
        raise


_EARLIER = "earlier"
_drafts: set[Path] = set()


def discard_drafts() -> None:
    """Remove the drafts of this process, which is about to end; a directory that is in its place stays."""
    for draft in tuple(_drafts):
        dropped = draft.with_name("dropped")
        with contextlib.suppress(OSError):
            draft.rename(dropped)  # a draft that is named so can no longer take the place of earlier results
            shutil.rmtree(dropped)
            draft.parent.rmdir()


def _put_back(place: Path) -> None:
    """Restore earlier results that a process had moved aside before it was killed."""
    for scratch in place.parent.glob(f".{glob.escape(place.name)}-*"):
        if (scratch / _EARLIER).exists() and not place.exists():
            (scratch / _EARLIER).rename(place)


# --- stores -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one sentence about the store."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"store {str(path)!r} cannot be written: {reason}; choose another place.") from error
