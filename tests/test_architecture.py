"""The rooms of the house: who may import whom."""

import ast
from pathlib import Path

import pytest

import finitewidth

ROOT = Path(finitewidth.__file__).parent

# import nothing of the package
FOUNDATION = {"precision", "inputs", "memory", "storage", "estimate", "cores", "progress", "checkpoint"}
SUBJECT = FOUNDATION | {"activation", "network", "algorithm", "loss", "tasks"}  # what is studied

# a room may import itself and the rooms listed here; a room is a folder, or a file at the top
MAY_IMPORT = {
    **{room: set() for room in FOUNDATION},
    "checkpoint": {"storage"},  # seals
    "__init__": {"precision"},
    "__main__": {"interface"},
    "tasks": FOUNDATION | {"__init__"},  # which holds the version
    "smoothness": FOUNDATION,
    "activation": FOUNDATION | {"smoothness"},
    "network": FOUNDATION | {"activation"},
    "algorithm": FOUNDATION,
    "loss": FOUNDATION,
    "theory": SUBJECT,
    "training": SUBJECT | {"theory"},
    "experiment": SUBJECT | {"__init__"},
    "comparison": SUBJECT | {"theory", "training", "experiment"},
    "interface": SUBJECT | {"__init__", "theory", "training", "experiment", "comparison"},
}

# The one door against the flow: MLP.critical asks the theory for a critical point when it is called. It
# returns hyperparameters only: what a network is does not depend on theory, and experiments do not either.
CALLED_LATER = {("network", "theory.tuning")}


def room_of(module: str) -> str:
    """finitewidth.theory.solve -> theory, finitewidth -> __init__."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def type_checking_only(tree: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING:` is never imported."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {node for block in blocks for statement in block.body for node in ast.walk(statement)}


def absolute(node: ast.ImportFrom, file: Path) -> str:
    if not node.level:
        return node.module or ""
    package = file.relative_to(ROOT.parent).parts[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def imported_modules(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = type_checking_only(tree)
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = absolute(node, file)
            # `from finitewidth import theory` names a room, `from finitewidth import __version__` does not
            inside = {f"{module}.{alias.name}" for alias in node.names if module == "finitewidth"}
            found |= {name for name in inside if room_of(name) in MAY_IMPORT} or {module}
    return {module for module in found if module.split(".")[0] == "finitewidth"}


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_data_flows_one_way_between_rooms(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    room = parts[0]
    assert room in MAY_IMPORT, f"{room} is a new room; give it its place in the flow"
    through_the_door = {f"finitewidth.{module}" for origin, module in CALLED_LATER if origin == room}
    imported = {room_of(module) for module in imported_modules(file) - through_the_door} - {room}
    assert imported <= MAY_IMPORT[room], f"{room} must not import {sorted(imported - MAY_IMPORT[room])}"


@pytest.mark.parametrize("room, module", sorted(CALLED_LATER))
def test_the_door_against_the_flow_is_closed_while_importing(room, module):
    tree = ast.parse((ROOT / f"{room}.py").read_text(encoding="utf-8"))
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    doors = [
        n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == f"finitewidth.{module}"
    ]
    assert doors and all(door in inside for door in doors)


def test_the_flow_has_no_circle():
    def reachable(room: str, seen: frozenset[str]) -> set[str]:
        assert room not in seen, f"a circle through {room}"
        return {room}.union(*(reachable(other, seen | {room}) for other in MAY_IMPORT[room]))

    for room in MAY_IMPORT:
        reachable(room, frozenset())


def test_experiments_know_nothing_of_the_theory():
    """Agreement between the two is evidence only if neither uses the other."""
    assert MAY_IMPORT["experiment"].isdisjoint({"theory", "training", "comparison"})
    assert MAY_IMPORT["theory"].isdisjoint({"experiment"})
    assert MAY_IMPORT["training"].isdisjoint({"experiment"})
