"""Benchmarks find each other, their results and their place in the README, and pages state their numbers."""

import ast
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
TOPICS = sorted(path.name for path in BENCHMARKS.iterdir() if path.is_dir() and (path / "results").is_dir())
SCRIPTS = sorted(BENCHMARKS.glob("**/*.py"))
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *BENCHMARKS.glob("**/*.md")]
CODE = [path for room in ("finitewidth", "tests", "examples") for path in (ROOT / room).glob("**/*.py")]


def defined(script: Path) -> set[str]:
    """The names that other scripts can import from one."""
    names: set[str] = set()
    for node in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(BENCHMARKS)))
def test_imports_between_benchmarks_exist(script):
    nodes = [node for node in ast.walk(ast.parse(script.read_text(encoding="utf-8")))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    for node in imports:
        if str(node.module).split(".")[0] != "benchmarks":
            continue
        place = ROOT.joinpath(*str(node.module).split("."))
        for name in (alias.name for alias in node.names):
            there = (
                (place / f"{name}.py").exists()
                if place.is_dir()
                else name in defined(place.with_suffix(".py"))
            )
            assert there, f"{script} imports {name} from {node.module}"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(BENCHMARKS)))
def test_modules_that_run_as_commands_exist(script):
    named = re.findall(r"benchmarks((?:\.[a-z_]+){2})\b(?!\()", script.read_text(encoding="utf-8"))
    missing = {
        name for name in named if not BENCHMARKS.joinpath(*name.split(".")[1:]).with_suffix(".py").exists()
    }
    assert not missing


def test_every_path_into_the_benchmarks_exists():
    for page in [*PAGES, *CODE, *SCRIPTS]:
        for path in re.findall(r"benchmarks/[\w/]+\.(?:py|md|json|npz)\b", page.read_text(encoding="utf-8")):
            assert (ROOT / path).exists(), f"{page.relative_to(ROOT)} names {path}"


def test_the_readme_has_every_topic():
    text = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(\w+)\]", text, flags=re.M)) == TOPICS
    assert all(list((BENCHMARKS / topic / "results").iterdir()) for topic in TOPICS)


# --- the numbers of docs/advice.md are those of the kept runs of benchmarks/advice/tuned.py -------------

KEPT = json.loads((BENCHMARKS / "advice" / "results" / "tuned.json").read_text(encoding="utf-8"))
UNTUNED = json.loads((BENCHMARKS / "advice" / "results" / "untuned.json").read_text(encoding="utf-8"))
ADVICE = (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")
RATES = (BENCHMARKS / "advice" / "results" / "best_rates.md").read_text(encoding="utf-8")
SHARES = ("lambda_b = 1", "bias share 1", "bias share 1/10", "bias share 1/100", "bias share 0", "critical")


def best(entry):
    """The smallest mean loss over seeds at which none diverged, and the base-two logarithm of its rate."""
    losses = [math.inf if None in row else float(np.exp(np.mean(np.log(row)))) for row in entry["loss"]]
    return min(losses), entry["powers"][int(np.argmin(losses))]


def test_every_entry_has_its_best_rate_inside_the_grid():
    for key, entries in KEPT.items():
        for method, entry in entries.items():
            loss, power = best(entry)
            assert math.isfinite(loss) and entry["powers"][0] < power < entry["powers"][-1], (key, method)


def test_losses_with_shares_of_biases_are_those_of_the_runs():
    rows = re.findall(r"^\| (\w+) (\d+x\d+), ([\w-]+) \| (.*) \|$", ADVICE, re.M)
    assert len(rows) == 8
    for activation, size, loss, cells in rows:
        entries = KEPT[f"{activation} {size} digits {loss} sgd"]
        stated = [float(cell) for cell in cells.split("|")]
        np.testing.assert_allclose(stated, [best(entries[name])[0] for name in SHARES], rtol=6e-3)
        assert stated[2] < stated[0], "a tenth is better than lambda_b = 1"


def test_best_rates_over_sizes_are_those_of_the_runs():
    depths = re.search(r"^\| best rate \| (\d+) layers \| (.*) \|$", RATES, re.M)
    assert depths
    rows = re.findall(r"^\| (\w+), width (\d+) \|(.*)\|$", RATES, re.M)
    assert len(rows) == 12
    for activation, width, cells in rows:
        for depth, cell in zip([depths[1], *depths[2].split("|")], cells.split("|"), strict=True):
            if cell.strip():
                entry = KEPT[f"{activation} {int(depth)}x{width} digits cross-entropy sgd"]["bias share 1/10"]
                assert float(cell) == 2.0 ** best(entry)[1]


def test_losses_of_deep_networks_are_those_of_the_runs():
    columns = re.search(r"^\| network \| (tanh, 50.*) \|$", ADVICE, re.M)
    assert columns
    problems = [column.strip().split(", ") for column in columns[1].split("|")]
    rows = re.findall(r"^\| (plain|skips), ([\w' ]+) \|(.*)\|$", ADVICE, re.M)
    assert len(rows) == 6
    for kind, name, cells in rows:
        method = {"critical": "critical", "PyTorch's initialization": "PyTorch"}.get(name, name)
        if kind == "skips":
            method = {"critical": "critical skips", "PyTorch": "skips"}[method]
        for (activation, depth, optimizer), cell in zip(problems, cells.split("|"), strict=True):
            entry = KEPT[f"{activation} {depth}x64 digits cross-entropy {optimizer.lower()}"][method]
            np.testing.assert_allclose(float(cell), min(best(entry)[0], math.log(10)), rtol=6e-3)


def test_recommended_rates_did_not_diverge():
    """The page says so of all problems of the table."""
    for key, ways in UNTUNED.items():
        for way, entry in ways.items():
            if "recommend" in way:
                assert None not in entry["loss"], (key, way)
