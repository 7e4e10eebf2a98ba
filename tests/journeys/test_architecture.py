"""The rooms of the house: who may import whom, inside rooms too."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

import finitewidth

ROOT = Path(finitewidth.__file__).parent
MOST_MODULES = 16  # in one folder

# everything that the interface is made for; the package itself holds the version
LIBRARY = {"core", "network", "theory", "critical", "training", "experiment", "comparison", ""}

# The public rooms: modules that name what users reach as fw.bayes and so on, and hold nothing of their own
FACES = ("algorithms", "bayes", "empirical", "losses", "records", "textbook", "warnings")

# Rooms and the rooms inside them. Each may import itself, the rooms beside it and the rooms inside those.
MAY_IMPORT: dict[str, set[str]] = {
    "": {"core", "interface"},  # the package itself: lazy names and `python -m finitewidth`
    "faces": LIBRARY,
    "core.display": set(),
    "core": {"", "core.display"},  # the package holds the version
    "network.layers": {"core"},
    "network.losses": {"core"},
    "network.algorithms": {"core", "network.losses"},
    "network": {"core", "network.layers"},
    "network.foreign": {"core", "network", "network.layers"},  # models of other libraries, as networks
    "gaussian": {"core", "network"},
    "gaussian.two_legs": {"core", "network", "gaussian"},
    "gaussian.four_legs": {"core", "network", "gaussian", "gaussian.two_legs"},
    "theory.layers": {"core", "network", "gaussian"},
    "theory.pairs": {"core", "network", "gaussian", "theory.layers"},
    "theory": {"core", "network", "gaussian", "theory.layers", "theory.pairs"},
    "theory.vertex": {"core", "network", "gaussian", "theory", "theory.layers", "theory.pairs"},
    "theory.unrolled": {
        "core",
        "network",
        "gaussian",
        "theory",
        "theory.layers",
        "theory.pairs",
        "theory.vertex",
    },
    "critical.activations": {"core", "network", "gaussian"},
    "critical.architectures": {"core", "network", "gaussian", "theory", "critical.activations"},
    "critical": {
        "core",
        "network",
        "gaussian",
        "theory",
        "critical.activations",
        "critical.architectures",
    },
    "training": {
        "core",
        "network",
        "theory",
        "training.infinite",
        "training.first_order",
        "training.replay",
        "training.textbook",
        "critical",
        "training.kinks",
    },
    "training.kinks": {"core", "network", "gaussian", "theory", "training.infinite"},
    "training.infinite": {"core", "network", "gaussian", "theory"},
    "training.replay": {
        "core",
        "network",
        "theory",
        "training.infinite",
        "training.neglected",
        "training.first_order",
        "training.many_points",
    },
    "training.many_points": {"core", "network", "gaussian", "theory"},
    "training.neglected": {"core", "network", "theory", "training.infinite"},
    "training.first_order": {
        "core",
        "network",
        "theory",
        "critical",
        "training.infinite",
        "training.neglected",
        "training.many_points",
        "training.textbook",
    },
    "training.bayes": {
        "core",
        "network",
        "gaussian",
        "theory",
        "training.infinite",
        "training.neglected",
        "training.first_order",
    },
    "training.textbook": {"core", "network", "gaussian", "theory", "critical", "training.infinite"},
    "experiment": {"core", "network", "experiment.layers"},
    "experiment.layers": {"core", "network"},
    "experiment.ensemble": {"core", "network", "experiment", "experiment.layers", ""},
    "comparison": {"core", "network", "gaussian", "theory", "critical", "training", "experiment"},
    "interface": {"interface.adapters", "interface.cli", "interface.figures"},
    "interface.figures": LIBRARY,
    "interface.runs": LIBRARY,
    "interface.report": LIBRARY | {"interface.figures", "interface.runs"},
    "interface.adapters": LIBRARY | {"interface.report"},
    "interface.page": LIBRARY | {"interface.figures"},
    "interface.cli": LIBRARY | {"interface.runs", "interface.report", "interface.page"},
}

# The doors against the flow: MLP.critical and Network.critical ask for a critical point when they are called.
# They return hyperparameters only: what a network is does not depend on theory, nor do experiments.
# The method `plot` of records asks for their figure, and gets nothing that a result depends on.
DOORS = {
    ("network.mlp", "critical.tuning"),
    ("network.network", "critical.tuning"),
    ("core.display.records", "interface.figures.of_records"),
}


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in files()}


@functools.cache
def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def room_of(module: str) -> str:
    """The innermost room with rules of its own that a module stands in."""
    parts = module.split(".")
    rooms = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    inside = len(parts) > 1 or MODULES[module].name == "__init__.py"
    if module in FACES:
        return "faces"
    return next((room for room in rooms if room in MAY_IMPORT), "") if inside else ""


def type_checking_only(tree: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING:` is never imported."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {node for block in blocks for statement in block.body for node in ast.walk(statement)}


@functools.cache
def imported_modules(module: str) -> set[str]:
    """The package's modules that a module imports anywhere, inside functions too."""
    tree = parsed(module)
    skipped = type_checking_only(tree)
    names: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} imports relatively; name the room"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inside if name.removeprefix("finitewidth.") in MODULES}
            names |= modules | ({str(node.module)} if len(modules) < len(inside) else set())
    package = {name for name in names if name.split(".")[0] == "finitewidth"}
    return {name.removeprefix("finitewidth").removeprefix(".") for name in package}


def allowed(room: str, other: str) -> bool:
    """Whether a room may import another: one that it names, or one inside a room that it names."""
    if other == room:
        return True
    parts = other.split(".")
    around = {".".join(parts[:length]) for length in range(1, len(parts) + 1)} if other else {""}
    # a room that names one room inside its own does not thereby name the others
    siblings = {name for name in MAY_IMPORT[room] if name.split(".")[0] == room.split(".")[0]}
    return bool(around & MAY_IMPORT[room]) and (
        parts[0] != room.split(".")[0] or other in siblings or other == parts[0]
    )


def test_data_flows_one_way_between_rooms():
    imports = {(module, other) for module in MODULES for other in imported_modules(module)}
    assert len(imports) > len(MODULES)
    assert [(a, b) for a, b in sorted(imports - DOORS) if not allowed(room_of(a), room_of(b))] == []


def test_no_circle_is_hidden_by_a_late_import():
    """Imports inside functions count too: they save time at start-up, and excuse nothing."""
    graph = {
        module: {other for other in imported_modules(module) if (module, other) not in DOORS and other}
        for module in MODULES
        if module
    }
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError with the circle


@pytest.mark.parametrize("module, other", sorted(DOORS))
def test_the_doors_against_the_flow_are_closed_while_importing(module, other):
    tree = parsed(module)
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    doors = [
        n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == f"finitewidth.{other}"
    ]
    assert doors and all(door in inside for door in doors)


def test_no_room_is_crowded():
    folders = [folder for folder in ROOT.rglob("*") if folder.is_dir()]
    counts = {name_of(f / "x.py"): len([p for p in f.glob("*.py") if p.stem != "__init__"]) for f in folders}
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_every_room_has_its_place_in_the_flow():
    rooms = {
        module.split(".")[0] for module, file in MODULES.items() if file.name == "__init__.py" and module
    }
    assert rooms <= set(MAY_IMPORT), f"{rooms - set(MAY_IMPORT)} need a place in the flow"


def test_tests_are_named_by_the_module_that_they_test():
    """tests/<room>/test_<module>.py, with a word on the aspect where a module needs several files."""
    for file in (ROOT.parent / "tests").rglob("test_*.py"):
        room, subject = file.parent.name, file.stem.removeprefix("test_")
        if room != "journeys":  # which cross several rooms
            names = {path.stem for path in (ROOT / room).rglob("*") if path.suffix in ("", ".py")}
            assert any(f"{subject}_".startswith(f"{name}_") for name in names), file


def test_nothing_is_imported_that_one_operating_system_lacks():
    nodes = [(module, node) for module in MODULES for node in ast.walk(parsed(module))]
    names = {(m, alias.name) for m, node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {(m, str(node.module)) for m, node in nodes if isinstance(node, ast.ImportFrom)}
    lacking = {"fcntl", "grp", "msvcrt", "posix", "pwd", "resource", "termios", "winreg"}
    assert [(module, name) for module, name in sorted(names) if name in lacking] == []


def test_experiments_know_nothing_of_the_theory():
    """Agreement between the two is evidence only if neither uses the other."""
    theories = {"gaussian", "theory", "critical", "training", "comparison"}
    for room, others in MAY_IMPORT.items():
        top = room.split(".")[0]
        heads = {other.split(".")[0] for other in others}
        if top == "experiment":
            assert heads.isdisjoint(theories)
        if top in theories - {"comparison"}:
            assert "experiment" not in heads


def test_experiments_ask_an_algorithm_only_how_networks_move():
    """Algorithms carry their theory with them, and real networks must be trained without it."""
    theory = {"response", "response_matrix", "symbols", "refusal", "replay", "check_stable", "minimizer"}
    experiments = [module for module in MODULES if module.split(".")[0] == "experiment"]
    nodes = [(module, node) for module in experiments for node in ast.walk(parsed(module))]
    asked = {(module, node.attr) for module, node in nodes if isinstance(node, ast.Attribute)}
    assert [(module, attribute) for module, attribute in sorted(asked) if attribute in theory] == []


def test_algorithms_and_losses_are_not_told_apart_by_type():
    """A new one is one file: whoever needs to know something asks its methods."""
    outside = sorted(module for module in MODULES if not module.startswith("network."))
    assert {module: kinds for module in outside if (kinds := kinds_told_apart(module))} == {}


def kinds_told_apart(module: str) -> set[str]:
    """The algorithms and losses that a module asks for by `isinstance` or `match`."""
    tree = parsed(module)
    kinds = {"GradientFlow", "GradientDescent", "StochasticGradientDescent", "Newton", "TwoStep"}
    kinds |= {"Schedule", "Projectors", "MSE", "CrossEntropy", "AbstractAlgorithm", "AbstractLoss"}
    asked = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "isinstance"]
    named = {name.id for call in asked for name in ast.walk(call.args[1]) if isinstance(name, ast.Name)}
    matched = {ast.unparse(n.cls) for n in ast.walk(tree) if isinstance(n, ast.MatchClass)}
    return (named | matched) & kinds
