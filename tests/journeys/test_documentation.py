"""README and the pages of the site: their code runs, their numbers are the library's, the site builds."""

import inspect
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from helpers.printed_outputs import READER, ROOT, agree, evaluated

import finitewidth as fw
from finitewidth.network.layers.plain import kinds

PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if "```python" in path.read_text(encoding="utf-8")
)


TEST = r"(\w+/test_\w+\.py)"  # how pages name a file of tests: with its room


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


# pages that train or sample networks; the same functions have tests of their own
TRAINING = ("docs/extrapolation.md", "docs/pytorch.md", "docs/bayes.md", "docs/verification.md")


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.long] * (page in TRAINING)) for page in PAGES]
)
def test_code_of_a_page_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    if page == "docs/pytorch.md":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)  # pages save files
    document = READER.parse(ROOT / page)
    all_printed = ""
    for block, printed in evaluated(document):
        assert block is None or agree(block[1], printed), f"printed:\n{printed}"
        all_printed += printed
    CHECKS.get(page, lambda names, printed: None)(document.namespace, all_printed)


@pytest.mark.parametrize(
    "shown, printed, same",
    [
        ("width 64: 0.123", "width 64: 0.1239", True),  # shown to three digits
        ("width 64: 0.123", "width 64: 0.1251", False),
        ("width 64: 0.123", "width 65: 0.123", False),  # whole numbers are exact
        ("[ 1.5e-05 -2. ]", "[1.6e-05 -2.]", True),
        ("[1.5e-05]", "[1.7e-05]", False),
        ("[1. 0.5]", "[2. 0.5]", False),
        ("first\n...", "first\nsecond 3", True),
        ("first", "first\nsecond 3", False),
        ("a 0.5", "b 0.5", False),
    ],
)
def test_printed_numbers_agree_to_the_digits_shown(shown, printed, same):
    assert agree(shown, printed) is same


def source_of(test: str) -> str:
    """Pages name tests with their room."""
    return (ROOT / "tests" / test).read_text(encoding="utf-8")


def test_tests_that_pages_name_exist():
    named = {pair for page in PAGES for pair in re.findall(TEST + r"::(test_\w+)", text(page))}
    assert len(named) > 15
    for file, name in named:
        assert f"def {name}(" in source_of(file), f"{file}::{name}"


def check_prediction(names: dict, printed: str) -> None:
    assert Path("spectrum.svg").exists()
    np.testing.assert_allclose(names["path"].mean[-1], names["prediction"].mean, rtol=1e-6, atol=1e-8)
    model, machine = (names[name].predict(names["X_test"]) for name in ("model", "machine"))
    np.testing.assert_allclose(model, machine, rtol=1e-4, atol=1e-6)
    shown = re.search(r"\| curvature \| (.*) \|", text("docs/prediction.md"))
    assert shown and shown[1] == " | ".join(f"{value:.2f}" for value in names["curvatures"].values())


def check_tutorial(names: dict, printed: str) -> None:
    assert abs(names["pull_finite"][0, 0]) < 4 < abs(names["pull_infinite"][0, 0])
    assert (
        max(names["pulls"].worst.values()) < 4.5
    )  # of some two hundred entries, of which few are independent


def check_width(names: dict, printed: str) -> None:
    page = text("docs/width.md")
    for (activation, depth), value in names["wide_enough"].items():
        row = re.search(rf"^\| {activation} \|(.*)\|$", page, re.M)
        assert row and f"{value:.2f}" == row[1].split("|")[(5, 10, 20).index(depth)].strip()
    row = re.search(r"^\| largest correction \|(.*)\|$", page, re.M)
    assert row and [cell.strip() for cell in row[1].split("|")] == [
        f"{v:.4f}" for v in names["sizes"].values()
    ]


def check_torch(names: dict, printed: str) -> None:
    assert "normalization, BatchNorm1d" in printed
    assert names["eta"] > 0


def check_networks(names: dict, printed: str) -> None:
    assert "not the Conv of this network" in printed
    assert names["resnet"].depth == 4
    rates = [(layer.lambda_b, layer.lambda_W) for layer in names["standard"].layers if layer.has_weights]
    assert rates == [(1, 9), (1, 4096)]
    page = text("docs/networks.md")
    for path, name in re.findall(rf"`{TEST}(?:::(\w+))?`", page):
        assert f"def {name}" in source_of(path), name
    assert all(f"fw.{name}(" in page for name in kinds()), "a kind of layer is missing"


CHECKS: dict[str, Callable[[dict, str], None]] = {
    "docs/prediction.md": check_prediction,
    "docs/tutorial.md": check_tutorial,
    "docs/width.md": check_width,
    "docs/pytorch.md": check_torch,
    "docs/networks.md": check_networks,
}


@pytest.mark.long
def test_digits_are_classified_as_well_as_reported():
    """To 0.3 percent, three images: another machine may round a tie another way."""
    table = runpy.run_path(str(ROOT / "examples" / "digits.py"))["table"]()
    for results in table:
        name, *values = [cell.strip() for cell in results.strip("|").split("|")]
        reported = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", text("docs/prediction.md"), re.M)
        assert reported, name
        stated = [cell.strip() for cell in reported[1].split("|")]
        for value, claim in zip(values, stated, strict=True):
            assert value == claim or abs(float(value) - float(claim)) <= 0.3


# --- the site ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built as by `make docs`, in which any warning is an error."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr + built.stdout
    return folder


class Fetched(HTMLParser):
    """Everything that a browser fetches to show a page; links that a person follows are not among it."""

    def __init__(self, page: Path):
        super().__init__()
        self.places: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        place = values.get("href") if tag == "link" else values.get("src")
        if place and tag != "a" and values.get("rel") not in ("canonical", "next", "prev"):
            self.places.append(place)


def test_the_site_fetches_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        fetched = Fetched(page).places
        assert any("katex" in place for place in fetched)
        assert [place for place in fetched if re.match(r"(\w+:)?//", place)] == [], page.name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), (
            sheet
        )


def test_search_has_words_and_no_formulas(site):
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    raw = [
        entry["location"] for entry in entries if re.search(r"\\[a-zA-Z(\[]", entry["title"] + entry["text"])
    ]
    assert any(entry["location"].startswith("theory.html") for entry in entries) and raw == []
    words = {entry["title"] for entry in entries if entry["location"].startswith("glossary.html#")}
    assert {"star-polation", "projector", "four-point vertex, V"} <= words
    assert {"cross-entropy", "attention, transformer"} <= words


def test_the_site_has_an_order_and_pages_that_can_be_read_in_one_sitting(site):
    """Reference, claims and the list of files are looked up, not read."""
    looked_up = {"claims.md", "command_line.md", "architecture.md", "files.md"}
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in looked_up or len(page.read_text(encoding="utf-8").split()) <= 2500, page.name
    tutorial = (site / "tutorial.html").read_text(encoding="utf-8")
    assert 'rel="next"' in tutorial and "md-footer__link--next" in tutorial


def test_notebooks_are_pages_with_their_pictures(site):
    for notebook in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        page = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        assert "data:image/png;base64," in page and f'href="{notebook.name}"' in page
        assert f'href="notebooks/{notebook.stem}.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_the_gallery_has_every_example_with_a_picture_or_what_it_prints():
    scripts = {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")} - {
        "examples/figure_options.py"
    }
    shown = re.split(r"^- ", text("docs/gallery.md"), flags=re.M)[1:]
    assert {re.search(r"`(examples/\w+\.py)`", item)[1] for item in shown} == scripts
    assert all(item.startswith("[![") or "```text\n" in item for item in shown)


def test_every_public_name_is_in_the_reference(site):
    reference = "".join(page.read_text(encoding="utf-8") for page in (site / "api").glob("*.html"))
    missing = [
        name
        for name in fw.__all__
        if not inspect.ismodule(getattr(fw, name)) and f'id="finitewidth.{name}"' not in reference
    ]
    assert missing == []


def test_formulas_need_no_network():
    """Every font that the sheet of KaTeX prefers is beside it, with the licence."""
    folder = ROOT / "docs" / "katex"
    fonts = set(re.findall(r"url\((fonts/[\w-]+\.woff2)\)", (folder / "katex.min.css").read_text()))
    assert fonts and all((folder / font).is_file() for font in fonts)
    assert "MIT License" in (folder / "LICENSE").read_text(encoding="utf-8")
