"""Twenty people at the page at once, for a minute: errors, answer times and memory.

    python -m benchmarks.page.load            # or --quick: five people, fifteen seconds, nothing written

Starts `finitewidth page` and visits it on loopback over HTTP. Each person picks a control, drags it through
a few values 0.15 s apart (a new value gives up the question before it, as the page does), waits for the
answer and for the three parts at finite width, looks at the plots for 3 to 6 seconds, and goes on. Before
that every activation is asked for once, as a server that has run for a minute has done by itself.
Writes benchmarks/page/results/load.md.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlencode

import httpx
import numpy as np
import psutil

from benchmarks.provenance import stamp
from finitewidth.interface.page.problem import PARTS
from finitewidth.interface.page.values import ACTIVATIONS, FIELDS, Choice, Values

MEDIAN, GROWTH = 1.0, 0.05  # seconds; of memory in the second half
RESULTS = Path(__file__).parent / "results" / "load.md"
BETWEEN_MOVES = 0.15  # seconds
ALWAYS = ("activation", "depth", "width", "start", "lambda_b", "lambda_W", "algorithm", "target", "points")
SOMETIMES = {"own": ("C_b", "C_W"), "flow_time": ("time",), "descent": ("learning_rate", "steps")}
KINDS = ("theory", "finite width")
DEEPEST = 8  # most people stay with networks that they can train


class Person(threading.Thread):
    """One visitor, with its record in `took` (kind, seconds), `errors` and `given_up`."""

    def __init__(self, address: str, seed: int, end: float):
        super().__init__(daemon=True)
        self.http = httpx.Client(base_url=address, timeout=120)
        self.random = random.Random(seed)
        self.end = end
        self.state = Values().to_dict()
        self.took: list[tuple[str, float]] = []
        self.errors: list[str] = []
        self.given_up = 0

    def run(self) -> None:
        time.sleep(self.random.uniform(0, 3))
        with self.http:
            while time.monotonic() < self.end:
                self.use_one_control()
                time.sleep(self.random.uniform(3, 6))

    def use_one_control(self) -> None:
        open_now = [n for word in self.state.values() for n in SOMETIMES.get(str(word), ())]
        name = self.random.choice([*ALWAYS, *open_now])
        moves = 1 if isinstance(FIELDS[name], Choice) else self.random.randint(2, 5)
        for move in range(moves):
            self.state[name] = self.value_of(name)
            if move < moves - 1:
                self.glance()
        if self.ask("theory", "/api/theory"):
            for part in range(len(PARTS)):
                if not self.ask("finite width", f"/api/finite/{part}"):
                    break

    def value_of(self, name: str):
        field = FIELDS[name]
        if isinstance(field, Choice):
            return self.random.choice([*field.options])
        highest = DEEPEST if name == "depth" else field.highest
        part = self.random.randint(0, 200) / 200
        if field.logarithmic:
            value = field.lowest * (highest / field.lowest) ** part
        else:
            value = field.lowest + part * (highest - field.lowest)
        return round(value) if field.whole else float(f"{value:.3g}")

    def glance(self) -> None:
        """A value during a move; its answer counts only if it arrives before the next value."""
        start = time.monotonic()
        try:
            self.check(self.http.get(f"/api/theory?{urlencode(self.state)}", timeout=BETWEEN_MOVES))
            self.took.append(("theory", time.monotonic() - start))
        except httpx.TimeoutException:
            self.given_up += 1
        time.sleep(max(0.0, start + BETWEEN_MOVES - time.monotonic()))

    def ask(self, kind: str, path: str) -> bool:
        """Whether there is more to ask about these values."""
        start = time.monotonic()
        try:
            answer = self.check(self.http.get(f"{path}?{urlencode(self.state)}"))
        except httpx.HTTPError as error:
            self.errors.append(f"{path}: {type(error).__name__}")
            return False
        self.took.append((kind, time.monotonic() - start))
        return "regression" in answer and not answer["finite_missing"] or "part" in answer

    def check(self, response: httpx.Response) -> dict:
        answer = response.json() if response.status_code == 200 else {}
        said = " ".join(answer.get("errors", {}).values())
        if response.status_code != 200 or "longer than the limit" in said:
            self.errors.append(f"{response.status_code} {said}")
        return answer


@contextlib.contextmanager
def server():
    """The command itself: its address and its process."""
    command = [sys.executable, "-m", "finitewidth", "page", "--no-browser", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["address"], psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def memory_of(process: psutil.Process) -> float:
    """Megabytes of the server and its children."""
    family = [process, *process.children(recursive=True)]
    return sum(one.memory_info().rss for one in family) / 1e6


def first_answers(address: str) -> list[float]:
    """The first answers for every activation, which include its compilation."""
    took = []
    with httpx.Client(base_url=address, timeout=300) as http:
        for name in ACTIVATIONS:
            start = time.monotonic()
            for path in ("/api/theory", "/api/finite/0"):
                http.get(path, params={"activation": name, "start": "own", "C_b": 0.1})
            took.append(time.monotonic() - start)
            print(f"first answers for {name:16s} {took[-1]:6.2f} s", flush=True)
    return took


def visit(address: str, process: psutil.Process, people: int, seconds: float):
    end = time.monotonic() + seconds
    visitors = [Person(address, seed, end) for seed in range(people)]
    for one in visitors:
        one.start()
    memory = []
    while any(one.is_alive() for one in visitors):
        memory.append(memory_of(process))
        time.sleep(min(5.0, seconds / 8))
    return visitors, memory


def row(kind: str, took: list[float]) -> str:
    median, late, longest = np.quantile(took or [np.nan], [0.5, 0.95, 1.0])
    text = f"| {kind} | {len(took)} | {median:.3f} | {late:.3f} | {longest:.2f} |"
    print(text)
    return text


def report(first: list[float], visitors: list[Person], memory: list[float], seconds: float) -> list[str]:
    took = [entry for one in visitors for entry in one.took]
    errors = [error for one in visitors for error in one.errors]
    given_up = sum(one.given_up for one in visitors)
    half = len(memory) // 2
    lines = [
        "# The page under load",
        "",
        f"Written by `benchmarks/page/load.py` on {stamp()}, "
        f"{os.cpu_count()} cores ({platform.machine()}): {len(visitors)} people for {seconds:.0f} s,",
        "visitors and server on the same machine. Theory is criticality, signals and infinite width; finite",
        "width comes in three parts, each an answer. Our limits: no error, a median of every kind",
        f"below {MEDIAN:g} s, and memory that grows by at most {GROWTH:.0%} in the second half (most of the",
        "compilation happens in the first).",
        "",
        "| answers | number | median, s | 95 %, s | longest, s |",
        "|---|---|---|---|---|",
        row("all", [t for _, t in took]),
        *(row(kind, [t for k, t in took if k == kind]) for kind in KINDS),
        row("first of an activation", first),
        "",
        f"Errors: {len(errors)}. Questions given up because a newer value came: {given_up}.",
        "",
        f"Memory of the server and its children: {memory[0]:.0f} MB at the beginning, {memory[half]:.0f} MB "
        f"halfway, {memory[-1]:.0f} MB at the end, at most {max(memory):.0f} MB.",
        "",
        f"Limits: {'kept' if is_within(visitors, memory) else 'NOT KEPT'}.",
    ]
    print("\n".join([*lines[-5:], *sorted(set(errors))[:10]]))
    return lines


def is_within(visitors: list[Person], memory: list[float]) -> bool:
    medians = [np.median([t for one in visitors for k, t in one.took if k == kind]) for kind in KINDS]
    grown = memory[-1] / memory[len(memory) // 2] - 1
    return not any(one.errors for one in visitors) and max(medians) < MEDIAN and grown <= GROWTH


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="five people for fifteen seconds")
    quick = parser.parse_args().quick
    people, seconds = (5, 15.0) if quick else (20, 60.0)
    with server() as (address, process):
        first = first_answers(address)
        visitors, memory = visit(address, process, people, seconds)
        lines = report(first, visitors, memory, seconds)
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.exit(0 if is_within(visitors, memory) else 1)


if __name__ == "__main__":
    main()
