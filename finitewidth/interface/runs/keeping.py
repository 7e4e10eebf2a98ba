"""The results of a run on disk: arrays with named dimensions, documents, figures, a file that repeats it."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

import finitewidth
from finitewidth.core.storage import with_checksums
from finitewidth.interface.runs.main_job import Outcome, document, rows
from finitewidth.interface.runs.results import Summary, replaced_directory

if TYPE_CHECKING:
    import xarray


def save_statistics(summary: Summary, theory, target: Path, *, figure: bool) -> list[str]:
    """Statistics at initialization into `target`; the names of the files."""
    # the inputs are kept too, so the run file beside them repeats the run anywhere
    again = {"network": summary.run.network.to_dict(), "data": {"path": "inputs.npy"}}
    with replaced_directory(target) as draft:
        np.save(draft / "inputs.npy", theory.X, allow_pickle=False)
        theory.save(draft / "theory.zarr")
        _write_texts(draft, again, summary.to_dict())
        if figure:
            from finitewidth.interface.figures import plots

            plots.save_kernels(summary, draft)
        return _names(draft)


def save_outcome(outcome: Outcome, target: Path, *, figure: bool) -> list[str]:
    """Prediction, ensemble and pulls into `target`; the names of the files."""
    from finitewidth.interface.report.html import html_report

    arrays = _data(outcome)
    again = {
        "network": outcome.run.network.to_dict(),
        "data": {name: f"data.npz:{name}" for name in arrays},
        **outcome.run.tables,
    }
    with replaced_directory(target) as draft:
        np.savez(draft / "data.npz", allow_pickle=False, **arrays)
        save_dataset(outcome, draft / "results.zarr")
        _write_texts(draft, again, document(outcome))
        drawn = None
        if figure:
            from finitewidth.interface.figures import main_figure

            svg = draft / "figure.svg"
            main_figure.save_main_figure(rows(outcome), svg, draft / "figure.png")
            drawn = svg.read_text(encoding="utf-8")
        (draft / "report.html").write_text(html_report(outcome, drawn), encoding="utf-8")
        return _names(draft)


def _data(outcome: Outcome) -> dict[str, np.ndarray]:
    run = outcome.run
    arrays = {"train_inputs": run.X_train, "train_targets": run.Y_train, "test_inputs": run.X_test}
    return arrays if run.Y_test is None else {**arrays, "test_targets": run.Y_test}


def _write_texts(draft: Path, again: dict[str, Any], summary: dict[str, Any]) -> None:
    (draft / "run.toml").write_text(tomli_w.dumps(again), encoding="utf-8")
    text = json.dumps(summary, indent=2, allow_nan=False)
    (draft / "summary.json").write_text(text + "\n", encoding="utf-8")


def _names(draft: Path) -> list[str]:
    return sorted(path.name for path in draft.iterdir())


def save_dataset(outcome: Outcome, path: Path) -> None:
    """A Zarr store for xarray.open_zarr; its group "ensemble" holds all that was recorded while training."""
    import zarr

    with warnings.catch_warnings():
        # consolidated metadata are beyond the standard, but xarray asks for them
        warnings.simplefilter("ignore")
        _write(to_xarray(outcome), path, None)
        if outcome.ensemble is not None:
            _write(outcome.ensemble.to_xarray(), path, "ensemble")
        zarr.consolidate_metadata(path)


def _write(data: "xarray.Dataset", path: Path, group: str | None) -> None:
    encoding = {name: with_checksums() for name in data.variables}
    data.to_zarr(path, group=group, mode="a", consolidated=False, encoding=encoding)


_ONE = ("test", "output")
_TWO = (*_ONE, "test_2", "output_2")


def to_xarray(outcome: Outcome) -> "xarray.Dataset":
    """Means and covariances at both orders, contributions, the ensemble's estimates, and pulls."""
    import xarray

    prediction, ensemble = outcome.prediction, outcome.ensemble
    variables: dict[str, Any] = {}
    variables |= _moments("infinite_width", prediction.infinite_width)
    if prediction.order == 1:
        variables |= _moments("finite_width", prediction)
        parts = np.stack(list(prediction.contributions.values()))
        variables["contributions"] = (("contribution", *_ONE), parts)
    if ensemble is not None and outcome.measured is not None:
        variables["ensemble_mean"] = (_ONE, outcome.measured.value)
        variables["ensemble_mean_stderr"] = (_ONE, outcome.measured.stderr)
        variables["ensemble_covariance"] = (_TWO, ensemble.covariance.value)
        variables["ensemble_covariance_stderr"] = (_TWO, ensemble.covariance.stderr)
    for name, comparison in (("infinite_width", outcome.infinite), ("finite_width", outcome.finite)):
        if comparison is not None:
            variables[f"{name}_pulls"] = (_ONE, comparison.pulls)
            if comparison.covariance_pulls is not None:
                variables[f"{name}_covariance_pulls"] = (_TWO, comparison.covariance_pulls)
    for name, array in _data(outcome).items():
        sample, _, kind = name.partition("_")
        variables[name] = ((sample, "input" if kind == "inputs" else "output"), array)
    coordinates = {"contribution": list(prediction.contributions)} if prediction.contributions else {}
    about = {
        "kind": "finitewidth prediction",
        "version": finitewidth.__version__,
        "network": json.dumps(outcome.run.network.to_dict()),
        "algorithm": repr(outcome.run.algorithm),
        "order": prediction.order,
    }
    return xarray.Dataset(variables, coords=coordinates, attrs=about)


def _moments(name: str, prediction) -> dict[str, Any]:
    found: dict[str, Any] = {f"{name}_mean": (_ONE, prediction.mean)}
    if prediction.factors is not None:
        found[f"{name}_covariance"] = (_TWO, prediction.covariance)
    return found
