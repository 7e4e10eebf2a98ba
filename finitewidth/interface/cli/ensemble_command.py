"""`finitewidth ensemble`: real networks without theory."""

import json
import sys
from pathlib import Path
from typing import Annotated

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

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="Network, data, training and ensemble.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(ensemble)


def ensemble(
    config_file: ConfigFile,
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
            complain("interrupted; finished batches are kept, and the same command goes on with them.")
            sys.exit(INTERRUPTED)


def _ensemble(config_file: Path, as_json: bool, output: Path | None) -> None:
    from rich.console import Console

    from finitewidth.experiment.ensemble.training import train_ensemble
    from finitewidth.interface.report import tables as report
    from finitewidth.interface.runs import ensembles

    run = ensembles.read(config_file)
    assert run.options is not None
    target = output if output is not None else Path("results") / run.name
    ensembles.check_directory(target)
    with noted_warnings(complain):
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
    draft = target / ".summary.json"
    draft.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    draft.replace(target / "summary.json")
    if as_json:
        print_json(document)
        return
    console = Console()
    report.print_ensemble(found, console)
    report.print_files(target, document["results"]["files"], console)
