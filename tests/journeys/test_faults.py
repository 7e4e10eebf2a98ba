"""What really happens to files: damage, full disks, directories that cannot be written, other versions."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr.storage._local as local
from helpers.problems import refused

import finitewidth as fw
from finitewidth.comparison.claim import Outcome
from finitewidth.comparison.claim_store import ClaimStore
from finitewidth.comparison.claims import chosen
from finitewidth.comparison.evidence import Comparison
from finitewidth.core.run import runner
from finitewidth.core.storage.files import drafted
from finitewidth.interface.cli import main as cli
from finitewidth.interface.runs.output_directory import replaced_directory

ROOT = Path(fw.__file__).parents[1]
RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((3, 2))
NET = fw.MLP((2, 4, 1), "tanh")
TASKS = 4


def work(task: int) -> dict[str, np.ndarray]:
    """Costs nothing; its numbers do not compress, so that every byte counts."""
    draws = np.random.default_rng(task)
    return {"many": draws.standard_normal((2, 3)), "one": draws.standard_normal()}


def results(store: Path | None, progress=False) -> list[dict[str, np.ndarray]]:
    with runner(fw.Run(store=store, progress=progress), kind="test", configuration=dict) as running:
        return list(running.results(work, TASKS, name="squares", what="squaring"))


class Stop(Exception):
    pass


def unfinished(store: Path) -> None:
    """Two of the four tasks are done."""

    def listen(done, total):
        if done == 2:
            raise Stop

    with pytest.raises(Stop):
        results(store, listen)


def same(one, other) -> bool:
    return all(
        set(a) == set(b) and all(np.array_equal(a[name], b[name]) for name in a)
        for a, b in zip(one, other, strict=True)
    )


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


DAMAGES = {
    "flipped": lambda file: file.write_bytes(flipped(file.read_bytes())),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "emptied": lambda file: file.write_bytes(b""),
    "removed": lambda file: file.unlink(),
    "another's": lambda file: file.write_bytes(b"\x00" * file.stat().st_size),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_any_file_of_a_store_is_refused_or_mended_and_never_gives_another_number(tmp_path, damage):
    store = tmp_path / "run.zarr"
    whole = results(None)
    unfinished(store)
    files = sorted(file for file in store.rglob("*") if file.is_file())
    contents = {file: file.read_bytes() for file in files}
    refusals = 0
    for file in files:
        for other in [*store.rglob("*")]:  # as it was
            if other.is_file():
                other.unlink()
        for other, content in contents.items():
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_bytes(content)
        DAMAGES[damage](file)
        try:
            assert same(results(store), whole), f"{file} was {damage}"
        except ValueError as error:
            assert str(store) in str(error) and ";" in str(error), f"{file} was {damage}: {error}"
            refusals += 1
    assert refusals >= 5  # chunks of arrays at least; entries of the list of finished tasks may be mended


def test_a_damaged_task_is_computed_again_when_its_entry_is_deleted(tmp_path):
    store = tmp_path / "run.zarr"
    whole = results(store)
    chunk = store / "squares" / "many" / "c" / "2" / "0" / "0"
    chunk.unlink()
    entry = store / "squares" / "done" / "c" / "2"
    with refused(f"is damaged: number 2 of its squares is not what was written; delete '{entry}'"):
        results(store)
    entry.unlink()
    assert same(results(store), whole) and chunk.exists()


def test_a_store_of_another_version_is_refused_and_left_alone(tmp_path, monkeypatch):
    store = tmp_path / "run.zarr"
    whole = results(store)
    with monkeypatch.context() as patched:
        patched.setattr("finitewidth.core.run.__version__", "0.0.9")
        with refused('belongs to another configuration: its version is .*, not "0.0.9"; use another store'):
            results(store)
    assert same(results(store), whole)


def test_results_of_an_ensemble_that_were_damaged_are_not_read_as_numbers(tmp_path):
    store = tmp_path / "run.zarr"
    fw.train_ensemble(
        NET,
        X[:2],
        X[:2, :1],
        X[2:],
        algorithm=fw.GradientDescent(0.1, 2),
        members=4,
        key=0,
        record=fw.Record(members=True),
        run=fw.Run(batch_size=2, store=store),
    )
    for name in ("outputs", "member_outputs"):
        chunk = next(file for file in (store / name / "c").rglob("*") if file.is_file())
        chunk.write_bytes(flipped(chunk.read_bytes()))
        with xarray.open_zarr(store) as data, pytest.raises(ValueError, match="checksum do not match"):
            np.asarray(data[name])
        chunk.unlink()
        with xarray.open_zarr(store) as data:
            assert np.isnan(data[name]).any()


@pytest.mark.parametrize("damage", ["flipped", "truncated", "removed"])
def test_a_theory_that_was_damaged_is_refused(tmp_path, damage):
    path = tmp_path / "theory.zarr"
    theory = fw.solve(NET, X, order=0)
    theory.save(path)
    files, refusals = sorted(file for file in path.rglob("*") if file.is_file()), 0
    for file in files:
        content = file.read_bytes()
        DAMAGES[damage](file)
        try:
            loaded = fw.load(path)
        except ValueError as error:
            assert "theory.zarr' " in str(error) and "damaged" in str(error) or "readable" in str(error)
            refusals += 1
        else:  # a byte of the metadata that means nothing
            assert loaded.net == NET and loaded.error == theory.error
            np.testing.assert_array_equal(loaded.output.Theta, theory.output.Theta)
        file.write_bytes(content)
    assert refusals >= len(files) - 2


def test_finished_claims_that_were_changed_are_refused(tmp_path):
    path = tmp_path / "claims.json"
    outcome = Outcome(chosen(("10.93",))[0], (Comparison("value", 1.0, 1.0, 1e-3),), 1.25)
    ClaimStore(path).put(outcome)
    assert ClaimStore(path).get(outcome.claim) == outcome
    path.write_text(path.read_text().replace("1.25", "1.26"))
    with refused("is not a store of claims, or is damaged"):
        ClaimStore(path)


# --- disks that are full, places that cannot be written -------------------------------------------------


def test_a_full_disk_is_one_sentence_and_what_was_kept_stays(tmp_path, monkeypatch):
    store = tmp_path / "run.zarr"
    whole = results(None)
    unfinished(store)
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(local, "_put", full)
        with refused("run.zarr' cannot be written: No space left on device; choose another place"):
            results(store)
        with refused("new.zarr' cannot be written: No space left on device"):
            results(tmp_path / "new.zarr")
    assert all(file.read_bytes() == content for file, content in before.items())
    assert not (tmp_path / "new.zarr").exists()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)  # not even the holder of the lock can be written down
        with refused("run.zarr' cannot be written: No space left on device"):
            results(store)
    assert same(results(store), whole)


LIMITED = """
import sys, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # what the system says when a file cannot grow
from finitewidth.interface.cli.main import main
main(sys.argv[1:])
"""


def test_the_command_line_on_a_full_disk_keeps_earlier_results(tmp_path):
    (tmp_path / "run.toml").write_text(
        '[network]\nwidths = [2, 4, 1]\nactivation = "relu"\n[data]\npath = "X.csv"\n'
    )
    (tmp_path / "X.csv").write_text("1,2\n3,4\n")
    earlier = tmp_path / "out"
    earlier.mkdir()
    (earlier / "summary.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "solve", "run.toml", "--output", "out", "--json"],
        cwd=tmp_path,
        # no bytecode: before Python 3.12.8 a file that cannot grow leaves half a module in the cache
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("finitewidth: --output 'out' cannot be written: File too large;")
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["X.csv", "out", "run.toml"]
    assert (earlier / "summary.json").read_text() == "{}"


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, monkeypatch):
    """As the system answers in a read-only directory, which does not keep its owner root from writing."""

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    store = tmp_path / "run.zarr"
    whole = results(store)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", read_only)
        with refused("run.zarr' cannot be written: Read-only file system; choose another place"):
            results(store)
    with monkeypatch.context() as patched:
        patched.setattr("tempfile.mkdtemp", read_only)
        with refused("cannot be written: Read-only file system"), replaced_directory(tmp_path / "out"):
            pytest.fail("there is nowhere to write")
        with refused("cannot be written: Read-only file system"):
            fw.solve(NET, X, order=0).save(tmp_path / "theory.zarr")
    assert same(results(store), whole)


# --- results that take the place of earlier ones ---------------------------------------------------------


def test_earlier_results_are_there_again_when_new_ones_cannot_take_their_place(tmp_path, monkeypatch):
    place = tmp_path / "out"
    place.mkdir()
    (place / "good").write_text("good")
    rename = Path.rename

    def fails_for_drafts(self, target):
        if self.name == "draft":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(self, target)

    with monkeypatch.context() as patched, pytest.raises(OSError), drafted(place) as draft:
        patched.setattr(Path, "rename", fails_for_drafts)
        draft.mkdir()
    assert (place / "good").read_text() == "good" and len(list(tmp_path.iterdir())) == 1


def test_earlier_results_of_a_process_that_was_killed_between_two_renames_come_back(tmp_path):
    place = tmp_path / "out"
    (tmp_path / ".out-abc" / "earlier").mkdir(parents=True)
    (tmp_path / ".out-abc" / "earlier" / "good").write_text("good")
    with pytest.raises(KeyError), drafted(place):
        raise KeyError
    assert (place / "good").read_text() == "good"


def test_summary_of_an_ensemble_on_a_full_disk(tmp_path, monkeypatch, capsys):
    """The store is whole by then; the same command writes what is missing."""
    np.savez(tmp_path / "d.npz", x=X, y=X[:, :1])
    (tmp_path / "run.toml").write_text(
        '[network]\nwidths = [2, 3, 1]\nactivation = "tanh"\n'
        '[data]\ntrain_inputs = "d.npz:x"\ntrain_targets = "d.npz:y"\ntest_inputs = "d.npz:x"\n'
        '[training]\nalgorithm = "gradient_descent"\nlearning_rate = 0.1\nsteps = 2\n'
        "[ensemble]\nmembers = 4\nkey = 0\n"
    )
    arguments = ["ensemble", str(tmp_path / "run.toml"), "--output", str(tmp_path / "out"), "--json"]

    def full(self, *_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    with monkeypatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(Path, "write_text", full)
        cli.main(arguments)
    assert ended.value.code == 2
    assert "No space left on device" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["members"] == 4


# --- surroundings that lack what a desk has ----------------------------------------------------------


HARDSHIP = """
import sys, numpy as np, finitewidth as fw
X, Y = np.array([[1.0, 0.4], [-0.3, 0.9]]), np.array([[0.7], [-0.4]])
net = fw.MLP((2, 64, 1), "erf", C_b=0.1)
prediction = fw.predict(net, X, Y, X + 0.2, algorithm=fw.GradientFlow(0.3))
print(prediction.mean.tolist())
str(prediction), str(fw.audit(net)), prediction._repr_html_()
for use in (
    lambda: fw.solve(net, X, order=0).save(sys.argv[1]),
    lambda: fw.load(sys.argv[1]),
    lambda: fw.train_ensemble(
        net, X, Y, X, algorithm=fw.GradientDescent(0.1, 1), members=2, key=1, run=fw.Run(store=sys.argv[1])
    ),
):
    try:
        use()
    except ValueError as refusal:
        print(ascii(str(refusal)))
"""


def test_a_poor_environment_changes_no_number_and_zarr_needs_assertions(tmp_path):
    """Optimized Python in the C locale, without a home, a cache, a temporary folder or a wide terminal."""
    nowhere, none = str(tmp_path / "nowhere"), "/proc/none"
    poor = {"HOME": nowhere, "XDG_CACHE_HOME": none, "NUMBA_CACHE_DIR": none, "TMPDIR": nowhere, "LANG": "C"}
    poor |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "COLUMNS": "20", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-O", "-c", HARDSHIP, str(tmp_path / "данные.zarr")]
    done = subprocess.run(
        command, capture_output=True, encoding="ascii", env={"PATH": os.environ["PATH"], **poor}
    )
    assert done.returncode == 0, done.stderr
    mean, *refusals = done.stdout.splitlines()
    Y, net = np.array([[0.7], [-0.4]]), fw.MLP((2, 64, 1), "erf", C_b=0.1)
    inputs = np.array([[1.0, 0.4], [-0.3, 0.9]])
    here = fw.predict(net, inputs, Y, inputs + 0.2, algorithm=fw.GradientFlow(0.3))
    np.testing.assert_allclose(json.loads(mean), here.mean, rtol=1e-13)
    assert len(refusals) == 3 and all("under python -O or PYTHONOPTIMIZE" in one for one in refusals)
    assert not list(tmp_path.iterdir())
