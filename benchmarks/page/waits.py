"""What one visitor of the page waits for: first answers, an activation nobody asked for, trained networks.

    python -m benchmarks.page.waits           # prints; --write adds benchmarks/page/results/waits.md

Starts `finitewidth page` twice with a folder of compiled programs of its own: empty, then as the first server
left it. The visitor asks for the default state as soon as the server answers, waits, clicks to train, chooses
gelu, and looks at the other tabs afterwards. Seconds of the clock, and of the
processor (server and children together).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil

from benchmarks.provenance import stamp
from finitewidth.interface.page.problem import PARTS

RESULTS = Path(__file__).parent / "results" / "waits.md"
LOOKS = 10.0  # seconds that the visitor reads before clicking
FROM_PAGE = {"X-Finitewidth": "page"}
PATIENCE = 180.0


class Visit:
    """One visitor of one server, with the waits in `took`: what, seconds of the clock, of the processor."""

    def __init__(self, address: str, process: psutil.Process):
        self.http = httpx.Client(base_url=address, timeout=PATIENCE)
        self.process = process
        self.took: list[tuple[str, float, float]] = []

    def run(self) -> None:
        self.wait("default: theory", lambda: self.get("/api/theory?"))
        self.wait("default: finite width, first part", lambda: self.get("/api/finite/0?"))
        self.wait("default: finite width, second part", lambda: self.get("/api/finite/1?"))
        self.wait("default: finite width, third part", lambda: self.get("/api/finite/2?"))
        self.wait("another width: all of it", lambda: self.all_of("width=100"))
        self.wait("another depth: all of it", lambda: self.all_of("depth=5"))
        time.sleep(LOOKS)
        self.train("")
        self.wait("gelu: theory", lambda: self.get("/api/theory?activation=gelu"))
        self.wait("gelu: finite width, first part", lambda: self.get("/api/finite/0?activation=gelu"))
        self.wait("gelu, another width: all of it", lambda: self.all_of("activation=gelu&width=100"))
        self.train("activation=gelu")
        self.wait("residual networks", lambda: self.get("/api/residual?tab=residual"))
        self.wait(
            "residual networks, another gamma", lambda: self.get("/api/residual?tab=residual&gamma=0.6")
        )
        self.wait("Bayes", lambda: self.get("/api/bayes?tab=bayes"))
        self.wait("Bayes, another noise", lambda: self.get("/api/bayes?tab=bayes&noise=0.2"))
        self.get("/api/theory?tab=extrapolation")
        time.sleep(LOOKS)
        self.train("tab=extrapolation")

    def all_of(self, query: str) -> None:
        for path in ("/api/theory", *(f"/api/finite/{part}" for part in range(len(PARTS)))):
            self.get(f"{path}?{query}")

    def get(self, path: str) -> dict:
        answer = self.http.get(path).raise_for_status().json()
        assert not answer.get("errors"), answer["errors"]
        return answer

    def train(self, query: str) -> None:
        """The wait for the first and for the last networks, and how often the page saw progress."""
        name = query.partition("=")[2] or "default"
        start, spent, seen = time.monotonic(), self.spent(), []
        job = self.http.post("/api/jobs", content=query, headers=FROM_PAGE).json()["id"]
        while True:
            status = self.http.get(f"/api/jobs/{job}").json()
            members = (status["result"] or {}).get("members", 0)
            if members and members not in seen:
                seen.append(members)
                if len(seen) == 1:
                    first = f"{name}: first {members} trained networks"
                    self.took.append((first, time.monotonic() - start, self.spent() - spent))
            if status["state"] not in ("waiting", "running"):
                break
            time.sleep(0.1)
        assert status["state"] == "finished", status["message"]
        last = f"{name}: all {seen[-1]} trained networks, in {len(seen)} stages"
        self.took.append((last, time.monotonic() - start, self.spent() - spent))

    def wait(self, what: str, ask) -> None:
        start, spent = time.monotonic(), self.spent()
        ask()
        self.took.append((what, time.monotonic() - start, self.spent() - spent))

    def spent(self) -> float:
        """Processor seconds of the server and its children so far."""
        times = [one.cpu_times() for one in (self.process, *self.process.children(recursive=True))]
        return sum(one.user + one.system for one in times)


def visit(programs: str) -> list[tuple[str, float, float]]:
    environment = {**os.environ, "FINITEWIDTH_PROGRAMS": programs}
    command = [sys.executable, "-m", "finitewidth", "page", "--no-browser", "--json"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert run.stdout is not None
        address = json.loads(run.stdout.readline())["address"]
        one = Visit(address, psutil.Process(run.pid))
        one.wait("server answers", lambda: reached(one.http))
        one.run()
        return one.took
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(30)


def reached(http: httpx.Client) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            http.get("/api/setup").raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError("the server does not answer")


def table(first: list, second: list) -> str:
    lines = [
        "| wait for | first start: clock, s | processor, s | second start: clock, s | processor, s |",
        "|---|---|---|---|---|",
    ]
    for (what, clock, spent), (_, again, spent_again) in zip(first, second, strict=True):
        lines.append(f"| {what} | {clock:.2f} | {spent:.2f} | {again:.2f} | {spent_again:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as programs:
        text = table(visit(programs), visit(programs))
    head = f"Written by `benchmarks/page/waits.py` on {stamp()}."
    text = f"{head}\n\nLoad average before the run: {load:.1f}.\n\n{text}\n"
    print(text)
    if write:
        with RESULTS.open("a", encoding="utf-8") as results:  # after the tables of earlier commits
            results.write(f"\n{text}")


if __name__ == "__main__":
    main()
