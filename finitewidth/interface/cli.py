"""The command line. Only typer and rich are imported here, so that --help answers at once."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from finitewidth import __version__
from finitewidth.interface import claims_command

BAD_INPUT = 2
INTERRUPTED = 130

app = typer.Typer(
    name="finitewidth",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"finitewidth {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """The effective theory of deep neural networks, made computable."""


RunFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN.toml", help="Network and data; without it, the embedded example.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Output = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Directory for the results; results/<name of the run> if not given."),
]
NoFigure = Annotated[bool, typer.Option("--no-figure", help="Save no figure.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error arose.")]


@app.command()
def solve(
    run_file: RunFile = None,
    as_json: AsJson = False,
    output: Output = None,
    no_figure: NoFigure = False,
    debug: Debug = False,
) -> None:
    r"""Kernel K and neural tangent kernel Theta of every layer, at infinite width.

    Prints a table, and saves the theory, a summary, a figure and a run.toml that repeats the run.
    Results of an earlier run in the same directory are replaced; one that holds anything else is refused.

    Example: finitewidth solve run.toml --output results/gelu, with a run.toml such as

    \[network]
    widths = \[3, 128, 128, 1]    # n_0 ... n_L
    activation = "gelu"
    C_b = 0.0                    # each a number, or one per layer
    C_W = 2.0                    # likewise lambda_b, lambda_W
    \[data]
    path = "inputs.csv"          # or .npy, or .npz with inputs = "name"
    """
    with plain_errors(debug):
        _solve(run_file, as_json, output, no_figure)


def _solve(run_file: Path | None, as_json: bool, output: Path | None, no_figure: bool) -> None:
    from rich.console import Console

    with Console(stderr=True).status("solving"):  # a terminal shows it, a file does not
        from finitewidth.interface import results, runs
        from finitewidth.theory.solve import solve as solve_theory

        run = runs.embedded() if run_file is None else runs.read(run_file)
        target = output if output is not None else Path("results") / run.name
        results.check_replaceable(target)  # before the work, not after it
        theory = solve_theory(run.network, run.inputs, order=0)
        summary = results.summarize(run, theory)
        names = _save(summary, theory, target, no_figure)
    document = {**summary.to_dict(), "results": {"directory": str(target), "files": names}}
    if as_json:
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    from finitewidth.interface import report

    console = Console()
    report.print_summary(summary, console)
    report.print_files(target, names, console)


def _save(summary, theory, target: Path, no_figure: bool) -> list[str]:
    import numpy as np
    import tomli_w

    from finitewidth.interface import results

    # the inputs are kept too, so the run file beside them repeats the run anywhere
    again = {"network": summary.run.network.to_dict(), "data": {"path": "inputs.npy"}}
    with results.replaced_directory(target) as draft:
        np.save(draft / "inputs.npy", theory.X, allow_pickle=False)
        theory.save(draft / "theory.zarr")
        (draft / "run.toml").write_text(tomli_w.dumps(again), encoding="utf-8")
        text = json.dumps(summary.to_dict(), indent=2, allow_nan=False)
        (draft / "summary.json").write_text(text + "\n", encoding="utf-8")
        if not no_figure:
            from finitewidth.interface import plots

            plots.save_kernels(summary, draft)
        return sorted(path.name for path in draft.iterdir())


EnsembleFile = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="Network, data, training and ensemble.")
]


@app.command()
def ensemble(
    config_file: EnsembleFile,
    as_json: AsJson = False,
    output: Output = None,
    debug: Debug = False,
) -> None:
    r"""Train many real networks: mean, spread and standard errors of what they answer.

    Finished batches are kept in the Zarr store ensemble.zarr of the output directory: the same command goes
    on with a run that was stopped or killed. Results open with xarray.open_zarr.

    Example: finitewidth ensemble config.toml --output results/flow, with a config.toml such as

    \[network]
    widths = \[3, 64, 64, 1]     # n_0 ... n_L
    activation = "tanh"
    \[data]
    train_inputs = "X.csv"       # or .npy, or .npz
    train_targets = "Y.csv"
    test_inputs = "X_test.csv"
    \[training]
    algorithm = "gradient_descent"  # or gradient_flow, newton, two_step
    learning_rate = 0.1
    steps = 100
    \[ensemble]
    members = 1000
    key = 0
    record_at = \[0, 10]         # likewise ntk = true, kernels = true
    """
    with plain_errors(debug):
        try:
            _ensemble(config_file, as_json, output)
        except KeyboardInterrupt:
            _complain("interrupted; finished batches are kept, and the same command goes on with them.")
            sys.exit(INTERRUPTED)


def _ensemble(config_file: Path, as_json: bool, output: Path | None) -> None:
    import warnings

    from rich.console import Console

    from finitewidth.experiment.ensemble import train_ensemble
    from finitewidth.interface import ensembles, report

    run = ensembles.read(config_file)
    target = output if output is not None else Path("results") / run.name
    ensembles.check_directory(target)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _complain(str(message))
        warnings.simplefilter("always", UserWarning)
        found = train_ensemble(
            run.network,
            run.X_train,
            run.Y_train,
            run.X_test,
            algorithm=run.algorithm,
            loss=run.loss,
            store=target / ensembles.STORE,
            **run.options,
        )
    document = ensembles.document(run, found, target)
    text = json.dumps(document, indent=2, allow_nan=False)
    draft = target / ".summary.json"
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(target / "summary.json")
    if as_json:
        print(text)
        return
    console = Console()
    report.print_ensemble(found, console)
    report.print_files(target, document["results"]["files"], console)


ActivationName = Annotated[
    str,
    typer.Argument(
        metavar="NAME|MODULE:FUNCTION", help="A named activation, or a function of yours.", show_default=False
    ),
]
Fit = Annotated[bool, typer.Option("--fit", help="Also fit the exponents on a deep network (seconds).")]


@app.command()
def criticality(
    activation: ActivationName, as_json: AsJson = False, fit: Fit = False, debug: Debug = False
) -> None:
    """Universality class, critical initialization and exponents of an activation, and what to set.

    Example: finitewidth criticality gelu

    A function of z in a file of yours, written with jax.numpy: finitewidth criticality my_module:my_function
    """
    with plain_errors(debug):
        _criticality(activation, as_json, fit)


def _criticality(name: str, as_json: bool, fit: bool) -> None:
    from rich.console import Console

    with Console(stderr=True).status("classifying"):
        from finitewidth.interface import advice, user_functions
        from finitewidth.theory.criticality import criticality as classify
        from finitewidth.theory.exponents import fit_exponents

        function, notes = user_functions.activation_named(name)
        point = classify(function)
        fitted = fit_exponents(function) if fit and point.exponents else {}
    for note in notes:
        _complain(note)
    if as_json:
        print(json.dumps(advice.criticality_document(point, fitted), indent=2, allow_nan=False))
    else:
        advice.print_criticality(point, fitted, Console())


Widths = Annotated[
    str,
    typer.Argument(
        metavar="WIDTHS|RUN.toml",
        help="n_0, ..., n_L such as 784,100x20,10 (twenty hidden layers of 100), or a file with \\[network].",
        show_default=False,
    ),
]
OfActivation = Annotated[str, typer.Option("--activation", help="A name, or module:function.")]
Variance = "A number, or one for each layer, separated by commas."


@app.command()
def audit(
    widths: Widths,
    activation: OfActivation = "relu",
    C_b: Annotated[str, typer.Option("--C_b", help=f"Variance of biases. {Variance}")] = "0",
    C_W: Annotated[str, typer.Option("--C_W", help=f"Variance of weights times fan-in. {Variance}")] = "1",
    lambda_b: Annotated[str, typer.Option("--lambda_b", help=f"Learning rate of biases. {Variance}")] = "1",
    lambda_W: Annotated[str, typer.Option("--lambda_W", help=f"Learning rate of weights. {Variance}")] = "1",
    input_scale: Annotated[
        float, typer.Option("--input-scale", help="Mean square of the input components.")
    ] = 1.0,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Do signals and gradients survive the depth of a network, and is its width enough?

    Says what explodes or vanishes, at which layer, and what to set instead.

    Example: finitewidth audit 784,100x20,10 --activation tanh --C_W 1.5
    """
    options = {"C_b": C_b, "C_W": C_W, "lambda_b": lambda_b, "lambda_W": lambda_W}
    with plain_errors(debug):
        _audit(widths, activation, options, input_scale, as_json)


def _audit(widths: str, activation: str, options: dict[str, str], input_scale: float, as_json: bool) -> None:
    from rich.console import Console

    with Console(stderr=True).status("auditing"):
        from finitewidth.interface import advice, user_functions
        from finitewidth.theory.audit import audit as examine

        net, notes = user_functions.network_described(widths, activation, options)
        found = examine(net, input_scale=input_scale)
    for note in notes:
        _complain(note)
    if as_json:
        print(json.dumps(advice.audit_document(found), indent=2, allow_nan=False))
    else:
        advice.print_audit(found, Console())


claims_command.register(app)


@contextlib.contextmanager
def plain_errors(debug: bool) -> Iterator[None]:
    """Bad input ends in one line and status 2; a traceback only if it was asked for."""
    try:
        yield
    except OSError as error:
        if debug or isinstance(error, BrokenPipeError):
            raise
        _refuse(f"cannot read or write {error.filename or 'the output'}: {error.strerror or error}.")
    except ValueError as error:
        if debug:
            raise
        _refuse(str(error))


def _refuse(message: str) -> NoReturn:
    _complain(message)
    raise typer.Exit(BAD_INPUT)


def _complain(message: str) -> None:
    print(f"finitewidth: {' '.join(message.split())}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    command = typer.main.get_command(app)
    try:
        status = command.main(args=given or ["--help"], prog_name="finitewidth", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # what typer raises for a wrong option or argument
            raise
        _complain(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
        status = BAD_INPUT
    if status == INTERRUPTED:  # typer turns an interrupt into this status
        _complain("interrupted; no results were written.")
    sys.exit(status or 0)
