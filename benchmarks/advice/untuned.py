"""Learning rates as they come: those of `fw.torch.recommend` and those that people start with, untuned.

Problems are those of the table in `plan.py`, which no rule of `recommend` was read off. The networks,
the batches and the judgement are those of the tuned runs, so that losses can be compared seed by seed.
"""

import dataclasses
import json
import math
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks.advice.methods import METHODS, Shape, drawn, fw
from benchmarks.advice.plan import BY_LAYER, Part, Problem, table
from benchmarks.advice.report import GUESSING, best, keep, worth
from benchmarks.advice.training import DATA, FUNCTIONS, Data, Setting, Start, train
from benchmarks.harness import markdown, say

UNTUNED = Path(__file__).parent / "results" / "untuned.json"
USUAL = {"sgd": 0.1, "momentum": 0.01, "adam": 1e-3, "adamw": 1e-3}
KINDS = {"sgd": "SGD", "momentum": "SGD", "adam": "Adam", "adamw": "AdamW"}
ROWS = 128  # training inputs that `recommend` is shown


class Untuned(NamedTuple):
    """A start of `methods.METHODS`, with the rate of `recommend` or the usual one."""

    start: str
    recommended: bool
    says: str


WAYS = {
    "PyTorch, usual rate": Untuned("PyTorch", False, "PyTorch's initialization"),
    "layer norm, usual rate": Untuned("layer norm", False, "the same with nn.LayerNorm"),
    "skips, usual rate": Untuned("skips", False, "PyTorch's initialization with skips"),
    "critical, usual rate": Untuned("critical", False, "`fw.torch.initialize_`"),
    "critical, recommend": Untuned("critical", True, "`fw.torch.initialize_` and `fw.torch.recommend`"),
    "critical skips, usual rate": Untuned("critical skips", False, "`fw.torch.initialize_` with skips"),
    "critical skips, recommend": Untuned(
        "critical skips", True, "`fw.torch.initialize_` and `fw.torch.recommend`, with skips"
    ),
}


class Perceptron(nn.Module):
    """The network of a start as a torch module."""

    def __init__(self, start: Start, activation: str):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(*W.shape) for W in start.weights])
        self.activation, self.skips = FUNCTIONS[activation], start.skips
        with torch.no_grad():
            for layer, W, b in zip(self.layers, start.weights, start.biases, strict=True):
                layer.weight.copy_(W.T)  # type: ignore[operator]
                layer.bias.copy_(b)  # type: ignore[operator]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.layers[0](x)
        for layer in self.layers[1:-1]:  # type: ignore[union-attr]
            new = layer(self.activation(z))
            z = z + new if self.skips else new
        return self.layers[-1](self.activation(z))


def unit(problem: Problem, classes: int) -> float:
    """The rate for the loss of the runs over that for PyTorch's: MSELoss has 2/classes times its gradient."""
    return 2 / classes if problem.loss == "squared" and not problem.adaptive else 1.0


def advice_for(start: Start, problem: Problem, data: Data) -> tuple[Perceptron, Any]:
    """A network as a torch module, and what `fw.torch.recommend` says of it."""
    model = Perceptron(start, problem.activation)
    return model, fw.torch.recommend(
        model,
        data.X[:ROWS],
        loss=nn.MSELoss() if problem.loss == "squared" else nn.CrossEntropyLoss(),
        optimizer=KINDS[problem.optimizer],
        momentum=0.9 if problem.optimizer == "momentum" else 0.0,
    )


def recommended(start: Start, problem: Problem, data: Data) -> Start:
    """The start with the rates, and the weight decay, of `fw.torch.recommend`."""
    model, advice = advice_for(start, problem, data)
    groups = {id(group["params"][0]): group for group in advice.groups}
    weights = [groups[id(layer.weight)] for layer in model.layers]  # type: ignore[arg-type]
    biases = [groups[id(layer.bias)] for layer in model.layers]  # type: ignore[arg-type]
    factor = unit(problem, data.classes)
    return dataclasses.replace(
        start,
        weight_rates=[factor * group["lr"] for group in weights],
        bias_rates=[factor * group["lr"] for group in biases],
        weight_decay=weights[0].get("weight_decay", 0.0),
        bias_decay=biases[0].get("weight_decay", 0.0),
    )


def measured(part: Part, way: Untuned, data: Data) -> dict:
    """Losses and accuracies of all seeds, at the one rate of each."""
    problem = part.problem
    shape = Shape(problem.depth, problem.width, problem.activation, data.X.shape[1], data.classes)
    starts = [drawn(shape, seed, METHODS[way.start], problem.optimizer) for seed in range(part.seeds)]
    rate = USUAL[problem.optimizer] * unit(problem, data.classes)
    if way.recommended:
        starts, rate = [recommended(start, problem, data) for start in starts], 1.0
    outcome = train(starts, [rate], Setting(problem.activation, data, problem.loss, problem.optimizer))
    return {
        "rates": [float(f"{rate * start.weight_rates[-1]:.4g}") for start in starts],  # of the last weights
        "loss": [float(f"{x:.5g}") if math.isfinite(x) else None for x in outcome.loss[:, 0]],
        "accuracy": outcome.accuracy[:, 0].round(4).tolist(),
    }


def run(minutes: float) -> None:
    """Train with recommended rates again, and with usual ones what is missing."""
    torch.set_num_threads(1)
    kept = json.loads(UNTUNED.read_text()) if UNTUNED.exists() else {}
    data = {name: load() for name, load in DATA.items()}
    for part in problems():
        entries = kept.setdefault(part.problem.key, {})
        for name, way in WAYS.items():
            if name in entries and not way.recommended:
                continue
            if time.process_time() > 60 * minutes:
                return
            entries[name] = measured(part, way, data[part.problem.data])
            say(f"{part.problem.key} | {name}: {entries[name]}")
        keep(UNTUNED, kept)


def problems() -> list[Part]:
    """Those of the table."""
    parts = [part for block in range(3) for part in table(block)]
    return sorted(parts, key=lambda part: part.problem.depth * part.problem.width**2)


# --- the report -----------------------------------------------------------------------------------------


def loss_of(entry: dict, problem: Problem) -> float:
    """The geometric mean over seeds, at most that of guessing, which a run that diverged counts as."""
    guessing = GUESSING[problem.loss]
    losses = [guessing if x is None else min(x, guessing) for x in entry["loss"]]
    return float(np.exp(np.mean(np.log(losses))))


REPORT = """## Without tuning

Losses of the same problems with **one** rate that was not tuned: that of `fw.torch.recommend`, shown {rows}
training inputs, or the usual one: {usual}. For the squared loss these are rates for `nn.MSELoss()`.
No rule of `recommend` was read off these problems. A run that diverged counts as guessing. **over tuned** is
the loss over that of the same network, tuned ({tuned}),
**over best** that over the smallest loss of any method, tuned: geometric mean, median and largest ratio."""


def report(tuned: dict) -> str:
    """Untuned losses over tuned ones, by optimizer, and every problem."""
    kept = json.loads(UNTUNED.read_text()) if UNTUNED.exists() else {}
    parts = [part for part in problems() if part.problem.key in kept]
    usual = ", ".join(f"{rate:g} for {name}" for name, rate in USUAL.items())
    names = "rates by layer for SGD and the squared loss, else one rate"
    text = [REPORT.format(rows=ROWS, usual=usual, tuned=names)]
    for optimizer, title in (
        ("sgd", "SGD"),
        ("momentum", "momentum 0.9"),
        ("adam", "Adam"),
        ("adamw", "AdamW"),
    ):
        chosen = [part for part in parts if part.problem.optimizer == optimizer]
        if chosen:
            text.append(f"**{title}**, {len(chosen)} problems")
            header = (
                "way | problems | over tuned | median | largest | over best | median | largest | diverged"
            )
            text.append(markdown(header, list(_ratios(chosen, kept, tuned))))
    lines = [(part.problem.key, *_cells(part.problem, kept, tuned)) for part in parts]
    return "\n\n".join([*text, markdown(" | ".join(["problem", *WAYS, "tuned best"]), lines)])


def counterpart(way: Untuned, problem: Problem) -> str:
    """The tuned method with the same network and the same relative rates."""
    by_layer = way.recommended and way.start == "critical" and problem.loss == "squared"
    return BY_LAYER if by_layer and not problem.adaptive else way.start


def _ratios(chosen: list[Part], kept: dict, tuned: dict) -> Iterable[tuple]:
    for name, way in WAYS.items():
        same, smallest, diverged, count = [], [], 0, 0
        for part in chosen:
            entry, others = kept[part.problem.key].get(name), tuned.get(part.problem.key, {})
            if entry is None:
                continue
            count, diverged = count + 1, diverged + sum(x is None for x in entry["loss"])
            loss, method = loss_of(entry, part.problem), counterpart(way, part.problem)
            if method in others:
                same.append(loss / worth(others[method], part.problem))
            if set(part.methods) <= set(others):
                smallest.append(loss / min(worth(others[m], part.problem) for m in part.methods))
        yield name, count, *_spread(same), *_spread(smallest), f"{diverged} of {2 * count}"


def _spread(ratios: list[float]) -> tuple[str, str, str]:
    if not ratios:
        return "", "", ""
    mean = float(np.exp(np.mean(np.log(ratios))))
    return f"{mean:.2f}", f"{np.median(ratios):.2f}", f"{max(ratios):.3g}"


def _cells(problem: Problem, kept: dict, tuned: dict) -> list[str]:
    cells = []
    for name in WAYS:
        entry = kept[problem.key].get(name)
        cells.append("" if entry is None else f"{loss_of(entry, problem):.3g}")
    others = tuned.get(problem.key, {})
    name = min(others, key=lambda m: best(others[m]).loss, default=None)
    return [*cells, "" if name is None else f"{worth(others[name], problem):.3g} ({name})"]
