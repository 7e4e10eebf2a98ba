"""What to run: the embedded example, or a TOML file that names a network and its data."""

import contextlib
import csv
import difflib
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from finitewidth.network import MLP


@dataclass(frozen=True, eq=False)
class Run:
    """A network, the inputs it is asked about, and where they came from."""

    name: str
    network: MLP
    inputs: np.ndarray  # (N, n_0)
    source: str
    labels: tuple[str, ...] | None = None  # one per input, for axes


def embedded() -> Run:
    """Handwritten zeros and ones under a tanh network at criticality."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    pixels = pixels[digits < 2]
    digits = digits[digits < 2]
    centred = pixels - pixels.mean(axis=0)
    scaled = centred / np.sqrt(np.mean(centred**2))
    chosen = np.concatenate([np.flatnonzero(digits == digit)[:4] for digit in (0, 1)])
    widths = (scaled.shape[1], *[64] * 5, 1)
    return Run(
        name="default",
        network=MLP(widths, "tanh", C_b=0.0, C_W=1.0),
        inputs=scaled[chosen],
        source="four zeros and four ones of the scikit-learn digits",
        labels=tuple(str(digit) for digit in digits[chosen]),
    )


def read(path: Path) -> Run:
    """The run that a TOML file describes; every complaint names the file and the key."""
    tables = parse(path)
    check_keys(tables, required=("network", "data"), optional=(), where=str(path))
    for name in ("network", "data"):
        if not isinstance(tables[name], dict):
            raise ValueError(f"{path}: {name} must be a table, got {tables[name]!r}; write [{name}].")
    data = tables["data"]
    check_keys(data, required=("path",), optional=("inputs",), where=f"{path}: [data]")
    for name, value in data.items():
        if not isinstance(value, str):
            raise ValueError(f"{path}: [data] {name} must be a string, got {value!r}; put it in quotes.")
    try:
        network = MLP.from_dict(tables["network"])
    except ValueError as error:
        raise ValueError(f"{path}: [network] {error}") from None
    file = path.parent / data["path"]
    inputs = _checked(load_array(file, data.get("inputs")), file, network)
    return Run(path.stem, network, inputs, source=str(file))


def parse(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"RUN {str(path)!r} does not exist; give the path of a TOML file.") from None
    except IsADirectoryError:
        raise ValueError(f"RUN {str(path)!r} is a directory; give the path of a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"RUN {str(path)!r} is not valid TOML: {error}; correct it.") from None


def check_keys(table: Mapping, required: tuple[str, ...], optional: tuple[str, ...], where: str) -> None:
    known = (*required, *optional)
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
            raise ValueError(f"{where}: {key!r} is not a key of a run; {hint}")
    for key in required:
        if key not in table:
            raise ValueError(f"{where}: {key!r} is missing; add it.")


def load_array(file: Path, array: str | None) -> np.ndarray:
    if not file.is_file():
        raise ValueError(f"[data] path {str(file)!r} is not a file; paths are relative to the TOML file.")
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return _load_npz(file, array)
    if array is not None:
        raise ValueError(
            f"[data] inputs names an array of an npz file, but path is {file.name!r}; remove it."
        )
    if suffix == ".npy":
        with file.open("rb") as stream, _objects_refused(file):
            return np.load(stream, allow_pickle=False)
    if suffix == ".csv":
        return _load_csv(file)
    raise ValueError(f"[data] path {file.name!r} must end in .csv, .npy or .npz; convert the file.")


def _load_npz(file: Path, array: str | None) -> np.ndarray:
    with file.open("rb") as stream:
        with _objects_refused(file):
            archive = np.load(stream, allow_pickle=False)
            names = list(archive.keys())
        if array is None and len(names) != 1:
            raise ValueError(
                f"[data] path {file.name!r} holds the arrays {', '.join(names) or '(none)'}; "
                "choose one with inputs."
            )
        name = array or names[0]
        if name not in names:
            raise ValueError(f"[data] inputs {name!r} is not in {file.name!r}; it holds {', '.join(names)}.")
        with _objects_refused(file):
            return archive[name]


@contextlib.contextmanager
def _objects_refused(file: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        # NumPy's own text speaks of pickles whenever a file is damaged
        raise ValueError(
            f"[data] path {file.name!r} is damaged or holds Python objects, which are never loaded; "
            "save a plain array of numbers."
        ) from error


def _load_csv(file: Path) -> np.ndarray:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines)
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"[data] path {file.name!r} is not a CSV file: {error}; export it again.") from None
    if rows and not any(_is_number(cell) for cell in rows[0][1]):
        rows = rows[1:]  # a header of column names
    if not rows:
        raise ValueError(f"[data] path {file.name!r} has no rows; put one input on each line.")
    return np.array([_numbers(row, line, len(rows[0][1]), file) for line, row in rows])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(row: list[str], line: int, columns: int, file: Path) -> list[float]:
    if len(row) != columns:
        raise ValueError(
            f"[data] path {file.name!r} has {len(row)} columns on line {line} and {columns} before; "
            "make them equal."
        )
    for column, cell in enumerate(row, start=1):
        if not _is_number(cell):
            raise ValueError(
                f"[data] path {file.name!r} has {cell!r} on line {line}, column {column}; write a number, "
                "columns separated by commas."
            )
    return [float(cell) for cell in row]


def _checked(inputs: np.ndarray, file: Path, network: MLP) -> np.ndarray:
    if inputs.dtype.kind not in "fiub":
        raise ValueError(f"[data] path {file.name!r} holds {inputs.dtype}; save real numbers.")
    if inputs.ndim != 2 or 0 in inputs.shape:
        raise ValueError(
            f"[data] path {file.name!r} has shape {inputs.shape}; save one row for each input, (N, n_0)."
        )
    inputs = inputs.astype(np.float64)
    bad = np.argwhere(~np.isfinite(inputs))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"[data] path {file.name!r} has {inputs[row, column]} in row {row + 1}, column {column + 1}; "
            "remove that input or fill it in."
        )
    if inputs.shape[1] != network.widths[0]:
        raise ValueError(
            f"[network] widths begin with {network.widths[0]}, but [data] path {file.name!r} has "
            f"{inputs.shape[1]} columns; make them equal."
        )
    return inputs
