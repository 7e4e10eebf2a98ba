"""Build sdist and wheel into `dist/`, then use each with the core dependencies alone: `make package`."""

import os
import shutil
import subprocess
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"
EXTRAS = ("blackjax", "dask", "optax", "pytest", "starlette", "torch")  # what a user has not asked for
TRIAL = f"""
import importlib.util
import finitewidth as fw
assert [name for name in {EXTRAS} if importlib.util.find_spec(name)] == []
net = fw.MLP((2, 32, 32, 1), "tanh", C_b=0.1, C_W=1.2)
X, Y = [[1.2, -0.4], [-0.5, 1.1]], [[1.5], [-1.0]]
prediction = fw.predict(net, X, Y, [[0.2, 0.7]], algorithm=fw.GradientDescent(0.1, 12))
print(fw.__version__, fw.__file__, prediction.mean)
"""
RUN = """
[network]
widths = [2, 32, 32, 1]
activation = "tanh"

[data]
train_inputs = [[1.2, -0.4], [-0.5, 1.1]]
train_targets = [1.5, -1.0]
test_inputs = [[0.2, 0.7]]

[training]
algorithm = "gradient_flow"
time = 2.0
"""


def run(*command: str | Path, cwd: Path) -> None:
    # only what the environment itself holds counts, not what the caller has on its path
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(part) for part in command], cwd=cwd, env=clean, check=True)


def environment(place: Path) -> Path:
    """The folder of commands of a fresh environment."""
    venv.create(place, with_pip=True)
    return place / ("Scripts" if os.name == "nt" else "bin")


def build(scratch: Path) -> list[Path]:
    shutil.rmtree(DIST, ignore_errors=True)
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    python = environment(scratch / "build") / "python"
    run(python, "-m", "pip", "install", "--quiet", *pyproject["build-system"]["requires"], cwd=scratch)
    run(python, "-m", "hatchling", "build", "-d", DIST, cwd=ROOT)
    return sorted(DIST.iterdir())


def use(built: Path, scratch: Path) -> None:
    """Install one file; then ask for help, predict, and solve a run file."""
    print(f"== {built.name} with the core dependencies alone", flush=True)
    commands = environment(scratch / built.name)
    run(commands / "python", "-m", "pip", "install", "--quiet", built, cwd=scratch)
    (scratch / "run.toml").write_text(RUN, encoding="utf-8")
    run(commands / "finitewidth", "--help", cwd=scratch)
    run(commands / "python", "-I", "-c", TRIAL, cwd=scratch)
    run(commands / "finitewidth", "solve", "run.toml", "--output", "results", cwd=scratch)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for built in build(Path(scratch)):
            use(built, Path(scratch))
