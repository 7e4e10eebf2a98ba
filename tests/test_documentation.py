"""The page on prediction says what its code does, and the example gives the numbers that the page reports."""

import re
import runpy
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "prediction.md").read_text(encoding="utf-8")


def test_code_of_the_page_runs_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # it saves a figure
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(compile(block, "docs/prediction.md", "exec"), names)
    assert (tmp_path / "spectrum.svg").exists()
    np.testing.assert_allclose(names["path"].mean[-1], names["prediction"].mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        names["model"].predict(names["X_test"]),
        names["machine"].predict(names["X_test"]),
        rtol=1e-4,
        atol=1e-6,
    )
    shown = re.search(r"\| curvature \| (.*) \|", PAGE)
    assert shown and shown[1] == " | ".join(f"{value:.2f}" for value in names["curvatures"].values())


def test_digits_are_classified_as_well_as_reported():
    """To 0.3 percent, three images: another machine may round a tie another way."""
    table = runpy.run_path(str(ROOT / "examples" / "digits.py"))["table"]()
    for found in table:
        name, *values = [cell.strip() for cell in found.strip("|").split("|")]
        reported = re.search(rf"^\| {re.escape(name)} \|(.*)\|$", PAGE, re.M)
        assert reported, name
        stated = [cell.strip() for cell in reported[1].split("|")]
        for value, claim in zip(values, stated, strict=True):
            assert value == claim or abs(float(value) - float(claim)) <= 0.3
