"""Small faults in the code, one at a time, and whether the tests of the module notice.

    python -m benchmarks.robustness.mutations              100 faults; hours on two cores
    python -m benchmarks.robustness.mutations --count 10   the first ten of them

A fault is a sign, a factor of two, an index, a comparison or an error that is not raised. Faults are drawn
with a fixed seed from the code as it is, as many from every room as from the others. Each is run against the
test files of its module alone, with a time limit. The code is a copy; results/mutations.md lists what was not
noticed, and results/mutations.json keeps all outcomes, so that the same command goes on.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.house.measure import ROOMS
from benchmarks.provenance import stamp

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
COUNT, SEED = 100, 20261119
LIMIT = 400  # seconds for the tests of one fault
FLIPPED = {ast.Add: ast.Sub, ast.Sub: ast.Add}
COMPARED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq}


@dataclass(frozen=True)
class Fault:
    """The text of one node, and what stands in its place."""

    file: str
    line: int
    kind: str
    start: int  # bytes of the file
    end: int
    old: str
    new: str

    @property
    def name(self) -> str:
        return f"{self.file}:{self.line} {self.old} -> {self.new}"


def faults_of(file: Path) -> list[Fault]:
    """All faults of a module; texts, annotations and messages have none."""
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _nodes(ast.parse(source)):
        for kind, changed in _changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            old, new = source[start:end].decode(), ast.unparse(changed)
            name = str(file.relative_to(ROOT))
            found.append(Fault(name, node.lineno, kind, start, end, " ".join(old.split()), f"({new})"))
            if kind == "an ignored error":
                found[-1] = Fault(name, node.lineno, kind, start, end, " ".join(old.split())[:60], new)
    return found


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those of annotations, f-strings, decorators and messages."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "exc") or isinstance(node, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    other = copy.deepcopy(node)
    match node, other:
        case ast.BinOp(op=ast.Add() | ast.Sub()), ast.BinOp() if not _has_text(node):
            other.op = FLIPPED[type(node.op)]()
            yield "a sign", other
        case ast.UnaryOp(op=ast.USub()), ast.UnaryOp() if not isinstance(node.operand, ast.Constant):
            yield "a sign", other.operand
        case ast.BinOp(op=ast.Mult() | ast.Div()), ast.BinOp() if not _has_text(node):
            yield "a factor two", ast.BinOp(other, ast.Mult(), ast.Constant(2))
        case ast.Subscript(slice=ast.Constant(value=int(index))), ast.Subscript() if type(index) is int:
            other.slice = ast.Constant(0 if index else 1)
            yield "an index", other
        case ast.Compare(ops=[op]), ast.Compare() if type(op) in COMPARED:
            other.ops = [COMPARED[type(op)]()]
            yield "a comparison", other
        case ast.Raise(exc=ast.expr()), _:
            yield "an ignored error", ast.Pass()


def _has_text(node: ast.AST) -> bool:
    return any(isinstance(one, ast.JoinedStr) or _is_text(one) for one in ast.walk(node))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def tests_of(file: str) -> list[str]:
    """The test files of a module: those of its name or folder in its room, or those that import it."""
    _, room, *folders, name = Path(file).with_suffix("").parts
    place = ROOT / "tests" / room
    for word in (name, *reversed(folders)):
        if found := sorted(place.glob(f"test_{word}*.py")):
            return [str(one.relative_to(ROOT)) for one in found[:3]]
    dotted = ".".join(Path(file).with_suffix("").parts)
    found = [one for one in sorted(place.glob("test_*.py")) if dotted in one.read_text(encoding="utf-8")]
    return [str(one.relative_to(ROOT)) for one in found[:2]]


def drawn() -> list[Fault]:
    """The faults of the trial, in order, the rooms in turn."""
    rng, rooms = random.Random(SEED), []
    for room in ROOMS:
        files = sorted((ROOT / "finitewidth" / room).rglob("*.py"))
        tested = [file for file in files if tests_of(str(file.relative_to(ROOT)))]
        known = [faults for file in tested if (faults := faults_of(file))]
        rng.shuffle(known)
        rooms.append([rng.choice(faults) for faults in known])
    turns = [
        rooms[i % len(rooms)][i // len(rooms)]
        for i in range(4 * COUNT)
        if i // len(rooms) < len(rooms[i % len(rooms)])
    ]
    return turns[:COUNT]


def tried(copied: Path, fault: Fault) -> tuple[str, float]:
    """Whether the tests of the module notice the fault: noticed, survived, or out of time."""
    path = copied / fault.file
    kept = path.read_bytes()
    path.write_bytes(kept[: fault.start] + fault.new.encode() + kept[fault.end :])
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    start = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *tests_of(fault.file)],
            cwd=copied, capture_output=True, timeout=LIMIT, env={**os.environ, "PYTHONPATH": str(copied)},
        )  # fmt: skip
        end = {0: "survived", 5: "survived"}.get(done.returncode, "noticed")
    except subprocess.TimeoutExpired:
        end = "out of time"
    finally:
        path.write_bytes(kept)
    return end, time.monotonic() - start


def report(outcomes: dict[str, dict]) -> str:
    ends = Counter(one["end"] for one in outcomes.values())
    since = sum("since" in one for one in outcomes.values())
    kinds = Counter((one["kind"], one["end"]) for one in outcomes.values())
    lines = [
        "# Faults that tests notice",
        "",
        f"{stamp()}. `python -m benchmarks.robustness.mutations`: the first {len(outcomes)} of {COUNT} "
        f"faults, seed {SEED}, each against the test files of its module alone, at most {LIMIT} s on a busy "
        "machine.",
        "",
        f"{ends['noticed']} noticed, {ends['survived']} survived, {ends['out of time']} out of time. Of the "
        f"first, {since} survived the trial, and tests were added for them.",
        "",
        "| kind | noticed | survived | out of time |",
        "|---|---:|---:|---:|",
    ]
    for kind in sorted({kind for kind, _ in kinds}):
        lines.append(f"| {kind} | " + " | ".join(str(kinds[kind, end]) for end in ENDS) + " |")
    lines += ["", "| not noticed | tests | how it ended |", "|---|---|---|"]
    for name, one in outcomes.items():
        if one["end"] != "noticed":
            lines.append(
                f"| `{name.replace('|', chr(92) + '|')}` | {', '.join(one['tests'])} | {one['end']} |"
            )
    return "\n".join([*lines, ""])


ENDS = ("noticed", "survived", "out of time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT, help="how many of the faults")
    count = parser.parse_args().count
    kept = RESULTS / "mutations.json"
    outcomes = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "code"
        shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv*", "results", "site"))
        for fault in drawn()[:count]:
            if fault.name in outcomes:
                continue
            end, seconds = tried(copied, fault)
            outcomes[fault.name] = {"kind": fault.kind, "end": end, "tests": tests_of(fault.file)}
            print(f"{end}, {seconds:.0f} s: {fault.kind}, {fault.name}", flush=True)
            kept.write_text(json.dumps(outcomes, indent=1) + "\n")
            (RESULTS / "mutations.md").write_text(report(outcomes))


if __name__ == "__main__":
    main()
