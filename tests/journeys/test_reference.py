"""The reference: every public name has its parameters, what it returns, and an example that runs."""

import importlib
import importlib.util
import inspect
import re
from typing import Any

import griffe
import pytest
from helpers.printed_outputs import READER, ROOT, evaluated

import finitewidth as fw

PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
PATHS = re.findall(r"^::: (\S+)$", "\n".join(page.read_text(encoding="utf-8") for page in PAGES), re.M)
SAMPLED = {  # examples that sample or train networks, or solve a residual one
    *("compare", "control_variate", "extrapolate", "Extrapolation", "sample", "SampledPosterior"),
    *("sample_statistics", "SampledStatistics", "train_ensemble", "Ensemble"),
    *("claims", "memory", "trained_outputs", "ntk_ellipses", "residuals"),
}
ROOMS = ("algorithms", "bayes", "critical", "empirical", "losses", "records", "textbook", "warnings")
HAS_TORCH = importlib.util.find_spec("torch") is not None
PAGE_OF_NAMES = ROOT / "docs" / "api" / "network.md"


def named(path: str) -> Any:
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def field_comments(kind: type) -> dict[str, str]:
    """What docs/hooks/reference.py writes about the fields of a record."""
    specification = importlib.util.spec_from_file_location("hook", ROOT / "docs" / "hooks" / "reference.py")
    hook = importlib.util.module_from_spec(specification)  # type: ignore[arg-type]
    specification.loader.exec_module(hook)  # type: ignore[union-attr]
    return hook.field_comments(inspect.getsource(kind))


def sections(thing: Any) -> dict[str, list]:
    """The sections of a docstring by kind: parameters with a description, what is returned, text."""
    parsed = griffe.Docstring(inspect.getdoc(thing) or "").parse("google", warnings=False)
    return {section.kind.value: section.value for section in parsed}


def parameters(thing: Any) -> set[str]:
    if inspect.isclass(thing) and issubclass(thing, Warning):
        return set()
    return {name for name in inspect.signature(thing).parameters if not name.startswith("_")}


def lacking(thing: Any) -> list[str]:
    """What the reference does not say about a function or a class."""
    told = sections(thing)
    described = {one.name for one in told.get("parameters", []) if one.description}
    if inspect.isclass(thing) and not described:
        described = {name for name, text in field_comments(thing).items() if text}
    missing = [f"parameter {name}" for name in sorted(parameters(thing) - described)]
    if not inspect.isclass(thing) and "returns" not in told:
        missing += ["what it returns"] * (inspect.signature(thing).return_annotation is not None)
    return missing + ["an example"] * (not examples(thing))


def examples(thing: Any) -> list[str]:
    return re.findall(r"```python\n(.*?)```", inspect.getdoc(thing) or "", re.S)


def test_the_reference_has_every_public_name():
    names = {path.removeprefix("finitewidth.") for path in PATHS}
    public = {name for name in fw.__all__ if not inspect.ismodule(getattr(fw, name))}
    rooms = {room: getattr(fw, room).__all__ for room in ROOMS}
    public |= {f"{room}.{name}" for room, inside in rooms.items() for name in inside}
    figures = {f"interface.figures.plots.{name}" for name in dir(fw.plots)}
    assert public - names == set()
    assert figures - names == set()
    assert len(PATHS) == len(set(PATHS)) > 140


def test_every_name_has_parameters_returns_and_an_example():
    known = [path for path in PATHS if HAS_TORCH or "adapters.torch" not in path]
    assert {path: lacking(named(path)) for path in known if lacking(named(path))} == {}


def undescribed(x, y):
    """A function of x.

    Args:
        x: A number.
    """


def test_what_is_lacking_is_seen():
    assert lacking(undescribed) == ["parameter y", "what it returns", "an example"]


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.long] * (path.rsplit(".", 1)[1] in SAMPLED)) for path in PATHS],
    ids=lambda path: path.rsplit(".", 1)[1],
)
def test_examples_run(path, tmp_path, monkeypatch):
    if "adapters.torch" in path:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    document = READER.parse(PAGE_OF_NAMES)
    for _ in evaluated(document):  # the names of the examples
        pass
    for block in examples(named(path)):
        exec(block, document.namespace)
