"""Arrays of numbers for a run, from CSV, NPY and NPZ files or written out; errors name the key."""

import contextlib
import csv
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from finitewidth.core.memory import require_memory

_COPIES = {".npy": 2, ".csv": 40}  # memory for reading, in units of the file


def read_matrix(key: str, value: Any, folder: Path, array: str | None = None) -> np.ndarray:
    """The array that [data] `key` describes, samples along its first axis; inputs may have more than two.

    `value` is a path relative to `folder`, or the rows themselves. An array of an npz file is named after a
    colon ("data.npz:X") or by `array`.
    """
    if isinstance(value, str):
        what, matrix = _from_file(key, value, folder, array)
    elif isinstance(value, list | np.ndarray):
        what, matrix = f"[data] {key}", _from_rows(key, value)
    else:
        raise ValueError(
            f"[data] {key} must be a path or rows of numbers, got {value!r}; put a path in quotes."
        )
    return _checked(matrix[:, None] if matrix.ndim == 1 and key.endswith("targets") else matrix, what)


def _from_rows(key: str, value: list | np.ndarray) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:  # rows of different lengths
        raise ValueError(f"[data] {key} has rows of different lengths; make them equal.") from None


def _from_file(key: str, text: str, folder: Path, array: str | None) -> tuple[str, np.ndarray]:
    if array is None and ".npz:" in text:
        text, _, array = text.rpartition(":")
    file = folder / text
    what = f"[data] {key} {file.name!r}"
    if not file.is_file():
        raise ValueError(f"[data] {key} {str(file)!r} is not a file; paths are relative to the TOML file.")
    try:
        return what, _loaded(file, what, array)
    except OSError as error:
        raise ValueError(f"{what} cannot be read: {error.strerror or error}; check the file.") from None


def _loaded(file: Path, what: str, array: str | None) -> np.ndarray:
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return _load_npz(file, what, array)
    if array is not None:
        raise ValueError(
            f"[data] inputs names an array of an npz file, but this is {file.name!r}; remove it."
        )
    if suffix in _COPIES:
        _require_room(_COPIES[suffix] * file.stat().st_size, what)
    if suffix == ".npy":
        with file.open("rb") as stream, _objects_refused(what):
            return _whole_array(stream)
    if suffix == ".csv":
        return _load_csv(file, what)
    raise ValueError(f"{what} must end in .csv, .npy or .npz; convert the file.")


def _load_npz(file: Path, what: str, array: str | None) -> np.ndarray:
    with file.open("rb") as stream:
        with _objects_refused(what):
            archive = np.load(stream, allow_pickle=False)
            names = list(archive.keys())
        if array is None and len(names) != 1:
            raise ValueError(
                f"{what} holds the arrays {', '.join(names) or '(none)'}; "
                f"choose one, as in '{file.name}:{names[0] if names else 'X'}'."
            )
        name = array or names[0]
        if name not in names:
            raise ValueError(f"{what} has no array {name!r}; it holds {', '.join(names)}.")
        _require_room(_COPIES[".npy"] * _unpacked(archive, name), what)
        with _objects_refused(what):
            archived = archive.zip.namelist()
            with archive.zip.open(name if name in archived else f"{name}.npy") as member:
                return _whole_array(member)


def _whole_array(stream: Any) -> np.ndarray:
    """An array whose header tells the truth about its size."""
    matrix = np.lib.format.read_array(stream, allow_pickle=False)
    if stream.read(1):
        raise ValueError("there are more numbers than the header says")
    return matrix


def _unpacked(archive: Any, name: str) -> int:
    """Bytes of an array behind its compression, which can be a thousand times those of the file."""
    return max(one.file_size for one in archive.zip.infolist() if one.filename in (name, f"{name}.npy"))


def _require_room(size: int, what: str) -> None:
    require_memory(size, what, "save fewer samples")


@contextlib.contextmanager
def _objects_refused(what: str) -> Iterator[None]:
    try:
        with warnings.catch_warnings(action="ignore"):  # about headers that look like those of old versions
            yield
    except Exception as error:  # NumPy and zipfile raise exceptions of many types, often about pickles
        raise ValueError(
            f"{what} is damaged or holds Python objects, which are never loaded; "
            "save a plain array of numbers."
        ) from error


def _load_csv(file: Path, what: str) -> np.ndarray:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines)
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{what} is not a CSV file: {error}; export it again.") from None
    if rows and not any(_is_number(cell) for cell in rows[0][1]):
        rows = rows[1:]  # a header of column names
    if not rows:
        raise ValueError(f"{what} has no rows; put one input on each line.")
    return np.array([_numbers(row, line, len(rows[0][1]), what) for line, row in rows])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_0 as ten


def _numbers(row: list[str], line: int, columns: int, what: str) -> list[float]:
    if len(row) != columns:
        raise ValueError(
            f"{what} has {len(row)} columns on line {line} and {columns} before; make them equal."
        )
    for column, cell in enumerate(row, start=1):
        if not _is_number(cell):
            raise ValueError(
                f"{what} has {cell!r} on line {line}, column {column}; write a number, "
                "columns separated by commas."
            )
    return [float(cell) for cell in row]


def _checked(matrix: np.ndarray, what: str) -> np.ndarray:
    if matrix.dtype.kind not in "fiub":
        raise ValueError(f"{what} holds {matrix.dtype}; save real numbers.")
    if matrix.ndim < 2 or 0 in matrix.shape:
        raise ValueError(f"{what} has shape {matrix.shape}; save one row for each sample, (N, columns).")
    with np.errstate(over="ignore"):  # infinity is refused below
        matrix = matrix.astype(np.float64)
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        row, *place = (int(index) + 1 for index in bad[0])
        where = f"column {place[0]}" if len(place) == 1 else f"place {tuple(place)}"
        raise ValueError(
            f"{what} has {matrix[tuple(bad[0])]} in row {row}, {where}; remove that sample or fill it in."
        )
    return matrix
