"""The package as a whole: what importing it costs, its public names, its documents."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.processes import run_python

import finitewidth as fw

README = (ROOT / "README.md").read_text(encoding="utf-8")
HEAVY = ("jax", "matplotlib", "pandas", "sklearn", "torch", "xarray", "zarr", "scipy", "numpy")


@pytest.mark.parametrize("module", ["finitewidth", "finitewidth.interface.cli.main"])
def test_import_loads_nothing_heavy(module):
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    assert run_python(code).stdout.strip() == "[]"


def test_use_of_the_theory_loads_no_plotting_and_no_estimators():
    code = "import sys, finitewidth as fw; fw.MLP((2, 3, 1), 'tanh'); fw.solve; print([*sys.modules])"
    loaded = run_python(code).stdout
    assert "'jax'" in loaded
    for module in ("matplotlib", "pandas", "sklearn", "torch"):
        assert f"'{module}'" not in loaded


def test_importing_the_package_switches_double_precision_on():
    code = "import finitewidth, jax.numpy as jnp; print(jnp.ones(1).dtype)"
    assert run_python(code).stdout.strip() == "float64"
    code = "import jax, finitewidth, jax.numpy as jnp; print(jnp.ones(1).dtype)"
    assert run_python(code).stdout.strip() == "float64"


def test_the_switch_to_double_precision_is_said_where_arrays_exist():
    made = "import jax, jax.numpy as jnp\na = jnp.ones(2)\n"
    result = run_python(f"{made}import finitewidth\nprint(jnp.ones(1).dtype)")
    assert result.stdout.strip() == "float64"
    assert "<string>:3: UserWarning: importing finitewidth switches JAX to float64" in result.stderr
    assert "UserWarning" not in run_python("import jax\nimport finitewidth").stderr
    assert "UserWarning" not in run_python(f"{made}import finitewidth", JAX_ENABLE_X64="0").stderr


@pytest.mark.long
def test_double_precision_can_be_limited_to_a_block():
    """Also for ensembles, whose batches run in threads of their own."""
    code = """
import jax, jax.numpy as jnp, finitewidth as fw
net, data = fw.MLP((1, 4, 1), "tanh"), ([[1.0]], [[0.5]], [[0.3]])
with jax.enable_x64(True):
    p = fw.predict(net, *data, algorithm=fw.GradientDescent(0.1, steps=3))
    e = fw.train_ensemble(net, *data, algorithm=fw.GradientDescent(0.1, steps=3), members=16, key=0)
print(repr(float(e.mean.value[0, 0])), p.covariance.dtype, jnp.ones(1).dtype)
"""
    scoped, switched = (run_python(code, **more).stdout.split() for more in ({"JAX_ENABLE_X64": "0"}, {}))
    assert scoped[1:] == ["float64", "float32"] and switched[1:] == ["float64", "float64"]
    assert scoped[0] == switched[0]  # to the last bit


def test_single_precision_is_refused_with_the_remedy():
    code = "import finitewidth as fw; fw.solve(fw.MLP((2, 3, 1), 'tanh'), [[1.0, 2.0]], order=0)"
    result = run_python(code, JAX_ENABLE_X64="0")
    assert "ValueError: finitewidth needs double precision" in result.stderr
    assert "remove JAX_ENABLE_X64=0" in result.stderr


def test_public_names_resolve():
    for name in fw.__all__:
        assert getattr(fw, name) is not None
        assert name in dir(fw)
    assert re.fullmatch(r"\d+\.\d+\.\d+", fw.__version__)


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="attribute slove"):
        fw.slove  # noqa: B018


def test_version_is_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" in project["dynamic"]
    assert f"## {fw.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_lock_pins_every_requirement_and_names_no_place():
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", line) for line in lines)
    pinned = {canonical(line.split("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    assert {canonical(re.match(r"[\w.-]+", item)[0]) for item in wanted} <= pinned
    assert "torch" not in pinned  # it has a lock of its own


def test_lock_of_torch_adds_to_the_other_without_contradiction():
    both = [
        (ROOT / name).read_text(encoding="utf-8").split()
        for name in ("requirements.lock", "requirements-torch.lock")
    ]
    names = [{canonical(line.split("==")[0]) for line in lines} for lines in both]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in both[1])
    assert "torch" in names[1] and not names[0] & names[1]


def test_every_import_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    # dask is imported when a client is passed; torch, optax and the page by their own modules
    wanted = [
        *project["dependencies"],
        *(item for name in ("cluster", "torch", "optax", "page") for item in extras[name]),
    ]
    declared = {canonical(re.match(r"[\w.-]+", item)[0]) for item in wanted}
    imported = {name.split(".")[0] for file in (ROOT / "finitewidth").rglob("*.py") for name in imports(file)}
    third_party = imported - sys.stdlib_module_names - {"finitewidth"}
    distributions = {canonical({"sklearn": "scikit-learn"}.get(name, name)) for name in third_party}
    assert distributions <= declared


def imports(file: Path) -> list[str]:
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return [*plain, *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.M | re.S)


def test_readme_commands_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    shell = "\n".join(blocks("sh"))
    made = re.findall(r"^make (\w+)", shell, flags=re.M)
    assert made[:2] == ["demo", "test"]
    assert set(made) <= targets
    commands = set(re.findall(r"^(?:\S*/)?finitewidth (\w+)", shell, flags=re.M))
    assert commands
    for command in commands:
        code = f"from finitewidth.interface.cli.main import main; main([{command!r}, '--help'])"
        assert run_python(code).returncode == 0


def test_readme_run_file_is_understood(tmp_path):
    from finitewidth.interface.runs import run_files

    (example,) = blocks("toml")
    (tmp_path / "run.toml").write_text(example, encoding="utf-8")
    (tmp_path / "inputs.csv").write_text("1,0,2\n0.5,1,1\n", encoding="utf-8")
    assert run_files.read(tmp_path / "run.toml").inputs.shape == (2, 3)


# signals come at another moment in each run, so that all moments are tried in time
SIGNALLING = {"test_interrupts.py", "test_page.py"}


def test_randomness_of_tests_has_a_seed():
    """Each generator gets a number, and nobody uses the global state of NumPy or Python."""
    for file in (ROOT / "tests").rglob("*.py"):
        assert file.name in SIGNALLING or "random" not in imports(file), file.name
        calls = [
            node
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
        ]
        for call in calls:
            called = ast.unparse(call.func)
            assert call.args or not called.endswith("default_rng"), f"{file.name}:{call.lineno}"
            assert not re.match(r"(np|numpy)\.random\.(?!default_rng)", called), f"{file.name}:{call.lineno}"


def test_a_prediction_passes_the_files_of_the_walk():
    """docs/contributing.md follows V through `fw.predict` at order 1."""
    text = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    walk = text[text.index("## One number") :]
    named = re.findall(r"^\| `([\w/]+\.py)` \| [^|]*[.] \|$", walk, flags=re.M)
    assert 10 <= len(named) <= 15 and walk.count("\n| `") == len(named)
    code = "from benchmarks.house.measure import HERE, House; print(House(HERE).path_of_a_prediction())"
    path = ast.literal_eval(run_python(code).stdout)
    passed = {f"{module.replace('.', '/')}.py" for module in path}
    assert set(named) <= passed, set(named) - passed
