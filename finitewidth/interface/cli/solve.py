"""`finitewidth solve`: theory of trained networks, and real networks beside it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from finitewidth.interface.cli.conventions import (
    AsJson,
    Debug,
    Output,
    Quiet,
    complain,
    noted_warnings,
    plain_errors,
    print_json,
)
from finitewidth.interface.cli.interrupts import NOTHING, keeping

if TYPE_CHECKING:
    from finitewidth.interface.runs.main_job import SolvedRun
    from finitewidth.interface.runs.run_files import InitializationRun, TrainingRun

RunFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN.toml",
        help="Network, data and training; without it, the built-in run.",
        show_default=False,
    ),
]
Example = Annotated[bool, typer.Option("--example", help="Print a complete, commented RUN.toml and stop.")]
NoFigure = Annotated[bool, typer.Option("--no-figure", help="Do not draw a figure.")]


def solve(
    run_file: RunFile = None,
    as_json: AsJson = False,
    output: Output = None,
    no_figure: NoFigure = False,
    example: Example = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    r"""Theory of trained networks at infinite width and at order 1/n, and real networks beside it.

    Without arguments, a tanh network learns handwritten digits: its theory is compared with an ensemble of
    trained networks. Prints a table with pulls; saves arrays, a figure, a report and a run.toml that repeats
    the run. If it is stopped while neurons are sampled or networks trained, the same command continues.

    Example: finitewidth solve --example > run.toml; finitewidth solve run.toml --output results/mine

    A file with a network and inputs only gives K and Theta of every layer at initialization:

    \[network]
    widths = \[3, 128, 128, 1]    # n_0 ... n_L
    activation = "gelu"          # or one for each hidden layer
    C_b = 0.0                    # a number, or one for each layer
    C_W = 2.0                    # and likewise lambda_b, lambda_W
    \[data]
    path = "inputs.csv"          # or .npy, or .npz with inputs = "name"
    """
    with plain_errors(debug):
        if example:
            _print_example(as_json)
        else:
            _solve(run_file, output, Shown(as_json, quiet), figure=not no_figure)


def _print_example(as_json: bool) -> None:
    from finitewidth.interface.runs.embedded import example

    if as_json:
        import finitewidth

        print_json({"finitewidth": finitewidth.__version__, "command": "solve", "example": example()})
    else:
        print(example(), end="")


@dataclass(frozen=True)
class Shown:
    """What a run prints: a JSON document, nothing, or progress, notes and tables."""

    as_json: bool
    quiet: bool

    @property
    def tables(self) -> bool:
        return not (self.as_json or self.quiet)

    @contextlib.contextmanager
    def status(self, text: str) -> Iterator[Callable[[int, int], None]]:
        """Say what is being done, on a terminal and not in a file, and how much of it, by the function."""
        from rich.console import Console

        with Console(stderr=True, quiet=self.quiet).status(text) as line:
            yield lambda done, total: line.update(f"{text}: {done} of {total}")


def _solve(run_file: Path | None, output: Path | None, shown: Shown, *, figure: bool) -> None:
    with shown.status("reading"):
        from finitewidth.interface.runs import embedded, output_directory, run_files

        run = embedded.embedded() if run_file is None else run_files.read(run_file)
        target = output if output is not None else Path("results") / run.name
        output_directory.check_replaceable(target)  # before the work, not after it
    if isinstance(run, run_files.InitializationRun):
        document = _statistics(run, target, figure, shown)
    else:
        document = _main_job(run, target, figure, shown)
    if shown.as_json:
        print_json(document)


def _statistics(run: "InitializationRun", target: Path, figure: bool, shown: Shown) -> dict:
    from rich.console import Console

    with shown.status("solving"):
        from finitewidth.interface.report import documents, saving, tables
        from finitewidth.interface.runs.layer_summary import summarize
        from finitewidth.theory.solve import solve as solve_theory

        theory = solve_theory(run.network, run.inputs, order=0)
        summary = summarize(run, theory)
        names = saving.save_statistics(summary, theory, target, figure=figure)
    if shown.tables:
        tables.print_summary(summary, Console())
        tables.print_files(target, names, Console())
    document = documents.initialization_document(summary)
    return {**document, "results": {"directory": str(target), "files": names}}


def _main_job(run: "TrainingRun", target: Path, figure: bool, shown: Shown) -> dict:
    from rich.console import Console

    from finitewidth.interface.report import documents, saving, tables
    from finitewidth.interface.runs import output_directory

    with keeping(lambda: _kept_parts(output_directory.unfinished(target))):
        solved = _solved(run, target, shown)
        with shown.status("saving"):
            names = saving.save_solved(solved, target, figure=figure)
    with keeping(lambda: f"all results are in {str(target)!r}."):
        output_directory.clear_unfinished(target)
        if shown.tables:
            tables.print_solved(solved, Console())
            tables.print_files(target, names, Console())
    document = documents.solve_document(solved)
    return {**document, "results": {"directory": str(target), "files": names}}


def _kept_parts(unfinished: Path) -> str:
    if not unfinished.exists():  # nothing that takes long has begun
        return NOTHING
    return (
        f"finished parts of theory and networks are kept in {str(unfinished)!r}; the same command continues "
        "with them."
    )


def _solved(run: "TrainingRun", target: Path, shown: Shown) -> "SolvedRun":
    from finitewidth.interface.runs import main_job, output_directory

    notes: list[str] = []
    main_job.check_run(run)
    with noted_warnings(notes.append):
        place, name = output_directory.unfinished(target), main_job.fingerprint(run)
        theory = place / f"{name}.theory.zarr"
        # one line of the terminal says what is done and how much of it
        with shown.status("theory") as told, output_directory.discarded_if_refused(theory):
            prediction = main_job.predict_run(run, theory, progress=told)
        ensemble = None
        if run.options is not None:
            store = place / f"{name}.zarr"
            ensemble = main_job.train_run(run, store, progress=False if shown.quiet else None)
    for note in notes if not shown.quiet else ():
        complain(f"note: {note}")
    return main_job.compared_run(run, prediction, ensemble, notes)
