"""Arrays and the configuration they belong to, in one npz file, written whole or not at all."""

import json
import os
import tempfile
import zipfile
from pathlib import Path

import numpy as np

_ABOUT = "about"


def write_arrays(path: str | Path, arrays: dict[str, np.ndarray], about: dict) -> None:
    """Write to a temporary file beside `path`, then rename."""
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
        # zipfile closes what it opened where numpy's own loader leaves a damaged file open
        with zipfile.ZipFile(path) as archive:
            arrays = {name.removesuffix(".npy"): _array(archive, name) for name in archive.namelist()}
        about = json.loads(arrays.pop(_ABOUT).tobytes())
    except FileNotFoundError:
        raise ValueError(f"path {str(path)!r} does not exist; check the name.") from None
    except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"path {str(path)!r} is not a file that finitewidth wrote, or is damaged.") from None
    if not isinstance(about, dict) or about.get("kind") != kind:
        raise ValueError(f"path {str(path)!r} holds no {kind}; load it with what saved it.")
    return arrays, about


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with archive.open(name) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
