"""`finitewidth solve`: the main job."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from finitewidth.interface.cli.commands import (
    INTERRUPTED,
    AsJson,
    Debug,
    Output,
    complain,
    noted_warnings,
    plain_errors,
    print_json,
)

if TYPE_CHECKING:
    from finitewidth.interface.runs.main_job import Outcome
    from finitewidth.interface.runs.reading import Run, TrainingRun

RunFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN.toml",
        help="Network, data and training; without it, the embedded example.",
        show_default=False,
    ),
]
Example = Annotated[bool, typer.Option("--example", help="Print a complete, commented RUN.toml and stop.")]
NoFigure = Annotated[bool, typer.Option("--no-figure", help="Save no figure.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(solve)


def solve(
    run_file: RunFile = None,
    as_json: AsJson = False,
    output: Output = None,
    no_figure: NoFigure = False,
    example: Example = False,
    debug: Debug = False,
) -> None:
    r"""Theory of trained networks at infinite width and at order 1/n, and real networks beside it.

    Without arguments: handwritten digits, a narrow tanh network, its theory and an ensemble of trained
    networks. Prints a table with pulls; saves arrays, a figure, a report and a run.toml that repeats the run.
    Stopped while networks are trained, the same command goes on.

    Example: finitewidth solve --example > run.toml; finitewidth solve run.toml --output results/mine

    A file with a network and inputs alone gives K and Theta of every layer at initialization:

    \[network]
    widths = \[3, 128, 128, 1]    # n_0 ... n_L
    activation = "gelu"
    C_b = 0.0                    # each a number, or one per layer
    C_W = 2.0                    # likewise lambda_b, lambda_W
    \[data]
    path = "inputs.csv"          # or .npy, or .npz with inputs = "name"
    """
    with plain_errors(debug):
        if example:
            _print_example(as_json)
        else:
            _solve(run_file, as_json, output, figure=not no_figure)


def _print_example(as_json: bool) -> None:
    from finitewidth.interface.runs.embedded import EXAMPLE

    if as_json:
        import finitewidth

        print_json({"finitewidth": finitewidth.__version__, "command": "solve", "example": EXAMPLE})
    else:
        print(EXAMPLE, end="")


def _solve(run_file: Path | None, as_json: bool, output: Path | None, *, figure: bool) -> None:
    from rich.console import Console

    with Console(stderr=True).status("reading"):  # a terminal shows it, a file does not
        from finitewidth.interface.runs import embedded, results
        from finitewidth.interface.runs import reading as runs

        run = embedded.embedded() if run_file is None else runs.read(run_file)
        target = output if output is not None else Path("results") / run.name
        results.check_replaceable(target)  # before the work, not after it
    if isinstance(run, runs.Run):
        document = _statistics(run, target, figure, quiet=as_json)
    else:
        document = _main_job(run, target, figure, quiet=as_json)
    if as_json:
        print_json(document)


def _statistics(run: "Run", target: Path, figure: bool, *, quiet: bool) -> dict:
    from rich.console import Console

    with Console(stderr=True).status("solving"):
        from finitewidth.interface.report import tables as report
        from finitewidth.interface.runs import keeping, results
        from finitewidth.theory.solve import solve as solve_theory

        theory = solve_theory(run.network, run.inputs, order=0)
        summary = results.summarize(run, theory)
        names = keeping.save_statistics(summary, theory, target, figure=figure)
    if not quiet:
        report.print_summary(summary, Console())
        report.print_files(target, names, Console())
    return {**summary.to_dict(), "results": {"directory": str(target), "files": names}}


def _main_job(run: "TrainingRun", target: Path, figure: bool, *, quiet: bool) -> dict:
    from rich.console import Console

    from finitewidth.interface.report import tables as report
    from finitewidth.interface.runs import keeping, main_job, results

    try:
        outcome = _computed(run, target)
        with Console(stderr=True).status("saving"):
            names = keeping.save_outcome(outcome, target, figure=figure)
    except KeyboardInterrupt:
        if not results.unfinished(target).exists():
            raise  # nothing was trained yet
        complain(
            "interrupted; the networks trained so far are kept in "
            f"{str(results.unfinished(target))!r}, and the same command goes on with them."
        )
        sys.exit(INTERRUPTED)
    results.clear_unfinished(target)
    if not quiet:
        report.print_outcome(outcome, Console())
        report.print_files(target, names, Console())
    return {**main_job.document(outcome), "results": {"directory": str(target), "files": names}}


def _computed(run: "TrainingRun", target: Path) -> "Outcome":
    from rich.console import Console

    from finitewidth.interface.runs import main_job, results

    notes: list[str] = []
    main_job.check_run(run)
    with noted_warnings(notes.append):
        with Console(stderr=True).status("theory"):
            prediction = main_job.predict_run(run)
        ensemble = None
        if run.options is not None:
            store = results.unfinished(target) / f"{main_job.fingerprint(run)}.zarr"
            ensemble = main_job.train_run(run, store)  # shows its own progress
    for note in notes:
        complain(f"note: {note}")
    return main_job.outcome_of(run, prediction, ensemble, notes)
