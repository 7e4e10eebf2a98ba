"""Tables that a person can read, from records; nothing is computed here."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from finitewidth.interface.cli.advice_report import describe
from finitewidth.interface.runs.main_job import Agreement, Outcome, Row, agreements, conclusion, rows
from finitewidth.interface.runs.results import LayerSummary, Spread, Summary

ORDERS = {"infinite_width": "infinite width", "finite_width": "order 1/n"}

_MOST_ROWS = 24  # deeper networks show their first and last layers; --json and summary.json have all

_COLUMNS = (
    "layer",
    "K\ndiagonal",
    "K\ncorrelation",
    "Theta\ndiagonal",
    "Theta\ncorrelation",
    "Theta least\neigenvalue",
    "Theta\ncondition",
)


def print_summary(summary: Summary, console: Console) -> None:
    """The network, the data, and a row for each layer; diagonals are means over inputs."""
    run = summary.run
    console.print(f"[bold]network[/bold]  {run.network!r}", highlight=False, soft_wrap=True)
    console.print(
        f"[bold]data[/bold]     {len(run.inputs)} inputs: {escape(run.source)}",
        highlight=False,
        soft_wrap=True,
    )
    console.print("\nKernel K and neural tangent kernel Theta at infinite width", style="bold")
    _print_table(list(_COLUMNS), _rows(summary.layers), console)
    console.print(
        "Diagonals: mean over inputs. Correlations: least to greatest pair of inputs.\n"
        f"Largest error of a Gaussian average: {summary.error:.0e} of its scale.",
        highlight=False,
    )


def print_ensemble(ensemble, console: Console) -> None:
    """What trained networks answer on test inputs, and how far they got."""
    console.print(f"[bold]network[/bold]   {ensemble.net!r}", highlight=False, soft_wrap=True)
    console.print(f"[bold]training[/bold]  {ensemble.algorithm!r}", highlight=False, soft_wrap=True)
    left_out = f", {ensemble.diverged} diverged and left out" if ensemble.diverged else ""
    short = f", {ensemble.unfinished} short of the training error" if ensemble.unfinished else ""
    console.print(f"[bold]members[/bold]   {ensemble.members}{left_out}{short}", highlight=False)
    loss, error = float(ensemble.loss.value[-1]), float(ensemble.loss.stderr[-1])
    console.print(f"[bold]loss[/bold]      {loss:.4g} ± {error:.1g}\n", highlight=False)
    mean, spread = ensemble.mean, ensemble.std
    entries = [(a, i) for a in range(mean.value.shape[0]) for i in range(mean.value.shape[1])]
    lines = []
    for a, i in entries[:_MOST_ROWS]:
        numbers = (f"{mean.value[a, i]:.5g}", f"{mean.stderr[a, i]:.1g}", f"{spread[a, i]:.4g}")
        lines.append([str(a + 1), str(i + 1), *numbers])
    if len(entries) > _MOST_ROWS:
        lines.append(["..."] * 5)
    heads = ["test input", "output", "mean", "standard error", "spread of members"]
    _print_table(heads, lines, console)


def print_outcome(outcome: Outcome, console: Console) -> None:
    """What theory says of every test input, what trained networks say, and the pulls between them."""
    run, ensemble = outcome.run, outcome.ensemble
    data = f"{len(run.X_train)} training and {len(run.X_test)} test inputs: {run.source}"
    facts = {"network": describe(run.network), "data": data, "training": repr(run.algorithm)}
    if ensemble is not None:
        left_out = f", {ensemble.diverged} diverged and left out" if ensemble.diverged else ""
        facts["ensemble"] = f"{ensemble.members} trained networks{left_out}"
    for name, text in facts.items():
        console.print(f"[bold]{name:9s}[/bold] {escape(text)}", highlight=False, soft_wrap=True)
    console.print("\nMean output on test inputs", style="bold")
    heads, lines = prediction_table(rows(outcome))
    shown = lines if len(lines) <= _MOST_ROWS else [*lines[:_MOST_ROWS], ["..."] * len(heads)]
    _print_table(heads, shown, console)
    found = agreements(outcome)
    if found:
        console.print("Pulls: (theory - networks) / standard error", style="bold")
        _print_table(*agreement_table(found), console)
    console.print(f"{conclusion(outcome)}", highlight=False, soft_wrap=True)


def _print_table(heads: list[str], lines: list[list[str]], console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*(escape(cell) for cell in line))
    console.print(table)


def prediction_table(found: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Heads and lines; columns that say nothing, and the output where there is one, are left out."""
    columns = {
        "test": [str(row.test) for row in found],
        "output": [str(row.output) if any(row.output > 1 for row in found) else "" for row in found],
        "digit": [row.label or "" for row in found],
        "target": [number(row.target, ".4g") for row in found],
        "infinite\nwidth": [number(row.infinite_width, ".4f") for row in found],
        "order\n1/n": [number(row.finite_width, ".4f") for row in found],
        "trained networks\n± standard error": [_measured(row) for row in found],
        "pull,\ninfinite": [number(row.pull_infinite_width, "+.1f") for row in found],
        "pull,\n1/n": [number(row.pull_finite_width, "+.1f") for row in found],
    }
    kept = {head: cells for head, cells in columns.items() if any(cells)}
    return list(kept), [list(line) for line in zip(*kept.values(), strict=True)]


def _measured(row: Row) -> str:
    if row.ensemble is None:
        return ""
    return f"{row.ensemble:.4f} ± {number(row.ensemble_stderr, '.4f') or '?'}"


def agreement_table(found: dict[str, Agreement]) -> tuple[list[str], list[list[str]]]:
    """Root mean square and largest pull of mean and covariance, a line for each order."""
    heads = ["", "mean,\nrms", "mean,\nlargest", "covariance,\nrms", "covariance,\nlargest"]
    return heads, [
        [ORDERS[name], *(number(v, ".1f") for v in vars(size).values())] for name, size in found.items()
    ]


def number(value: float | None, form: str) -> str:
    """Nothing where there is no number."""
    return "" if value is None else format(value, form)


def print_files(directory: Path, names: list[str], console: Console) -> None:
    """Where the results are."""
    console.print(
        f"[bold]results[/bold]  {escape(str(directory))}: {', '.join(names)}", highlight=False, soft_wrap=True
    )


def _rows(layers: tuple[LayerSummary, ...]) -> list[list[str]]:
    if len(layers) <= _MOST_ROWS:
        return [_row(layer) for layer in layers]
    half = _MOST_ROWS // 2
    return [*map(_row, layers[:half]), ["..."] * len(_COLUMNS), *map(_row, layers[-half:])]


def _row(layer: LayerSummary) -> list[str]:
    condition = layer.ntk_condition_number
    return [
        str(layer.layer),
        f"{layer.kernel.mean:.4g}",
        _range(layer.kernel_correlation),
        f"{layer.ntk.mean:.4g}",
        _range(layer.ntk_correlation),
        f"{layer.ntk_smallest_eigenvalue:.4g}",
        "singular" if condition is None else f"{condition:.4g}",
    ]


def _range(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.smallest:.2f}..{spread.largest:.2f}"
