"""Tables of the benchmark of advice, from the runs that are kept."""

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.advice.methods import METHODS
from benchmarks.advice.plan import OVER_BOTH, OVER_DEPTH, OVER_WIDTH, SIZES, Part, Problem, centre, plan
from benchmarks.harness import markdown, processor
from benchmarks.provenance import stamp

KEPT = Path(__file__).parent / "results" / "tuned.json"
TIE = 1.1  # losses within this factor count as equal
GUESSING = {"cross-entropy": math.log(10), "squared": 0.45}  # loss of ten classes without learning


def keep(path: Path, kept: dict) -> None:
    """JSON with one line for each problem and method, so that changes can be read."""
    problems = []
    for key, entries in kept.items():
        lines = ",\n  ".join(f"{json.dumps(m)}: {json.dumps(e)}" for m, e in entries.items())
        problems.append(f"{json.dumps(key)}: {{\n  {lines}}}")
    path.write_text("{\n" + ",\n".join(problems) + "\n}\n")


class Best(NamedTuple):
    """The rate with the smallest loss (geometric mean over seeds) among those at which no seed diverged."""

    power: int | None
    loss: float
    accuracy: float


def best(entry: dict) -> Best:
    """The best rate of an entry; its power is None if every rate diverged."""
    candidates = [Best(power, *at(entry, power)) for power in entry["powers"]]
    return min(candidates, key=lambda b: b.loss) if candidates else Best(None, math.inf, math.nan)


def at(entry: dict, power: int) -> tuple[float, float]:
    """Loss and accuracy at a rate, infinite and that of the survivors where a seed diverged."""
    i = entry["powers"].index(power)
    losses, accuracy = entry["loss"][i], float(np.mean(entry["accuracy"][i]))
    return (math.inf if None in losses else float(np.exp(np.mean(np.log(losses))))), accuracy


def worth(entry: dict, problem: Problem) -> float:
    """The best loss, or that of guessing where nothing was better."""
    return min(best(entry).loss, GUESSING[problem.loss])


def report(kept: dict) -> str:
    """All tables of what is there."""
    parts = [part for part in plan() if kept.get(part.problem.key)]
    sections = (opening(kept), methods(), summary(parts, kept), rows(parts, kept), biases(parts, kept))
    text = [*sections, last_layers(parts, kept), transfer(kept), deep(parts, kept)]
    return "\n\n".join(one for one in text if one) + "\n"


OPENING = """# Advice against what people do already

{stamp}. {processor}, one thread, PyTorch {torch}. `python -m benchmarks.advice.tuned` trains what is
missing and writes this page. `plan.py` fixed the plan before anything was trained. Afterwards its order was
changed, so that the runs that laws are read off and cheap rows come first, and one section was added, on
outputs that start small. {done} of its {all} entries are here ({minutes:.0f} minutes of processor time).

Every run has 80 steps of 64 samples in **float32**, as practitioners train (the library itself computes in
float64). *digits* are the 8 by 8 images of scikit-learn, *clusters* a harder generated set (64 inputs, 10
classes of four clusters each, scikit-learn's `make_classification`). The squared loss is half the squared
distance to one-hot labels; both losses are means over the batch. Every method is tuned over rates of a factor
two, seven of them and more at an end where the best one lies. Losses are those on 512 training samples,
geometric means over two seeds; a rate counts only if no seed diverged. Depth counts layers with weights.
Momentum is 0.9; AdamW decays weights by 0.01, its default. Losses within {tie:.0f} percent of the smallest
one of a row are **bold**."""


def opening(kept: dict) -> str:
    import torch

    wanted = {(p.problem.key, m) for p in plan() for m in p.methods}
    entries = [e for key, of in kept.items() for m, e in of.items() if (key, m) in wanted]
    return OPENING.format(
        stamp=stamp(),
        processor=processor(),
        torch=torch.__version__,
        done=len(entries),
        all=len(wanted),
        minutes=sum(e["seconds"] for e in entries) / 60,
        tie=100 * (TIE - 1),
    )


def methods() -> str:
    return "## Methods\n\n" + markdown("name | what it is", [(n, m.says) for n, m in METHODS.items()])


# --- the table of problems ----------------------------------------------------------------------------


def complete(section: str, parts: list[Part], kept: dict) -> list[Part]:
    """The parts of a section all of whose methods were tried."""
    return [p for p in parts if p.section == section and set(p.methods) <= set(kept[p.problem.key])]


def summary(parts: list[Part], kept: dict) -> str:
    """Each method against the best one of each row."""
    text = ["## Which method wins, tuned"]
    text.append(
        "Loss over the smallest loss of the same problem: geometric mean and largest value; how often it is "
        f"within {100 * (TIE - 1):.0f} percent of the smallest. Only problems that all methods were tried on."
    )
    for title, adaptive in (("SGD, with and without momentum", False), ("Adam and AdamW", True)):
        chosen = [p for p in complete("table", parts, kept) if p.problem.adaptive is adaptive]
        if chosen:
            text.append(f"**{title}**, {len(chosen)} problems")
            text.append(
                markdown("method | problems | mean | largest | wins or ties", list(_ranked(chosen, kept)))
            )
    return "\n\n".join(text)


def _ranked(chosen: list[Part], kept: dict) -> Iterable[tuple]:
    ratios: dict[str, list[float]] = {}
    for part in chosen:
        losses = {m: worth(kept[part.problem.key][m], part.problem) for m in part.methods}
        for method, loss in losses.items():
            ratios.setdefault(method, []).append(loss / min(losses.values()))
    means = {m: float(np.exp(np.mean(np.log(r)))) for m, r in ratios.items()}
    for method in sorted(means, key=lambda m: means[m]):
        r = np.array(ratios[method])
        yield method, len(r), f"{means[method]:.2f}", f"{r.max():.3g}", int((r <= TIE).sum())


def rows(parts: list[Part], kept: dict) -> str:
    """The best loss of every method on every problem, with its rate."""
    text = ["## Every problem", "Loss, and in brackets the base-two logarithm of the best rate."]
    for adaptive in (False, True):
        chosen = [p for p in parts if p.section == "table" and p.problem.adaptive is adaptive]
        names = list(dict.fromkeys(m for p in chosen for m in p.methods))
        lines = [(p.problem.key, *_cells(kept[p.problem.key], names, p.problem)) for p in chosen]
        text.append(markdown(" | ".join(["problem", *names]), lines))
    return "\n\n".join(text)


def _cells(entries: dict, names: list[str], problem: Problem) -> list[str]:
    seen = {m: worth(entries[m], problem) for m in names if m in entries}
    least = min(seen.values())
    cells = []
    for name in names:
        if name not in seen:
            cells.append("")
            continue
        power = best(entries[name]).power
        cell = f"{seen[name]:.3g} ({power})" if math.isfinite(best(entries[name]).loss) else "diverges"
        cells.append(f"**{cell}**" if seen[name] <= TIE * least else cell)
    return cells


# --- sections of their own ------------------------------------------------------------------------------


def biases(parts: list[Part], kept: dict) -> str:
    text = "Rates by layer; the share is what biases add to the NTK over what their layer's weights add."
    return _side_by_side("biases", "How fast biases should learn", text, parts, kept)


def last_layers(parts: list[Part], kept: dict) -> str:
    text = (
        "The last weights as theory sets them, and a tenth of that. These runs were added to the plan when "
        "relu networks had been seen to lose with the squared loss."
    )
    return _side_by_side("last layers", "How large outputs should start", text, parts, kept)


def _side_by_side(section: str, title: str, text: str, parts: list[Part], kept: dict) -> str:
    """The best losses of the methods of a section, whose problems all have the same ones."""
    chosen = complete(section, parts, kept)
    if not chosen:
        return ""
    names = chosen[0].methods
    lines = [(p.problem.key, *_cells(kept[p.problem.key], names, p.problem)) for p in chosen]
    return "\n\n".join([f"## {title}", text, markdown(" | ".join(["problem", *names]), lines)])


def transfer(kept: dict) -> str:
    text = [
        "## The best rate over width and depth",
        "Base-two logarithm of the best rate, digits. Rates by layer are in the units of "
        "`fw.torch.parameter_groups`, one rate in those of PyTorch.",
    ]
    for title, sizes in (
        ("width, 8 layers", OVER_WIDTH),
        ("depth, width 128", OVER_DEPTH),
        ("depth/width = 1/16", OVER_BOTH),
    ):
        header = " | ".join(["setting", "rates", *(f"{depth} x {width}" for depth, width in sizes)])
        text += [f"**Over {title}**", markdown(header, _over(kept, sizes, lambda e, _: str(best(e).power)))]
    text += [
        "**Powers**: the best rate as width^a / depth^b, fitted to all sizes that are there.",
        markdown("setting | rates | sizes | a | b", list(_powers(kept))),
        "**The same small rate at all sizes** (the second of each grid), and the loss that it leads to:",
    ]
    header = " | ".join(["setting", "rates", *(f"{depth} x {width}" for depth, width in SIZES)])
    return "\n\n".join(
        [*text, markdown(header, _over(kept, SIZES, lambda e, second: f"{at(e, second)[0]:.3g}"))]
    )


Cell = Callable[[dict, int], str]


def _over(kept: dict, sizes: Iterable, cell: Cell) -> list[tuple]:
    """A row for each setting and method of the transfer, a cell for each size; at least three are there.

    A cell is made of an entry and of the second rate of the grid before it was extended.
    """
    lines = []
    for setting, method in transfers():
        problems = [Problem(*size, *setting) for size in sizes]
        entries = [kept.get(problem.key, {}).get(method) for problem in problems]
        if len([e for e in entries if e]) >= 3:
            second = centre(problems[0], method) - 2
            activation, _, loss, optimizer = setting
            cells = [cell(e, second) if e else "" for e in entries]
            lines.append((f"{activation}, {loss}, {optimizer}", method, *cells))
    return lines


def _powers(kept: dict) -> Iterable[tuple]:
    for setting, method in transfers():
        seen = [(s, kept.get(Problem(*s, *setting).key, {}).get(method)) for s in SIZES]
        seen = [(size, best(entry).power) for size, entry in seen if entry]
        if len(seen) >= 5 and len({size[1] for size, _ in seen}) > 1:
            logs = np.log2([size for size, _ in seen])
            columns = np.column_stack([np.ones(len(seen)), logs[:, 1], -logs[:, 0]])
            _, a, b = np.linalg.lstsq(columns, np.array([power for _, power in seen]), rcond=None)[0]
            activation, _, loss, optimizer = setting
            yield f"{activation}, {loss}, {optimizer}", method, len(seen), f"{a:.2f}", f"{b:.2f}"


def transfers() -> list[tuple[tuple[str, str, str, str], str]]:
    """The settings (activation, data, loss, optimizer) and methods whose best rate is followed over sizes."""
    pairs = [(p.problem[2:], m) for p in plan() if p.section == "transfer" for m in p.methods]
    return list(dict.fromkeys(pairs))


def deep(parts: list[Part], kept: dict) -> str:
    chosen = [p for p in parts if p.section == "deep"]
    if not chosen:
        return ""
    names = list(dict.fromkeys(m for p in chosen for m in p.methods))
    lines = [(p.problem.key, *_cells(kept[p.problem.key], names, p.problem)) for p in chosen]
    return "\n\n".join(["## 50 and 100 layers", markdown(" | ".join(["problem", *names]), lines)])
