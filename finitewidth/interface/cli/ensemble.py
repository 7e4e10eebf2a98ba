"""`finitewidth ensemble`: trained networks without theory."""

import json
from pathlib import Path
from typing import Annotated

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

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="Network, data, training and ensemble.")
]


def ensemble(
    config_file: ConfigFile,
    as_json: AsJson = False,
    output: Output = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    r"""Train many real networks, and estimate the mean and the spread of their outputs with standard errors.

    Finished batches are kept in the Zarr store ensemble.zarr of the output directory. After a run was stopped
    or killed, the same command continues it. Results open with xarray.open_zarr.

    Example: finitewidth ensemble config.toml --output results/flow, with a config.toml such as

    \[network]
    widths = \[3, 64, 64, 1]     # n_0 ... n_L
    activation = "tanh"          # or one for each hidden layer
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
    \[record]
    at = \[0, 10]                # further keys: ntk = true, kernels = true, members = true
    """
    with plain_errors(debug):
        _ensemble(config_file, as_json, output, quiet)


def _ensemble(config_file: Path, as_json: bool, output: Path | None, quiet: bool) -> None:
    from rich.console import Console

    from finitewidth.experiment.ensemble.training import train_ensemble
    from finitewidth.interface.report import documents, tables
    from finitewidth.interface.runs import ensemble_runs

    run = ensemble_runs.read(config_file)
    target = output if output is not None else Path("results") / run.name
    ensemble_runs.check_directory(target)
    store = target / ensemble_runs.STORE
    with noted_warnings(_unheard if quiet else complain), keeping(lambda: _kept_batches(store)):
        trained = train_ensemble(
            run.network,
            run.X_train,
            run.Y_train,
            run.X_test,
            algorithm=run.algorithm,
            loss=run.loss,
            **run.options_at(store, False if quiet else None),
        )
    document = documents.ensemble_document(run, trained, target)
    draft = target / f".{ensemble_runs.SUMMARY}"
    draft.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    draft.replace(target / ensemble_runs.SUMMARY)
    if as_json:
        print_json(document)
    if as_json or quiet:
        return
    console = Console()
    tables.print_ensemble(trained, console)
    tables.print_files(target, document["results"]["files"], console)


def _unheard(_note: str) -> None:
    """Notes of a quiet run are in its summary, or nowhere."""


def _kept_batches(store: Path) -> str:
    if not store.exists():
        return NOTHING
    return f"finished batches are kept in {str(store)!r}; the same command continues with them."
