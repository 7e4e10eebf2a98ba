"""Ctrl-C and SIGTERM: every command ends, with one line that says what is kept."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers.command_line import RUN
from helpers.paths import ROOT

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING = "finitewidth: interrupted; no results were written.\n"
HANGS = 60  # seconds after which a command counts as one that never ends


def started(*arguments: str, cwd: Path = ROOT) -> subprocess.Popen:
    """A Python process that can be interrupted also where this one, in the background, ignores Ctrl-C."""
    earlier = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a child inherits the default, not a handler
    try:
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    finally:
        signal.signal(signal.SIGINT, earlier)


def watches(process: subprocess.Popen) -> bool:
    """Whether the process has a handler of SIGTERM, which Python does not have by itself."""
    status = Path(f"/proc/{process.pid}/status")
    if not status.exists():  # not Linux, or ended
        return process.poll() is not None or time.sleep(1) is None
    caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1) or process.poll() is not None


def interrupted(process: subprocess.Popen, number: int, after: float = 0.0) -> tuple[int, str]:
    """The status of a process and its errors, after a signal so many seconds after it began to watch."""
    while not watches(process):
        time.sleep(0.01)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after)
    process.send_signal(number)
    errors = process.communicate(timeout=HANGS)[1]
    return process.returncode, errors


STUCK = {
    "in compiled code": "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)",
    "where exceptions are lost": """
while True:
    try:
        time.sleep(0.01)
    except BaseException:
        pass""",
}
COMMAND = """
import sys, threading, time
from finitewidth import __main__
from finitewidth.interface.cli import main
from finitewidth.interface.cli.interrupts import keeping
def work():
    with keeping(lambda: "half of it is kept; the same command continues."):
        print("ready", flush=True)
        exec({code!r})
main.main = work
__main__.main()
"""


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("place", ["in compiled code", "where exceptions are lost"])
def test_a_signal_ends_a_command_wherever_it_is(place, number):
    process = started("-c", COMMAND.format(code=STUCK[place]))
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    line = "finitewidth: interrupted; half of it is kept; the same command continues.\n"
    assert interrupted(process, number) == (130, line)


def test_a_draft_is_removed_and_earlier_results_stay(tmp_path):
    code = f"""
import pathlib
from finitewidth.core.storage.files import drafted
with drafted(pathlib.Path({str(tmp_path / "results")!r})) as draft:
    draft.mkdir()
    (draft / "half").write_text("new")
    print("draft", flush=True)
    time.sleep(600)
"""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "whole").write_text("old")
    process = started("-c", COMMAND.format(code=code))
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "draft\n"]
    assert interrupted(process, signal.SIGINT)[0] == 130
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["results", "results/whole"]


def ended_well(status: int, errors: str, number: int) -> bool:
    """One line and status 130; after the last result a signal, or the command itself, ends it silently."""
    if status == 130:
        return errors.startswith("finitewidth: interrupted; ") and errors.count("\n") == 1
    return status in (0, -number) and errors == ""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_a_random_moment_ends_an_audit(number):
    process = started("-m", "finitewidth", "audit", "784,100x20,10")
    status, errors = interrupted(process, number, random.uniform(0, 2))
    assert ended_well(status, errors, number), (status, errors)


COMMANDS = {
    "solve": (),
    "claims": ("--all",),
    "criticality": ("gelu", "--fit"),
    "page": ("--no-browser",),
}


@pytest.mark.long
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_at_random_moments_ends_every_command_and_its_children(tmp_path, command, number):
    for _ in range(4):
        process = started("-m", "finitewidth", command, *COMMANDS[command], cwd=tmp_path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(random.uniform(0, 20))
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        status, errors = interrupted(process, number)
        if command == "page":
            assert (status, errors) == (0, "finitewidth: interrupted; the page keeps no results.\n")
        else:
            assert ended_well(status, errors, number), (status, errors)
        assert not psutil.wait_procs(children, timeout=HANGS)[1]


@pytest.mark.long
def test_a_run_that_is_interrupted_again_and_again_ends_with_the_same_bits(tmp_path):
    run = RUN.replace("members = 40", "members = 4000")
    for name in ("undisturbed", "disturbed"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.toml").write_text(run, encoding="utf-8")
    solve = ("-m", "finitewidth", "solve", "run.toml", "--output", "out")
    assert started(*solve, cwd=tmp_path / "undisturbed").wait(600) == 0
    patience, status = 2.0, 130
    while status:
        process = started(*solve, cwd=tmp_path / "disturbed")
        status, errors = interrupted(process, random.choice(SIGNALS), random.uniform(0, patience))
        assert ended_well(status, errors, -status), (status, errors)
        patience *= 1.2
    assert sorted(os.listdir(tmp_path / "disturbed")) == ["out", "run.toml"]
    undisturbed, disturbed = (
        (tmp_path / name / "out" / "summary.json").read_bytes() for name in ("undisturbed", "disturbed")
    )
    assert disturbed == undisturbed
