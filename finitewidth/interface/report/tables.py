"""Tables of `solve` and `ensemble` for the terminal, from records; nothing is computed here."""

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.interface.report.network_line import describe
from finitewidth.interface.runs.answers import Agreement, Row, agreements, conclusion, rows
from finitewidth.interface.runs.layer_summary import LayerSummary, Spread, Summary
from finitewidth.interface.runs.main_job import SolvedRun
from finitewidth.interface.runs.run_files import TrainingRun
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.replay.replayed import ReplayedPrediction

ORDERS = {"infinite_width": "infinite width", "finite_width": "order 1/n"}

_MOST_ROWS = 24  # of deeper networks the first and last layers are shown; --json and summary.json have all

_NAMES = ("", "layer", "test", "test input", "output", "digit")  # heads of columns that name their rows
_WIDEST = 10_000  # characters of a line that is not cut

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
    _print_facts({"network": repr(run.network), "data": f"{len(run.inputs)} inputs: {run.source}"}, console)
    console.print("\nKernel K and neural tangent kernel Theta at infinite width", style="bold")
    _print_table(list(_COLUMNS), _rows(summary.layers), console)
    positions = "Layers with positions: mean over positions.\n" if len(run.network.input_shape) > 1 else ""
    console.print(
        "Diagonals: mean over inputs. Correlations: least to greatest pair of inputs.\n"
        f"{positions}Largest error of a Gaussian average: {summary.error:.0e} of its scale.",
        highlight=False,
    )


def print_ensemble(ensemble: Ensemble, console: Console) -> None:
    """Mean and spread of the trained networks on test inputs, and their loss."""
    short = f", {ensemble.unfinished} short of the training error" if ensemble.unfinished else ""
    loss, error = float(ensemble.loss.value[-1]), float(ensemble.loss.stderr[-1])
    facts = {
        "network": repr(ensemble.net),
        "training": repr(ensemble.algorithm),
        "members": f"{ensemble.members}{_left_out(ensemble)}{short}",
        "loss": f"{loss:.4g} ± {error:.1g}",
    }
    _print_facts(facts, console)
    console.print()
    heads = ["test input", "output", "mean", "standard error", "spread of members"]
    _print_table(heads, _first(_ensemble_lines(ensemble)), console)


def _ensemble_lines(ensemble: Ensemble) -> list[list[str]]:
    mean, spread = ensemble.mean, ensemble.std
    samples, outputs = mean.value.shape
    return [
        [
            str(a + 1),
            str(i + 1),
            f"{mean.value[a, i]:.5g}",
            f"{mean.stderr[a, i]:.1g}",
            f"{spread[a, i]:.4g}",
        ]
        for a in range(samples)
        for i in range(outputs)
    ]


def print_solved(solved: SolvedRun, console: Console) -> None:
    """The prediction for every test input beside the mean of trained networks, and the pulls."""
    run = solved.run
    facts = {
        "network": describe(run.network),
        "data": data_words(run),
        "training": repr(run.algorithm),
    }
    if solved.prediction.sampling is not None:
        facts["order 1/n"] = method_words(solved.prediction)
    if solved.ensemble is not None:
        facts["ensemble"] = ensemble_words(solved.ensemble)
    _print_facts(facts, console)
    console.print("\nMean output on test inputs", style="bold")
    heads, lines = prediction_table(rows(solved))
    _print_table(heads, _first(lines), console)
    agreement = agreements(solved)
    if agreement:
        console.print("Pulls: (theory - networks) / standard error", style="bold")
        _print_table(*agreement_table(agreement), console)
    console.print(conclusion(solved), highlight=False, soft_wrap=True)


def method_words(prediction: Prediction | ReplayedPrediction) -> str:
    """How order 1/n was computed: where it was sampled, with how many neurons and which standard error."""
    sampling = prediction.sampling
    if sampling is None:
        return repr(prediction.method)
    error = f"standard error {sampling.accuracy:.2g} of the largest shift, rms"
    note = "" if sampling.note is None else f"; {sampling.note}"
    drawn = "initial outputs" if isinstance(prediction, ReplayedPrediction) else "neurons"
    return f"{sampling.samples} sampled {drawn}, {error}{note}"


def data_words(run: TrainingRun) -> str:
    """The number of inputs and their source."""
    return f"{len(run.X_train)} training and {len(run.X_test)} test inputs: {run.source}"


def ensemble_words(ensemble: Ensemble) -> str:
    """The number of trained networks, and of those that diverged."""
    return f"{ensemble.members} trained networks{_left_out(ensemble)}"


def _left_out(ensemble: Ensemble) -> str:
    return f", {ensemble.diverged} diverged and left out" if ensemble.diverged else ""


def _print_facts(facts: dict[str, str], console: Console) -> None:
    for name, text in facts.items():
        console.print(f"[bold]{name:9s}[/bold] {escape(text)}", highlight=False, soft_wrap=True)


def _first(lines: list[list[str]]) -> list[list[str]]:
    """The lines that fit on a screen, and a line of dots for the others."""
    return lines if len(lines) <= _MOST_ROWS else [*lines[:_MOST_ROWS], ["..."] * len(lines[0])]


def _print_table(heads: list[str], lines: list[list[str]], console: Console) -> None:
    """No number is ever cut: files and pipes get wide lines, and terminals several tables if need be."""
    whole = [list(range(len(heads)))]
    for columns in _blocks(heads, lines, console) if console.is_terminal else whole:
        console.print(_table(heads, lines, columns), crop=False, soft_wrap=True)


def _table(heads: list[str], lines: list[list[str]], columns: list[int]) -> Table:
    """Of its natural width, whatever the console has."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    for column in columns:
        table.add_column(heads[column], justify="right", no_wrap=True)
    for line in lines:
        table.add_row(*(escape(line[column]) for column in columns))
    table.width = Console(width=_WIDEST).measure(table).maximum
    return table


def _blocks(heads: list[str], lines: list[list[str]], console: Console) -> list[list[int]]:
    """Columns of tables that fit into the terminal; each begins with the columns that name its rows."""
    names = [column for column, head in enumerate(heads) if head in _NAMES]
    blocks = [names]
    for column in range(len(heads)):
        if column in names:
            continue
        longer = [*blocks[-1], column]
        if blocks[-1] != names and (_table(heads, lines, longer).width or 0) > console.width:
            longer = [*names, column]
            blocks.append(longer)
        blocks[-1] = longer
    return blocks


def prediction_table(answers: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Heads and lines; empty columns are left out, and so is the output if there is only one."""
    sampled = any(row.finite_width_stderr is not None for row in answers)
    finite = "order 1/n ± uncertainty\n± standard error" if sampled else "order 1/n\n± uncertainty"
    columns = {
        "test": [str(row.test) for row in answers],
        "output": [str(row.output) if any(row.output > 1 for row in answers) else "" for row in answers],
        "digit": [row.label or "" for row in answers],
        "target": [number(row.target, ".4g") for row in answers],
        "infinite\nwidth": [number(row.infinite_width, ".4f") for row in answers],
        finite: [_finite(row) for row in answers],
        "spread,\n1/n": [_spread(row) for row in answers],
        "trained networks\n± standard error": [_measured(row) for row in answers],
        "pull,\ninfinite": [number(row.pull_infinite_width, "+.1f") for row in answers],
        "pull,\n1/n": [number(row.pull_finite_width, "+.1f") for row in answers],
        "with\nuncertainty": [number(row.deviation, "+.1f") for row in answers],
    }
    kept = {head: cells for head, cells in columns.items() if any(cells)}
    return list(kept), [list(line) for line in zip(*kept.values(), strict=True)]


def _finite(row: Row) -> str:
    """With its uncertainty, and with its standard error where it was sampled."""
    if row.finite_width is None:
        return ""
    sampled = "" if row.finite_width_stderr is None else f" ± {row.finite_width_stderr:.4f}"
    return f"{row.finite_width:.4f} ± {number(row.finite_width_uncertainty, '.4f')}{sampled}"


def _spread(row: Row) -> str:
    """Where it was sampled, with its standard error; otherwise figures and files have it."""
    if row.finite_width_std_stderr is None:
        return ""
    return f"{number(row.finite_width_std, '.4f')} ± {row.finite_width_std_stderr:.4f}"


def _measured(row: Row) -> str:
    if row.ensemble is None:
        return ""
    return f"{row.ensemble:.4f} ± {number(row.ensemble_stderr, '.4f') or '?'}"


def agreement_table(agreement: dict[str, Agreement]) -> tuple[list[str], list[list[str]]]:
    """Root mean square and largest pull of mean and covariance, one line for each order."""
    heads = ["", "mean,\nrms", "mean,\nlargest", "covariance,\nrms", "covariance,\nlargest"]
    return heads, [
        [ORDERS[name], *(number(v, ".1f") for v in vars(size).values())] for name, size in agreement.items()
    ]


def number(value: float | None, form: str) -> str:
    """A formatted number, or an empty text for None."""
    return "" if value is None else format(value, form)


def print_files(directory: Path, names: list[str], console: Console) -> None:
    """The directory of the results and its files."""
    _print_facts({"results": f"{directory}: {', '.join(names)}"}, console)


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
