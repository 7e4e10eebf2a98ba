"""How runs survive kills, full disks and damaged files.

    python -m benchmarks.robustness.faults            # or --quick: three kills, nothing written

Kills an ensemble, the main job and a prediction with SIGKILL at random moments, resumes them, and compares
every file and number with those of an undisturbed run. Fills a small disk and makes it read-only (both need
the right to mount; without it they are left out, and the table says so). Damages every file of a store in
turn, and runs two processes on one store. Writes benchmarks/robustness/results/faults.md.
"""

import argparse
import contextlib
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results" / "faults.md"
ROOT = Path(fw.__file__).parents[1]
COMMAND = [sys.executable, "-m", "finitewidth"]

DATA = """
[data]
train_inputs = [[0.5, -1.2], [1.1, 0.3], [-0.7, 0.8]]
train_targets = [[0.7], [-0.4], [0.1]]
test_inputs = [[0.2, 0.4], [-1.0, -0.3]]
"""
ENSEMBLE = """
[network]
widths = [2, 24, 24, 1]
activation = "tanh"
[training]
algorithm = "gradient_descent"
learning_rate = 0.05
steps = 1500
[ensemble]
members = 240
batch_size = 8
key = 7
[record]
at = [0, 100]
ntk = true
members = true
"""
MAIN_JOB = ENSEMBLE.replace("\nmembers = true", "").replace("24, 24", "24")
PREDICTION = """
import numpy as np, finitewidth as fw
import finitewidth.training.first_order.prepared as statistics
statistics.DENSE = 4  # ten samples come leg by leg, as a hundred would
X = np.random.default_rng(5).standard_normal((10, 3))
net = fw.MLP((3, 40, 30, 30, 1), "sin", C_b=0.1, C_W=1.2)
found = fw.predict(net, X[:7], np.sin(X[:7, :1]), X[7:], covariance=False, run=fw.Run("out/run.zarr"))
np.savez("out/found.npz", mean=found.mean, **found.contributions)
"""


# --- kills ----------------------------------------------------------------------------------------------


class Job:
    """A command that writes into the directory `out`, and its results in an undisturbed run."""

    def __init__(self, name: str, command: list[str], scratch: Path):
        self.name, self.command, self.scratch = name, command, scratch
        began = time.monotonic()
        done = self.run(scratch / "undisturbed")
        self.seconds = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"{name} failed undisturbed: {done.stderr}")
        self.whole = contents(scratch / "undisturbed" / "out")

    def start(self, place: Path) -> subprocess.Popen:
        place.mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(self.command, cwd=place, env=environment, **pipes)

    def run(self, place: Path) -> subprocess.CompletedProcess:
        process = self.start(place)
        _, stderr = process.communicate()
        return subprocess.CompletedProcess([], process.returncode, "", stderr)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file by its name; drafts of files that a killed process was writing do not count."""
    return {
        str(file.relative_to(directory)): file.read_bytes()
        for file in sorted(directory.rglob("*"))
        if file.is_file() and ".partial" not in file.name and not file.name.endswith(".lock")
    }


def killed(job: Job, kills: int, chance: random.Random) -> dict:
    """Kill the job so many times; resume it after each kill, and start afresh once it has finished."""
    place, struck, ended, wrong = job.scratch / "disturbed", 0, 0, 0
    moments = []
    while struck < kills:
        process = job.start(place)
        delay = chance.uniform(0, job.seconds)
        try:
            process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            moments.append(delay)
            struck += 1
        _, stderr = process.communicate()
        if process.returncode == 0:
            ended, wrong = ended + 1, wrong + (contents(place / "out") != job.whole)
            shutil.rmtree(place)
        elif process.returncode != -signal.SIGKILL:
            raise SystemExit(f"{job.name} refused to go on: {stderr}")
    done = job.run(place)
    if done.returncode:
        raise SystemExit(f"{job.name} refused to go on: {done.stderr}")
    ended, wrong = ended + 1, wrong + (contents(place / "out") != job.whole)
    return {"kills": struck, "ended": ended, "wrong": wrong, "first": min(moments), "last": max(moments)}


def jobs(scratch: Path) -> Iterator[tuple[Job, int]]:
    """The jobs, and how often each is killed."""
    ensemble, main = scratch / "ensemble.toml", scratch / "main.toml"
    ensemble.write_text(ENSEMBLE + DATA)
    main.write_text(MAIN_JOB + DATA)
    for name, command, kills in (
        ("`finitewidth ensemble`", [*COMMAND, "ensemble", str(ensemble), "--output", "out"], 20),
        ("`finitewidth solve run.toml`", [*COMMAND, "solve", str(main), "--output", "out"], 5),
        ("`fw.predict(run=fw.Run(store=...))`", [sys.executable, "-c", PREDICTION], 5),
    ):
        place = scratch / name.strip("`").split("(")[0].replace(" ", "_")
        place.mkdir()
        yield Job(name, command, place), kills


def earlier_results_survive(job: Job, kills: int, chance: random.Random) -> str:
    """Kill the main job where it has earlier results, which must stay complete until the new ones are."""
    place = job.scratch / "again"
    if job.run(place).returncode:
        raise SystemExit("the main job failed")
    for _ in range(kills):
        process = job.start(place)
        time.sleep(chance.uniform(0.5, 1) * job.seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if contents(place / "out") != job.whole:
            return f"**changed**, {kills} kills"
    return f"unchanged after {kills} kills"


# --- disks ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[bool]:
    """Mount a file system of this size at `place`; False if this process may not."""
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    made = subprocess.run(options, capture_output=True).returncode == 0
    try:
        yield made
    finally:
        if made:
            subprocess.run(["umount", str(place)], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def disks(job: Job, scratch: Path) -> list[tuple[str, str]]:
    """A disk that fills up during a run, and then one that is read-only."""
    place = scratch / "disk"
    with small_disk(place, "600k") as made:
        if not made:
            return [("full disk, read-only disk", "left out: this process may not mount")]
        full = job.run(place)
        found = [("full disk, during the run", _refusal(full))]
        remount(place, "ro")
        found.append(("read-only disk", _refusal(job.run(place))))
        remount(place, "rw,size=64m")
        resumed = job.run(place)
        same = resumed.returncode == 0 and contents(place / "out") == job.whole
        found.append(("then with space", "resumed, same bits" if same else f"**wrong** {resumed.stderr}"))
    return found


def _refusal(done: subprocess.CompletedProcess) -> str:
    lines = done.stderr.strip().splitlines()
    if done.returncode != 2 or not lines or "Traceback" in done.stderr:
        return f"**status {done.returncode}**: {done.stderr.strip()[-300:]}"
    sentence = lines[-1].partition("'")[0] + "..." + lines[-1].rpartition("'")[2]
    return f"status 2: “{sentence}”"


def two_processes(job: Job, scratch: Path) -> str:
    place = scratch / "two"
    first = job.start(place)
    while not list(place.rglob("*.lock")) and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)
    second = job.run(place)
    first.send_signal(signal.SIGCONT)
    first.communicate()
    same = first.returncode == 0 and contents(place / "out") == job.whole
    return f"{_refusal(second)}; the first ended {'with the same bits' if same else '**wrong**'}"


# --- damage ---------------------------------------------------------------------------------------------


def train(store: Path | None):
    X = np.random.default_rng(1).standard_normal((3, 2))
    net, how = fw.MLP((2, 4, 1), "tanh"), fw.GradientDescent(0.1, 5)
    options = {"members": 12, "key": 3}
    return fw.train_ensemble(net, X[:2], X[:2, :1], X[2:], algorithm=how, **options, run=fw.Run(store=store))


def damages(scratch: Path, chance: random.Random) -> Counter:
    """How a run continues after each kind of damage to each file of its store."""
    whole, store, pristine = train(None), scratch / "run.zarr", scratch / "pristine.zarr"
    train(store)
    shutil.rmtree(store / "batches" / "done" / "c")  # no batch counts as finished
    finished_again = train(store)  # all of them are written again
    assert _same(finished_again, whole)
    shutil.copytree(store, pristine)
    found: Counter = Counter()
    for file in sorted(file for file in pristine.rglob("*") if file.is_file()):
        for kind in ("byte flipped", "truncated", "removed", "replaced by zeros"):
            shutil.rmtree(store)
            shutil.copytree(pristine, store)
            _damage(store / file.relative_to(pristine), kind, chance)
            try:
                found[kind, "same bits" if _same(train(store), whole) else "WRONG"] += 1
            except ValueError as error:
                found[kind, "refused" if str(store) in str(error) else "UNCLEAR"] += 1
    return found


def _damage(file: Path, kind: str, chance: random.Random) -> None:
    data = file.read_bytes()
    if kind == "removed":
        file.unlink()
    elif kind == "truncated":
        file.write_bytes(data[: chance.randrange(len(data))])
    elif kind == "replaced by zeros":
        file.write_bytes(bytes(len(data)))
    else:
        at = chance.randrange(len(data))
        file.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])


def _same(one: fw.records.Ensemble, other: fw.records.Ensemble) -> bool:
    pairs = zip((*one.outputs, *one.loss), (*other.outputs, *other.loss), strict=True)
    return all(np.array_equal(first, second) for first, second in pairs)


# --- the report -----------------------------------------------------------------------------------------


def report(rows: list[dict], others: list[tuple[str, str]], found: Counter, seconds: float) -> str:
    lines = [
        "# Faults: kills, disks, damage",
        "",
        f"{stamp()}, {platform.machine()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, finitewidth {fw.__version__}; "
        f"{seconds:.0f} s. Written by "
        "`python -m benchmarks.robustness.faults`.",
        "",
        "## Killed with SIGKILL at random moments, and resumed",
        "",
        "Moments are uniform over the time that the run takes undisturbed, counted from the start of the "
        "process. Every file of the results is compared with the undisturbed run, byte by byte.",
        "",
        "| run | undisturbed (s) | kills | earliest, latest (s) | came to its end | differed |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['name']} | {row['seconds']:.1f} | {row['kills']} | {row['first']:.1f}, {row['last']:.1f} "
        f"| {row['ended']} | {row['wrong']} |"
        for row in rows
    ]
    lines += ["", "## Disks, processes, versions", "", "| fault | result |", "|---|---|"]
    lines += [f"| {name} | {what} |" for name, what in others]
    kinds = list(dict.fromkeys(kind for kind, _ in found))
    ends = ("refused", "same bits", "UNCLEAR", "WRONG")
    lines += [
        "",
        "## Every file of a store damaged in turn",
        "",
        "Refused: one sentence that names the store and the remedy. Same bits: the damaged part was computed "
        "again, or was not needed.",
        "",
        f"| damage | {' | '.join(ends)} |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {kind} | {' | '.join(str(found[kind, end]) for end in ends)} |" for kind in kinds]
    return "\n".join(lines) + "\n"


def other_version(scratch: Path) -> str:
    from finitewidth.experiment.ensemble import training as ensemble

    store = scratch / "version.zarr"
    train(store)
    before, version = contents(store), ensemble.__version__
    ensemble.__version__ = "0.0.1"
    try:
        train(store)
    except ValueError as error:
        kept = "store unchanged" if contents(store) == before else "**store changed**"
        return f"“...{str(error).partition(': ')[2]}”; {kept}"
    finally:
        ensemble.__version__ = version
    return "**accepted**"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="three kills, nothing written")
    quick = parser.parse_args().quick
    chance, began = random.Random(9), time.monotonic()
    rows, others = [], []
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        for job, kills in jobs(scratch):
            kills = 3 if quick else kills
            rows.append({"name": job.name, "seconds": job.seconds, **killed(job, kills, chance)})
            print(rows[-1], flush=True)
            if "ensemble" in job.name:
                others += disks(job, scratch)
                others.append(("second process on the store of a run", two_processes(job, scratch)))
            if "solve" in job.name:
                others.append(("earlier results", earlier_results_survive(job, kills, chance)))
            print(others, flush=True)
        others.append(("store of another version", other_version(scratch)))
        found = damages(scratch, chance)
    text = report(rows, others, found, time.monotonic() - began)
    print(text)
    if not quick:
        RESULTS.write_text(text, encoding="utf-8")
    bad = any(row["wrong"] for row in rows) or any("**" in what for _, what in others)
    sys.exit(bad or any(end in ("WRONG", "UNCLEAR") for _, end in found))


if __name__ == "__main__":
    main()
