"""Generated cases (benchmarks/robustness/fuzz.py has more), those that went wrong, no code from data."""

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import garbage, garbage_requests
from helpers.problems import as_for_users
from hypothesis import HealthCheck, given, settings

import finitewidth as fw
from finitewidth.core import memory
from finitewidth.interface.runs import data_files, run_files

PACKAGE = Path(fw.__file__).parent
FEW = settings(
    max_examples=80,
    deadline=None,
    database=None,
    derandomize=True,  # the script looks for new ones
    suppress_health_check=[*HealthCheck],
)


KINDS = {**garbage.FILES, "command lines": (garbage_requests.COMMAND_LINES, garbage_requests.run_command)}


@pytest.mark.parametrize("kind", KINDS)
def test_garbage_is_refused_in_one_sentence(kind, tmp_path):
    strategy, answer = KINDS[kind]
    garbage.prepare(tmp_path)
    results = set()

    @FEW
    @given(strategy)
    def cases(case):
        results.add(answer(tmp_path, case))
        garbage.clean(tmp_path)

    with as_for_users():
        cases()
    assert "refused" in results


def test_garbage_asked_of_the_page_is_refused_in_one_sentence():
    results = set()

    @FEW
    @given(garbage_requests.REQUESTS)
    def cases(case):
        results.add(garbage_requests.ask_page(ask, case))

    with garbage_requests.visitor() as ask, as_for_users():
        cases()
    assert "refused" in results


@pytest.mark.parametrize(
    "path, query",
    [
        ("/api/theory", f"depth={'9' * 400}"),
        ("/api/theory", "steps=1e999"),
        (f"/api/finite/{'9' * 5000}", ""),
    ],
)
def test_requests_that_are_refused(path, query):
    with garbage_requests.visitor() as ask:
        assert garbage_requests.ask_page(ask, ("GET", path, query, b"")) == "refused"


RUN = b'[network]\nwidths = %b\nactivation = "%b"\n%b\n[data]\npath = "X.csv"\n'


@pytest.mark.parametrize(
    "toml",
    [
        RUN % (b"[2, 8, 1]", b"os:system", b""),
        RUN % (b"[2, 8, 1]", b"__import__('os').getcwd()", b""),
        RUN % (b"[2, 8, 1]", b"tanh", b"C_W = 1" + b"0" * 400),
        RUN % (b"[2, 8, 1" + b"0" * 400 + b"]", b"tanh", b""),
        b"x = " + b"[" * 3000,
    ],
)
def test_runs_that_are_refused(toml, tmp_path):
    garbage.prepare(tmp_path)
    assert garbage.read_toml(tmp_path, toml) == "refused"
    for command in ("solve", "audit", "ensemble"):
        assert garbage_requests.run_command(tmp_path, ([command, "run.toml"], toml)) == "refused"


@pytest.mark.parametrize(
    "case",
    [
        (".npy", garbage.as_npy(garbage.ARRAYS[-1])),
        (".npz", garbage.as_npz(garbage.ARRAYS[-1:], compressed=False)),
        (".npz", garbage.pickle.dumps(garbage.Exploit(garbage.MARK))),
        (".npz", garbage.zipped("X.npy", garbage.with_header(b"{'descr': '|O', 'shape': (1,)}"))),
        (".npz", garbage.as_npz([garbage.np.eye(40)], compressed=True)[:-200]),
        (
            ".npy",
            garbage.with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (900000000000, 90000)}"),
        ),
        (".npy", garbage.as_npy(garbage.np.eye(3)) + bytes(8)),  # more numbers than its header says
        (".npz", garbage.zipped("X.npy", garbage.as_npy(garbage.np.eye(3)) + bytes(8))),
        (".csv", b"1_0,2\n"),
    ],
)
def test_data_files_that_are_refused_and_run_no_code(case, tmp_path):
    assert garbage.read_data(tmp_path, case) == "refused"


def test_a_small_file_that_unpacks_to_more_than_the_memory_is_refused_before_it_does(tmp_path, monkeypatch):
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=3_000_000))
    for name, arrays in (("small", {"X": np.eye(100)}), ("bomb", {"X": np.zeros((1500, 1500))})):
        np.savez_compressed(tmp_path / f"{name}.npz", **arrays)
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    assert data_files.read_matrix("inputs", "small.npz", tmp_path).shape == (100, 100)
    with pytest.raises(
        ValueError, match="'bomb.npz' needs 0.036 GB but 0.003 GB of memory are free; save fewer"
    ):
        data_files.read_matrix("inputs", "bomb.npz", tmp_path)


def test_names_in_any_script_links_and_marks_of_other_editors_are_read(tmp_path):
    names = ("данные.csv", "数据 表.csv", "e\u0301té \u202e.csv", "💡.csv")
    for name in names:
        (tmp_path / name).write_text("1,2\n3,4\n", encoding="utf-8-sig")
    (tmp_path / "link.csv").symlink_to(names[0])
    for name in (*names, "link.csv"):
        assert data_files.read_matrix("inputs", name, tmp_path).tolist() == [[1, 2], [3, 4]]
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    (tmp_path / "endless.csv").symlink_to("/dev/zero")
    for name in ("loop.csv", "endless.csv"):
        with pytest.raises(ValueError, match="is not a file; paths are relative to the TOML file"):
            data_files.read_matrix("inputs", name, tmp_path)
    run = '[network]\nwidths = [2, 4, 1]\nactivation = "tanh"\n[data]\npath = "данные.csv"\n'
    (tmp_path / "run.toml").write_text(run, encoding="utf-8-sig")
    assert run_files.read(tmp_path / "run.toml").inputs.shape == (2, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit", "2x99999999999999,1"],
        ["audit", "2x-5,1"],
        ["criticality", ":"],
        ["criticality", "no_such_module_anywhere:f"],
        ["solve", "X.csv"],
        ["solve", "run.toml", "--output", "X.csv"],
        ["ensemble", "."],
        ["claims", "--only", "\0"],
    ],
)
def test_command_lines_that_are_refused(arguments, tmp_path):
    garbage.prepare(tmp_path)
    toml = RUN % (b"[2, 8, 1]", b"tanh", b"")
    assert garbage_requests.run_command(tmp_path, (arguments, toml)) == "refused"


def test_garbage_is_judged_by_checks_that_can_fail(tmp_path):
    """A reader that raises something else, or accepts numbers that are none, is seen."""
    garbage.prepare(tmp_path)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyError):
        patched.setattr(garbage.run_files, "read", {}.__getitem__)
        garbage.read_toml(tmp_path, b"")
    with pytest.MonkeyPatch.context() as patched, pytest.raises(AssertionError, match="status 1"):
        patched.setattr(garbage.run_files, "read", {}.__getitem__)
        garbage_requests.run_command(tmp_path, (["solve", "run.toml"], b""))
    with pytest.MonkeyPatch.context() as patched, pytest.raises(AssertionError):
        patched.setattr(garbage.data_files, "read_matrix", lambda *_: garbage.np.array([[garbage.np.nan]]))
        garbage.read_data(tmp_path, (".csv", b""))


def test_nothing_in_the_package_can_run_what_it_reads():
    """No eval, exec or pickle anywhere; modules by name only where the command line names them."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name):
                assert node.id not in ("eval", "exec", "__import__", "compile"), f"{file}: {node.id}"
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name.partition(".")[0] for alias in node.names}
                names.add((getattr(node, "module", "") or "").partition(".")[0])
                assert not names & {"pickle", "marshal", "shelve", "dill", "joblib"}, f"{file}: {names}"
            elif isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
                assert isinstance(node.value, ast.Constant) and node.value.value is False, (
                    f"{file}: {node.arg}"
                )
            elif isinstance(node, ast.Attribute) and node.attr == "import_module":
                own = ("__init__.py", "claims.py", "rooms.py")  # modules of the package by their own names
                assert file.name in (*own, "arguments.py"), f"{file} imports by name"
