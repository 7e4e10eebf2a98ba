"""How long commands take to end after Ctrl-C or SIGTERM at a random moment.

Writes results/interrupts.md; with the names of commands, only prints their rows. Each run starts
in an empty directory; the signal comes 0.3 s to 8 s later. Children that outlive a command, and what is
printed, are counted too.
"""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results" / "interrupts.md"
COMMANDS = {
    "solve": ["solve"],
    "ensemble": ["ensemble", "run.toml"],
    "claims": ["claims"],
    "criticality": ["criticality", "gelu", "--fit"],
    "audit": ["audit", "784,100x200,10", "--activation", "gelu"],
    "page": ["page", "--no-browser"],
}
RUNS = 4
LONGEST = 8.0


def started(arguments: list[str], folder: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "finitewidth", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, **pipes)


def one(name: str) -> tuple[float, float, str, int] | None:
    """Seconds and processor time to the end, what was printed, children left; None if it had ended."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "ensemble":
            example = started(["solve", "--example"], folder).communicate()[0]
            (Path(folder) / "run.toml").write_text(example, encoding="utf-8")
        process = started(COMMANDS[name], folder)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(random.uniform(0.3, LONGEST))
            process.communicate()
            return None
        children = psutil.Process(process.pid).children(recursive=True)
        worked = sum(psutil.Process(process.pid).cpu_times()[:2]) + _of_children()
        begun = time.perf_counter()
        process.send_signal(random.choice([signal.SIGINT, signal.SIGTERM]))
        errors = process.communicate()[1]
        seconds = time.perf_counter() - begun
        worked = _of_children() - worked
        _, alive = psutil.wait_procs(children, timeout=2)
        return seconds, max(worked, 0.0), errors, len(alive)


def _of_children() -> float:
    """Processor time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # children must not inherit that it is ignored
    random.seed(0)
    lines = [
        "# Interrupts",
        "",
        f"`python -m benchmarks.robustness.interrupts`, {stamp()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.0f}. Ctrl-C or SIGTERM at a random moment of the first {LONGEST:.0f} s.",
        "",
        "| command | signals | median (s) | longest (s) | most processor time (s) | with one line | left |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sys.argv[1:] or COMMANDS:
        ended = [result for _ in range(RUNS) if (result := one(name)) is not None]
        if not ended:
            continue
        seconds = sorted(result[0] for result in ended)
        said = sum(text.count("finitewidth: interrupted; ") == 1 for _, _, text, _ in ended)
        left = sum(result[3] for result in ended)
        lines.append(
            f"| {name} | {len(ended)} | {seconds[len(seconds) // 2]:.2f} | {seconds[-1]:.2f} "
            f"| {max(result[1] for result in ended):.2f} | {said} | {left} |"
        )
        print(lines[-1], [text for _, _, text, _ in ended if text.count("\n") != 1], flush=True)
    if len(sys.argv) > 1:
        return
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
