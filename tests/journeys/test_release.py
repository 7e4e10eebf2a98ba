"""What is released: a wheel and an sdist that install anywhere, and a package that imports without Unix."""

import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from helpers.paths import ROOT
from helpers.processes import run_python

import finitewidth as fw

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


def test_the_citation_names_developers_and_licence():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert 'name: "The finitewidth developers"' in text and "cff-version: 1.2.0" in text
    assert not re.search(r"^version:", text, flags=re.M)  # it is in one place
    assert "license: Apache-2.0" in text


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
