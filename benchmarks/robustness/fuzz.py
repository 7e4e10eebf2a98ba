"""Ten thousand generated cases for everything that reads input from people.

    python -m benchmarks.robustness.fuzz            # or --quick: a hundred of each kind, nothing written

Runs in TOML, data files, command lines and requests to the page are generated (garbage.py and
garbage_requests.py in tests/helpers); each must quickly be accepted, or refused in one sentence. Computations
are replaced by stubs. A case that ends otherwise is shrunk and shown. Writes results/fuzz.md.
"""

import argparse
import os
import platform
import tempfile
import time
from collections import Counter
from pathlib import Path

import hypothesis
from helpers import garbage, garbage_requests
from hypothesis import HealthCheck, given, settings

import finitewidth as fw
from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results" / "fuzz.md"
KINDS = {**garbage.FILES, "command lines": (garbage_requests.COMMAND_LINES, garbage_requests.run_command)}
PAGE = "requests to the page"
CASES = 2600  # of each kind
SLOW = 5.0  # seconds: longer than this counts as a hang


class Trial:
    """How the cases of one kind ended, and how long the slowest took."""

    def __init__(self, name: str):
        self.name, self.ends, self.slowest = name, Counter(), 0.0

    def run(self, strategy, answer, count: int, after=lambda: None) -> None:
        @settings(max_examples=count, deadline=None, database=None, suppress_health_check=[*HealthCheck])
        @given(strategy)
        def cases(case):
            began = time.perf_counter()
            end = answer(case)
            seconds = time.perf_counter() - began
            assert seconds < SLOW, f"it took {seconds:.1f} s"
            self.ends[end] += 1
            self.slowest = max(self.slowest, seconds)
            after()

        cases()


def trials(count: int) -> list[Trial]:
    ended = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        garbage.prepare(folder)
        for name, (strategy, answer) in KINDS.items():
            ended.append(Trial(name))
            ended[-1].run(
                strategy,
                lambda case, answer=answer: answer(folder, case),
                count,
                lambda: garbage.clean(folder),
            )
            print(name, dict(ended[-1].ends), flush=True)
    ended.append(Trial(PAGE))
    with garbage_requests.visitor() as ask:
        ended[-1].run(garbage_requests.REQUESTS, lambda case: garbage_requests.ask_page(ask, case), count)
    print(PAGE, dict(ended[-1].ends), flush=True)
    return ended


def report(ended: list[Trial], seconds: float) -> str:
    total = sum(sum(trial.ends.values()) for trial in ended)
    lines = [
        "# Generated garbage",
        "",
        f"{stamp()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, hypothesis {hypothesis.__version__}, finitewidth {fw.__version__}; "
        f"{total} cases in {seconds:.0f} s. Written by `python -m benchmarks.robustness.fuzz`.",
        "",
        "Refused: one sentence (a ValueError; on the command line one line on stderr and status 2). "
        "Computed: the case was valid and reached the computation, which is replaced by a stub. No case "
        "ended with a traceback or another status, ran code from its input, or took longer than "
        f"{SLOW:g} s.",
        "",
        "| input | cases | refused | accepted | computed | slowest (s) |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {trial.name} | {sum(trial.ends.values())} | {trial.ends['refused']} | {trial.ends['accepted']} "
        f"| {trial.ends['computed']} | {trial.slowest:.2f} |"
        for trial in ended
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Generated cases for everything that reads input.")
    parser.add_argument("--quick", action="store_true", help="a hundred of each kind, nothing written")
    quick = parser.parse_args().quick
    began = time.monotonic()
    ended = trials(100 if quick else CASES)
    text = report(ended, time.monotonic() - began)
    print(text)
    if not quick:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
