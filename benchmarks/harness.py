"""What the benchmarks against neural-tangents share: tables with targets, times, memory."""

import json
import math
import platform
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.peer import Side

# --- what is measured -------------------------------------------------------------------------------


class Timing(NamedTuple):
    """Median seconds of interleaved runs."""

    ours: float
    peer: float  # nan where finitewidth ran alone

    @property
    def ratio(self) -> float:
        return self.peer / self.ours

    def cells(self) -> tuple[str, str, str]:
        return shown(self.ours), shown(self.peer), f"{self.ratio:.3g}"


def relative(found, exact) -> float:
    """Largest |difference| of two matrices in units of the square roots of their diagonal entries."""
    exact = np.asarray(exact)
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    return float(np.max(np.abs(np.asarray(found) - exact) / scale))


def extra_memory(case: Sequence, side: Side, *, warm: bool = True) -> int:
    """Peak resident memory of one call beyond what was resident before it, in bytes.

    Without `warm` nothing but what the process does at its start comes before.
    """
    side.ask("warm", case=case) if warm else side.ask("about")
    process = psutil.Process(side.process.pid)
    before = process.memory_info().rss
    seen, done = [before], threading.Event()

    def watch():
        while not done.wait(0.001):
            seen.append(process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    side.ask("run", case=case)
    done.set()
    watcher.join()
    return max(seen) - before


class Kept:
    """Measurements that are kept on disk, so that a run that was stopped goes on where it was.

    A file belongs to one benchmark and one commit; it is thrown away when the run is complete.
    """

    def __init__(self, name: str, commit: str):
        self.path = Path(tempfile.gettempdir()) / f"finitewidth-benchmark-{name}-{commit}.json"
        self.values = json.loads(self.path.read_text()) if self.path.exists() else {}

    def __call__(self, what: str, measure: Callable):
        """The kept value, or that of `measure`, which must be plain numbers, strings and lists."""
        if what not in self.values:
            self.values[what] = measure()
            self.path.write_text(json.dumps(self.values))
        return self.values[what]

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


# --- tables -----------------------------------------------------------------------------------------


@dataclass
class Report:
    """Tables, and the targets that they decide."""

    targets: list[tuple[str, str, str]] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)

    def target(self, what: str, seen: str, met: bool) -> None:
        self.targets.append((what, seen, "met" if met else "MISSED"))

    def table(self, title: str, header: str, rows: list[tuple], note: str) -> None:
        self.tables.append(f"## {title}\n\n{markdown(header, rows)}\n\n{note}\n")

    def text(self, opening: str) -> str:
        targets = markdown("target | seen | verdict", self.targets)
        return "\n".join([opening, f"## Targets\n\n{targets}\n", *self.tables])


def markdown(header: str, rows: list[tuple]) -> str:
    """A table; the names of its columns are separated by bars."""
    names = header.split(" | ")
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def say(what: str) -> None:
    print(f"  {what}", file=sys.stderr, flush=True)


def median(times: list[float]) -> float:
    return float(np.median(times))


def shown(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def write(path: Path, text: str) -> None:
    """Keep the tables of a full run."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
