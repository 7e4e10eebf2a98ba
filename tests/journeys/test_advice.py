"""The numbers of docs/advice.md are those of the kept runs of benchmarks/advice/tuned.py."""

import json
import math
import re

import numpy as np
from helpers.paths import ROOT

KEPT = json.loads((ROOT / "benchmarks" / "advice" / "results" / "tuned.json").read_text(encoding="utf-8"))
UNTUNED = json.loads(
    (ROOT / "benchmarks" / "advice" / "results" / "untuned.json").read_text(encoding="utf-8")
)
PAGE = (ROOT / "docs" / "advice.md").read_text(encoding="utf-8")
SHARES = ("lambda_b = 1", "bias share 1", "bias share 1/10", "bias share 1/100", "bias share 0", "critical")


def best(entry):
    """The smallest mean loss over seeds at which none diverged, and the base-two logarithm of its rate."""
    losses = [math.inf if None in row else float(np.exp(np.mean(np.log(row)))) for row in entry["loss"]]
    return min(losses), entry["powers"][int(np.argmin(losses))]


def test_every_entry_has_its_best_rate_inside_the_grid():
    for key, entries in KEPT.items():
        for method, entry in entries.items():
            loss, power = best(entry)
            assert math.isfinite(loss) and entry["powers"][0] < power < entry["powers"][-1], (key, method)


def test_losses_with_shares_of_biases_are_those_of_the_runs():
    rows = re.findall(r"^\| (\w+) (\d+x\d+), ([\w-]+) \| (.*) \|$", PAGE, re.M)
    assert len(rows) == 8
    for activation, size, loss, cells in rows:
        entries = KEPT[f"{activation} {size} digits {loss} sgd"]
        stated = [float(cell) for cell in cells.split("|")]
        np.testing.assert_allclose(stated, [best(entries[name])[0] for name in SHARES], rtol=6e-3)
        assert stated[2] < stated[0], "a tenth is better than lambda_b = 1"


def test_best_rates_over_sizes_are_those_of_the_runs():
    depths = re.search(r"^\| best rate \| (\d+) layers \| (.*) \|$", PAGE, re.M)
    assert depths
    rows = re.findall(r"^\| (\w+), width (\d+) \|(.*)\|$", PAGE, re.M)
    assert len(rows) == 12
    for activation, width, cells in rows:
        for depth, cell in zip([depths[1], *depths[2].split("|")], cells.split("|"), strict=True):
            if cell.strip():
                entry = KEPT[f"{activation} {int(depth)}x{width} digits cross-entropy sgd"]["bias share 1/10"]
                assert float(cell) == 2.0 ** best(entry)[1]


def test_losses_of_deep_networks_are_those_of_the_runs():
    columns = re.search(r"^\| network \| (tanh, 50.*) \|$", PAGE, re.M)
    assert columns
    problems = [column.strip().split(", ") for column in columns[1].split("|")]
    rows = re.findall(r"^\| (plain|skips), ([\w' ]+) \|(.*)\|$", PAGE, re.M)
    assert len(rows) == 6
    for kind, name, cells in rows:
        method = {"critical": "critical", "PyTorch's initialization": "PyTorch"}.get(name, name)
        if kind == "skips":
            method = {"critical": "critical skips", "PyTorch": "skips"}[method]
        for (activation, depth, optimizer), cell in zip(problems, cells.split("|"), strict=True):
            entry = KEPT[f"{activation} {depth}x64 digits cross-entropy {optimizer.lower()}"][method]
            np.testing.assert_allclose(float(cell), min(best(entry)[0], math.log(10)), rtol=6e-3)


def test_recommended_rates_did_not_diverge():
    """The page says so of all problems of the table."""
    for key, ways in UNTUNED.items():
        for way, entry in ways.items():
            if "recommend" in way:
                assert None not in entry["loss"], (key, way)
