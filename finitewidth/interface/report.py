"""Tables that a person can read, from records; nothing is computed here."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from finitewidth.interface.results import LayerSummary, Spread, Summary

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
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in _rows(summary.layers):
        table.add_row(*row)
    console.print(table)
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
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for column in ("test input", "output", "mean", "standard error", "spread of members"):
        table.add_column(column, justify="right", no_wrap=True)
    mean, spread = ensemble.mean, ensemble.std
    entries = [(a, i) for a in range(mean.value.shape[0]) for i in range(mean.value.shape[1])]
    for a, i in entries[:_MOST_ROWS]:
        numbers = (f"{mean.value[a, i]:.5g}", f"{mean.stderr[a, i]:.1g}", f"{spread[a, i]:.4g}")
        table.add_row(str(a + 1), str(i + 1), *numbers)
    if len(entries) > _MOST_ROWS:
        table.add_row(*("...",) * 5)
    console.print(table)


def print_files(directory: Path, names: list[str], console: Console) -> None:
    """Where the results are."""
    console.print(
        f"[bold]results[/bold]  {escape(str(directory))}: {', '.join(names)}", highlight=False, soft_wrap=True
    )


def _rows(layers: tuple[LayerSummary, ...]) -> list[tuple[str, ...]]:
    if len(layers) <= _MOST_ROWS:
        return [_row(layer) for layer in layers]
    half = _MOST_ROWS // 2
    return [*map(_row, layers[:half]), ("...",) * len(_COLUMNS), *map(_row, layers[-half:])]


def _row(layer: LayerSummary) -> tuple[str, ...]:
    condition = layer.ntk_condition_number
    return (
        str(layer.layer),
        f"{layer.kernel.mean:.4g}",
        _range(layer.kernel_correlation),
        f"{layer.ntk.mean:.4g}",
        _range(layer.ntk_correlation),
        f"{layer.ntk_smallest_eigenvalue:.4g}",
        "singular" if condition is None else f"{condition:.4g}",
    )


def _range(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.smallest:.2f}..{spread.largest:.2f}"
