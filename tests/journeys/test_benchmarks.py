"""Benchmarks find each other, their results and their place in the README; they are run by hand."""

import ast
import re
from pathlib import Path

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
