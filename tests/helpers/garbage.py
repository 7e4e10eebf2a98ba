"""Generated garbage for what reads files: runs in TOML, and data; a case is "accepted" or "refused"."""

import contextlib
import io
import pickle
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import tomli_w
from hypothesis import strategies as st

from finitewidth.interface.runs import data_files, run_files
from finitewidth.network.mlp import MLP

LONG = 9 * 10**17  # beyond what any array can hold
SCALARS = st.one_of(
    st.integers(),
    st.sampled_from([0, 1, 2, 3, -1, LONG, 10**400]),
    st.floats(),
    st.booleans(),
    st.text(max_size=12),
    st.dates(),
    st.datetimes(),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
NAMES = [
    "tanh",
    "leaky_relu(0.2)",
    "swish(nan)",
    "monomial(1e9)",
    "polynomial(1e308, 1e308)",
    "os:system",
    "builtins:eval",
    "__import__('os')",
]
LAYERS = [{"kind": "Dense", "width": 8}, "tanh", {"kind": "Dense", "width": 1}]
GOOD = {
    "network": {
        "widths": [[2, 8, 1], [2, 1]],
        "activation": [*NAMES, ["tanh"], ["tanh", "relu"], ["os:system"], []],
        "C_b": [0.0, [0.1, 0.1]],
        "C_W": [1.0, 10**400],
        "lambda_b": [1, 0.0],
        "lambda_W": [1.0],
        "critical": [True, False],
        "input_shape": [2, [2], [], -1],
        "layers": [LAYERS, [], ["tanh"], [{"kind": "Dense", "width": 0}], [{"kind": "Conv"}], [{"kind": []}]],
    },
    "data": {
        "path": ["X.csv", "missing.csv", "X.csv\0", "/dev/null", "../X.csv", "X.npz:X"],
        "inputs": ["X"],
        "train_inputs": [[[1.0, 2.0]], "X.csv"],
        "train_targets": [[[1.0]], [1.0], "Y.csv"],
        "test_inputs": [[[0.5, 0.5]], "X.csv"],
        "test_targets": [[[1.0]]],
    },
    "training": {
        "algorithm": ["gradient_descent", "gradient_flow", "newton", "stochastic_gradient_descent"],
        "learning_rate": [0.1, 10**400],
        "steps": [10, float("inf"), 10**400],
        "time": [1.0],
        "batch_size": [1],
        "replacement": [True],
        "momentum": [0.9],
        "nesterov": [True],
        "ridge": [0.1],
        "loss": ["mse", "cross_entropy"],
    },
    "ensemble": {
        "members": [4, 10**400],
        "key": [0, 2**70],
        "batch_size": [2],
        "memory": [1e9],
    },
    "record": {"at": [[0]], "ntk": [True], "kernels": [True], "members": [True]},
    "stepping": {"training_error": [1e-6], "tolerance": [1e-8], "max_steps": [100]},
    "theory": {"order": [0, 1], "tolerance": [1e-8, float("nan")], "route": ["sampled", "deterministic"]},
    "sampling": {
        "tolerance": [0.1, float("nan")],
        "samples": [2000, 0.5],
        "variance": [True],
        "key": [0, -1],
    },
}


# --- TOML -----------------------------------------------------------------------------------------------


@st.composite
def documents(draw) -> dict:
    """A run in which some things are right."""
    tables = {}
    for table, fields in GOOD.items():
        if not draw(st.integers(0, 4)):
            continue
        keys = draw(st.lists(st.sampled_from([*fields]), unique=True, max_size=len(fields)))
        tables[table] = {
            key: draw(st.sampled_from(fields[key]) if draw(st.integers(0, 5)) else ANYTHING) for key in keys
        }
        if not draw(st.integers(0, 9)):
            tables[table][draw(st.text(min_size=1, max_size=6))] = draw(ANYTHING)
    if not draw(st.integers(0, 9)):
        tables[draw(st.sampled_from([*GOOD, "other"]))] = draw(ANYTHING)
    return tables


NETWORK = {"widths": [2, 8, 1], "activation": "tanh"}
RIGHT = [
    {"network": NETWORK, "data": {"path": "X.csv"}},
    {"network": {"input_shape": 2, "layers": LAYERS}, "data": {"path": "X.csv"}},
    {
        "network": NETWORK,
        "data": {"train_inputs": "X.csv", "train_targets": "Y.csv", "test_inputs": [[0.5, 0.5]]},
        "training": {"algorithm": "gradient_descent", "learning_rate": 0.1, "steps": 10},
        "ensemble": {"members": 4, "key": 0},
    },
]


@st.composite
def nearly_right(draw) -> dict:
    """A run in which two things at most are wrong."""
    tables = {name: dict(table) for name, table in draw(st.sampled_from(RIGHT)).items()}
    for _ in range(draw(st.integers(0, 2))):
        table = draw(st.sampled_from([*GOOD]))
        key = draw(st.sampled_from([*GOOD[table]]))
        tables.setdefault(table, {})[key] = draw(st.sampled_from(GOOD[table][key]) | ANYTHING)
    return tables


def written(document: dict) -> bytes:
    try:
        return tomli_w.dumps(document).encode("utf-8", errors="replace")
    except (ValueError, TypeError):  # more digits than Python prints
        return b"x = 1"


@st.composite
def spliced(draw, source) -> bytes:
    """Right bytes with a few of them cut, repeated or replaced."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    return bytes(data)


TOML = st.one_of(
    nearly_right().map(written),
    documents().map(written),
    spliced(documents().map(written)),
    st.text().map(lambda text: text.encode("utf-8", errors="replace")),
    st.binary(max_size=60),
    st.integers(1, 3000).map(lambda depth: b"x = " + b"[" * depth),
    st.integers(1, 6000).map(lambda digits: b"[network]\nwidths = [2, " + b"9" * digits + b"]"),
)


def prepare(folder: Path) -> None:
    """The files that runs name."""
    (folder / "X.csv").write_text("a,b\n1,2\n3,4\n")
    (folder / "Y.csv").write_text("1\n2\n")
    np.savez(folder / "X.npz", X=np.eye(2))


def read_toml(folder: Path, data: bytes) -> str:
    (folder / "run.toml").write_bytes(data)
    with mock.patch.object(MLP, "critical", classmethod(lambda cls, widths, *_, **__: cls(widths, "tanh"))):
        return _refused_or_not(lambda: run_files.read(folder / "run.toml"))


def _refused_or_not(call) -> str:
    try:
        call()
    except ValueError as error:
        assert str(error), "a refusal without a word"
        return "refused"
    return "accepted"


# --- data files -----------------------------------------------------------------------------------------


class Exploit:
    """Leaves a file where it is unpickled."""

    def __init__(self, mark: str):
        self.mark = mark

    def __reduce__(self):
        return (open, (self.mark, "w"))


MARK = "unpickled"
ARRAYS = [
    np.eye(2),
    np.zeros((0, 2)),
    np.zeros((2, 2, 2)),
    np.float64(3),
    np.array([[1, 2]], dtype=">i2"),
    np.array([[True]]),
    np.array([["a"]]),
    np.array([[1j]]),
    np.array([[np.nan]]),
    np.array([["2020-01-01"]], dtype="datetime64[D]"),
    np.zeros(2, dtype=[("a", "f8"), ("b", "U3")]),
    np.array([[Exploit(MARK)]], dtype=object),
]


def as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def as_npz(arrays: list[np.ndarray], compressed: bool) -> bytes:
    file = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(file, *arrays, allow_pickle=True)
    return file.getvalue()


def with_header(header: bytes) -> bytes:
    """An npy file whose header says what it likes."""
    padded = header + b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + bytes(32)


def zipped(name: str, data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, data)
    return file.getvalue()


HEADERS = st.one_of(
    st.sampled_from(
        [
            b"{'descr': '<f8', 'fortran_order': False, 'shape': (900000000000, 900000)}",
            b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2)}",
            b"{'descr': '|O', 'fortran_order': False, 'shape': (1, 1)}",
            b"{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (1,)}",
            b"(" * 300,
        ]
    ),
    st.binary(max_size=40),
)
CELLS = st.one_of(
    st.floats().map(str),
    st.integers().map(str),
    st.text(max_size=5),
    st.sampled_from(["", '"', "1_0", "0x1"]),
)
DATA_FILES = st.one_of(
    st.tuples(st.just(".npy"), spliced(st.sampled_from([as_npy(array) for array in ARRAYS]))),
    st.tuples(st.just(".npy"), HEADERS.map(with_header)),
    st.tuples(
        st.just(".npz"),
        spliced(st.builds(as_npz, st.lists(st.sampled_from(ARRAYS), max_size=2), st.booleans())),
    ),
    st.tuples(
        st.just(".npz"),
        st.builds(zipped, st.sampled_from(["X.npy", "X", "../X.npy", "X/"]), HEADERS.map(with_header)),
    ),
    st.tuples(st.just(".npz"), st.sampled_from([pickle.dumps(Exploit(MARK)), as_npy(np.eye(2))])),
    st.tuples(
        st.just(".csv"),
        st.lists(st.lists(CELLS, max_size=4), max_size=5).map(
            lambda rows: "\n".join(map(",".join, rows)).encode("utf-8", errors="replace")
        ),
    ),
    st.tuples(st.sampled_from([".csv", ".npy", ".npz", ".txt", ""]), st.binary(max_size=80)),
)


def read_data(folder: Path, case: tuple[str, bytes]) -> str:
    suffix, data = case
    (folder / f"file{suffix}").write_bytes(data)
    with contextlib.chdir(folder):
        value = _refused_or_not(lambda: _numbers(folder, f"file{suffix}"))
    assert not (folder / MARK).exists(), "a data file ran code"
    return value


def _numbers(folder: Path, name: str) -> None:
    matrix = data_files.read_matrix("train_inputs", name, folder)
    assert matrix.dtype == np.float64 and matrix.ndim >= 2 and np.isfinite(matrix).all()


FILES = {"TOML files of runs": (TOML, read_toml), "CSV, NPY and NPZ files": (DATA_FILES, read_data)}


def clean(folder: Path) -> None:
    """As before the case."""
    for entry in folder.iterdir():
        if entry.is_dir():
            entry.rmdir()
        elif entry.name not in ("X.csv", "Y.csv", "X.npz"):
            entry.unlink()
