"""What is released: a wheel and an sdist that install anywhere, and the files that a maintainer expects."""

import datetime
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import trove_classifiers
import yaml
from helpers.lowest_versions import lowest_versions
from helpers.paths import ROOT
from helpers.processes import run_python

import finitewidth as fw
from finitewidth.interface.page.safety import MOST_BODY
from finitewidth.interface.page.values import MOST_TEXT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CHANGELOG = ROOT / "CHANGELOG.md"
UNIX = ("_posixsubprocess", "fcntl", "grp", "posix", "pwd", "resource", "termios")
ABSENT = {  # what modules of the standard library do not have on Windows
    "signal": (
        "SIGALRM",
        "SIGHUP",
        "SIGKILL",
        "SIGQUIT",
        "SIGUSR1",
        "alarm",
        "setitimer",
        "sigwait",
        "pthread_sigmask",
    ),
    "os": (
        "fork",
        "getuid",
        "geteuid",
        "getpgid",
        "killpg",
        "setsid",
        "sysconf",
        "statvfs",
        "uname",
        "sched_getaffinity",
    ),
}


@pytest.mark.long
def test_the_package_imports_where_modules_of_unix_are_missing():
    """Modules of this package, not of the libraries below it, which have their own ways on Windows."""
    code = f"""
import builtins, importlib, os, pkgutil, signal, sys
import numpy, jax, scipy.linalg, sklearn, matplotlib, zarr, xarray, numba, equinox, diffrax, psutil
import rich, typer, filelock, jinja2, tomli_w, uvicorn, starlette.applications, optax
real = builtins.__import__
def windows(name, globals=None, *rest):
    if name.split(".")[0] in {UNIX!r} and (globals or {{}}).get("__name__", "").startswith("finitewidth"):
        raise ModuleNotFoundError(name)
    return real(name, globals, *rest)
builtins.__import__ = windows
for module, names in {ABSENT!r}.items():
    for name in names:
        delattr(sys.modules[module], name)
import finitewidth
skipped = ("torch", "page.child", "__main__")
for module in pkgutil.walk_packages(finitewidth.__path__, "finitewidth."):
    if not any(word in module.name for word in skipped):
        importlib.import_module(module.name)
print(len(sys.modules))
"""
    result = run_python(code)
    assert result.returncode == 0, result.stderr


def test_the_citation_names_developers_licence_version_and_date():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["authors"] == [{"name": "The finitewidth developers"}]
    assert citation["cff-version"] == "1.2.0" and citation["license"] == PROJECT["license"]
    assert citation["version"] == fw.__version__
    headline = re.search(
        rf"^## {re.escape(fw.__version__)} \((.*)\)$", CHANGELOG.read_text(encoding="utf-8"), flags=re.M
    )
    # a version that is released has its date in both places
    assert headline and headline[1] in ("not yet released", str(citation["date-released"]))
    assert isinstance(citation["date-released"], datetime.date)


def test_the_classifiers_exist_and_name_the_python_versions_that_are_tested():
    assert set(PROJECT["classifiers"]) <= set(trove_classifiers.classifiers)
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={named[0]}"
    for job in ("test", "package"):
        matrix = workflow("tests.yml")["jobs"][job]["strategy"]["matrix"]
        assert matrix["python"] == named
        assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / ".github" / "workflows").iterdir()))
def test_every_command_of_a_workflow_exists(name):
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    for job in workflow(name)["jobs"].values():
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
            elif not step["run"].startswith("echo "):
                made = re.fullmatch(r"make ([\w-]+) PYTHON=python", step["run"])
                assert made and made[1] in targets, step["run"]


def test_every_script_of_the_makefile_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    scripts = re.findall(r"\$\(PYTHON\) ([\w/]+\.py)", makefile)
    assert len(scripts) == 2 and all((ROOT / script).exists() for script in scripts)
    phony = re.search(r"^\.PHONY: (.*)$", makefile, flags=re.M)
    assert phony and set(phony[1].split()) == set(re.findall(r"^([a-z-]+):", makefile, flags=re.M))


def test_pre_commit_uses_the_pinned_ruff():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    pinned = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    assert [hook["entry"].split()[:2] for hook in hooks] == [["ruff", "check"], ["ruff", "format"]]
    assert all(len(hook["additional_dependencies"]) == 1 for hook in hooks)
    assert all(hook["additional_dependencies"][0] in pinned for hook in hooks)


FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize(
    "path", [path for path in FORMS if path.stem != "config"], ids=lambda path: path.stem
)
def test_issue_forms_ask_for_what_is_needed(path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form["name"] and form["description"]
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert all(
        field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in form["body"]
    )
    assert form["body"][0]["validations"]["required"]


@pytest.mark.parametrize("name", ["SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"])
def test_links_and_files_of_the_documents_at_the_top_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    files = re.findall(r"`((?:finitewidth|tests|\.github)/[\w./]+)`", text)
    assert [path for path in [*links, *files] if not (ROOT / path).exists()] == []


def test_the_security_page_states_the_limits_of_the_page():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    limits = re.search(r"at most (\d+) characters of query and (\d+) bytes of body", text)
    assert limits and [int(limit) for limit in limits.groups()] == [MOST_TEXT, MOST_BODY]


def test_the_lowest_versions_are_those_of_the_requirements():
    lines = lowest_versions(PROJECT)
    assert "equinox==0.13.3" in lines and "torch==2.6" in lines
    names = {line.split("==")[0] for line in lines}
    core = {re.split("[<>=]", item)[0] for item in PROJECT["dependencies"]}
    assert core <= names and "pytest" not in names


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with an sdist, and the wheel that is built from the sdist alone."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(folder / f"finitewidth-{fw.__version__}.tar.gz") as archive:
        archive.extractall(folder / "source", filter="data")
    source = folder / "source" / f"finitewidth-{fw.__version__}"
    subprocess.run([*build, "-t", "wheel"], cwd=source, check=True, capture_output=True)
    return folder


@pytest.mark.long
def test_sdist_and_wheel_hold_what_they_need(built):
    source = built / "source" / f"finitewidth-{fw.__version__}"
    for name in (
        "CITATION.cff",
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "tests",
        "docs",
        "examples",
        "benchmarks",
    ):
        assert (source / name).exists(), name
    with zipfile.ZipFile(built / f"finitewidth-{fw.__version__}-py3-none-any.whl") as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("finitewidth/")}
    here = (path for path in (ROOT / "finitewidth").rglob("*") if path.is_file())
    assert packed == {str(path.relative_to(ROOT)) for path in here if "__pycache__" not in path.parts}


@pytest.mark.long
def test_the_wheel_works_in_a_clean_environment(built, tmp_path):
    """Of the interpreter of the tests; its libraries are lent, and the package is the one of the wheel."""
    venv.create(tmp_path / "env", with_pip=True)
    python = next((tmp_path / "env").rglob("python"))
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    wheel = next(built.glob("*.whl"))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    packages = next((tmp_path / "env").rglob("site-packages"))
    (packages / "lent.pth").write_text(lent + "\n", encoding="utf-8")
    code = (
        "import finitewidth as fw; from finitewidth.sklearn import WideNetworkRegressor; "
        "print(fw.__file__); print(fw.kernels(fw.MLP((2, 8, 1), 'relu'), [[1.0, 2.0]]).K.shape)"
    )
    ran = subprocess.run(
        [str(python), "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"{packages / 'finitewidth' / '__init__.py'}\n(1, 1)\n"
    command = python.with_name("finitewidth")
    shown = subprocess.run([command, "--version"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert shown.stdout == f"finitewidth {fw.__version__}\n"
