"""The house in numbers: lines and files of rooms, public names, parameters, imports, a prediction's path.

    python -m benchmarks.house.measure                  # this checkout
    python -m benchmarks.house.measure /path/to/another # and beside it an earlier one, as "before"

It takes a minute, nearly all of it for `fw.predict` under a profiler. Other measures read the source alone.
"""

import ast
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
ROOMS = (
    "core",
    "network",
    "gaussian",
    "theory",
    "critical",
    "training",
    "experiment",
    "comparison",
    "interface",
)
ENTRANCE = "training.prediction"  # the module of fw.predict
# Where K' = C_b + C_W <ss> is, or was, repeated from layer to layer; who asks `over_depth` has no loop.
LOOPS = (
    "theory.layers.interface",  # `Chain`, any kind of layer on blocks of pairs
    "theory.pairs.closed_chain",  # compiled, for closed forms
    "theory.steps",  # `over_depth`
    "theory.single",  # one input and thousands of layers, compiled
    "theory.one_input",  # its newer name
    "theory.single_stream",
    "theory.one_input_with_skips",
    "critical.one_input",
    "training.textbook.delta_expansion",
    "training.textbook.finite_angle",
)
# Another network first, so that everything is imported and only functions that a prediction calls are seen.
PREDICTION = """
import sys, threading, warnings
warnings.simplefilter("ignore")
import finitewidth as fw
def predict(net, X, time):
    return fw.predict(net, X, [[0.7], [-0.4]], [[0.2, 0.1]], algorithm=fw.GradientFlow(time), order=1)
predict(fw.MLP((2, 8, 1), "gelu"), [[1.0, 0.4], [-0.3, 0.9]], 2.0)
files = set()
def note(frame, event, argument):
    if not frame.f_code.co_name.startswith("<"):
        files.add(frame.f_code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
predict(fw.MLP((2, 16, 16, 1), "tanh", C_b=0.1, C_W=1.3), [[1.0, 0.4], [-0.3, 0.9]], 3.0)
sys.setprofile(None)
print(*sorted(files), sep="\\n")
"""


class House:
    """A checkout of the package."""

    def __init__(self, place: Path):
        self.place = place
        self.root = place / "finitewidth"

    def files(self, room: str = "") -> list[Path]:
        """The modules of a room, or all of them; without a name also the modules beside the rooms."""
        return sorted((self.root / room).rglob("*.py"))

    def lines(self, room: str = "") -> int:
        return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in self.files(room))

    @cache  # noqa: B019, a house lives as long as the script
    def modules(self) -> dict[str, Path]:
        paths = {file: file.relative_to(self.root).with_suffix("").parts for file in self.files()}
        return {".".join(p[:-1] if p[-1] == "__init__" else p): file for file, p in paths.items()}

    # --- the public face ------------------------------------------------------------------------------

    def stubs(self, stub: Path) -> dict[str, str]:
        """The names that a stub gives to users, and the module that each comes from."""
        within = list(stub.parent.relative_to(self.root).parts)
        names = {}
        for node in ast.parse(stub.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                above = within[: len(within) - node.level + 1] if node.level else []
                source = ".".join([*above, *((node.module or "").split("."))]).removeprefix("finitewidth.")
                names |= {alias.asname or alias.name: f"{source}:{alias.name}" for alias in node.names}
        return {name: source for name, source in names.items() if not name.startswith("_")}

    def names_at_the_top(self) -> int:
        return len(self.stubs(self.root / "__init__.pyi"))

    def public_functions(self) -> dict[str, ast.FunctionDef]:
        stubs = [*self.root.rglob("__init__.pyi"), *(f for f in self.root.glob("*.py") if f.stem[0] != "_")]
        functions = {}
        for source in {source for stub in stubs for source in self.stubs(stub).values()}:
            module, _, name = source.partition(":")
            file = self.modules().get(module)
            body = ast.parse(file.read_text(encoding="utf-8")).body if file else []
            same = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == name]
            functions |= dict.fromkeys([source] * len(same), *same)
        return functions

    def most_parameters(self) -> tuple[int, str]:
        return max((parameters(node), node.name) for node in self.public_functions().values())

    # --- imports --------------------------------------------------------------------------------------

    @cache  # noqa: B019
    def imports(self, module: str) -> set[str]:
        """The modules that are imported with one: not those inside functions or for type checkers alone."""
        body = ast.parse(self.modules()[module].read_text(encoding="utf-8")).body
        nodes = [node for node in body if isinstance(node, ast.ImportFrom) and node.module]
        names = {f"{n.module}.{alias.name}" for n in nodes for alias in n.names} | {
            str(n.module) for n in nodes
        }
        parts = [name.removeprefix("finitewidth.").split(".") for name in names]
        around = {".".join(name[:length]) for name in parts for length in range(1, len(name) + 1)}
        return around & set(self.modules())  # a module's rooms are imported before it

    def closure(self, module: str) -> set[str]:
        """All modules that are needed by one."""
        seen, open_ = {module}, [module]
        while open_:
            new = self.imports(open_.pop()) - seen
            seen |= new
            open_ += new
        return seen

    def largest_closure(self) -> tuple[int, str]:
        """Of modules below the interface, which is made to see everything."""
        library = [m for m in self.modules() if m.split(".")[0] in ROOMS[:-1]]
        return max((len(self.closure(module)), module) for module in library)

    def loops_over_depth(self) -> list[str]:
        there = [module for module in LOOPS if module in self.modules()]
        ask = "import TwoLegs, over_depth"
        return [module for module in there if ask not in self.modules()[module].read_text(encoding="utf-8")]

    # --- a prediction ---------------------------------------------------------------------------------

    def path_of_a_prediction(self) -> list[str]:
        """The modules in which a function runs when `fw.predict` is called at order 1."""
        where = {**os.environ, "PYTHONPATH": str(self.place), "FINITEWIDTH_PROGRAMS": "off"}
        run = [sys.executable, "-c", PREDICTION]
        done = subprocess.run(run, env=where, cwd="/", capture_output=True, text=True, check=True)
        files = {Path(line) for line in done.stdout.splitlines()}
        return [module for module, file in self.modules().items() if file in files]


def parameters(node: ast.FunctionDef) -> int:
    return len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs)


def measured(house: House) -> dict[str, str]:
    path = house.path_of_a_prediction()
    heads = [module for module in path if module.split(".")[0] in ("theory", "training")]
    (most, function), (largest, module) = house.most_parameters(), house.largest_closure()
    rooms = {
        f"`{room}/`, lines in files": f"{house.lines(room)} in {len(house.files(room))}" for room in ROOMS
    }
    beside = [file for file in house.files() if file.parent == house.root]
    return {
        **rooms,
        "beside the rooms": f"{sum(len(f.read_text().splitlines()) for f in beside)} in {len(beside)}",
        "all lines, and files": f"{house.lines()} in {len(house.files())}",
        "names at the top": str(house.names_at_the_top()),
        "most parameters of a public function": f"{most} (`{function}`)",
        "loops over depth": str(len(house.loops_over_depth())),
        "modules on the path of `fw.predict` at order 1": str(len(path)),
        "of them in `theory/` and `training/`": str(len(heads)),
        "import closure of `fw.predict`": str(len(house.closure(ENTRANCE))),
        "largest import closure below `interface/`": f"{largest} (`{module}`)",
    }


def main(places: list[Path]) -> None:
    columns = [measured(House(place)) for place in places]
    print("| | " + " | ".join(["before", "after"][-len(columns) :]) + " |")
    print("|---" + "|---:" * len(columns) + "|")
    for row in columns[-1]:
        print(f"| {row} | " + " | ".join(column[row] for column in columns) + " |")


if __name__ == "__main__":
    main([*(Path(place).resolve() for place in sys.argv[1:]), HERE])
