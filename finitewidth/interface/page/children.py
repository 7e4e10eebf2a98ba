"""Child processes of the server, which take orders with a time limit and are killed when they exceed it."""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import psutil

LOADING = 40.0  # extra seconds for the first order of a process
MOST_MEMORY = 1.5e9  # bytes; a child that uses more is replaced after its order


class Ended(Exception):
    """The child ended before it answered: by its time limit, by a cancellation or on its own."""

    def __init__(self, *, is_time: bool = False):
        super().__init__("time limit" if is_time else "stopped")
        self.is_time = is_time


class Child:
    """One process that takes one order after another; if it has ended, the next order starts a new one."""

    def __init__(self, quiet: bool = True):
        self._quiet = quiet
        self._process: subprocess.Popen | None = None
        self._loaded: subprocess.Popen | None = None  # the process, once it has answered
        self._lock = threading.Lock()
        self._closed = False
        self._busy = False

    def ask(self, order: dict, seconds: float) -> Iterator[dict]:
        """Yield the lines that answer an order, the last of which has the key `finished`."""
        process = self._running(busy=True)
        if process is not self._loaded:  # loading the library does not count
            seconds += LOADING
        overstayed = threading.Event()

        def end() -> None:
            overstayed.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        try:
            assert process.stdin is not None and process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.flush()
            for text in process.stdout:
                line = json.loads(text)
                yield line
                if line.get("finished"):
                    break
            else:
                raise Ended(is_time=overstayed.is_set())
        finally:
            timer.cancel()
            self._put_down(process)
        self._loaded = process
        self._refresh(process)

    def start(self) -> None:
        """Start loading before the first order."""
        self._running()

    def end(self) -> None:
        """Kill the process; the next order starts a new one."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                if not self._busy:  # otherwise the reader closes them
                    _close_pipes(self._process)
                self._process = None

    def close(self) -> None:
        """Stop for good."""
        self._closed = True
        self.end()

    def _running(self, *, busy: bool = False) -> subprocess.Popen:
        with self._lock:
            if self._closed:
                raise Ended
            self._busy = busy
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "finitewidth.interface.page.child"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL if self._quiet else None,
                    encoding="utf-8",
                    start_new_session=True,  # an interrupt at the terminal goes to the server alone
                )
            return self._process

    def _put_down(self, process: subprocess.Popen) -> None:
        with self._lock:
            self._busy = False
            if process is not self._process or process.poll() is not None:
                process.kill()
                process.wait()
                _close_pipes(process)

    def _refresh(self, process: subprocess.Popen) -> None:
        with contextlib.suppress(psutil.Error):
            if psutil.Process(process.pid).memory_info().rss > MOST_MEMORY:
                self.end()


def _close_pipes(process: subprocess.Popen) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):  # the order was never read
                pipe.close()


def first_result(child: Child, order: dict, seconds: float) -> dict:
    """The answer to an order that has a single one, with the key `errors` if it was refused."""
    answer: dict = {}
    for line in child.ask(order, seconds):
        answer |= line.get("result", {})
        if "errors" in line:
            answer["errors"] = line["errors"]
    return answer
