"""A solved run as arrays with named dimensions, for xarray."""

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import finitewidth
from finitewidth.core.storage.files import require_assertions, with_checksums
from finitewidth.interface.runs.main_job import SolvedRun
from finitewidth.interface.runs.run_files import TrainingRun
from finitewidth.theory.xarray_form import input_dimensions
from finitewidth.training.infinite.spreads import AtBothOrders

if TYPE_CHECKING:
    import xarray

_ONE = ("test", "output")
_TWO = (*_ONE, "test_2", "output_2")


def save_dataset(solved: SolvedRun, path: Path) -> None:
    """Write a Zarr store for xarray.open_zarr; its group "ensemble" holds the records of the training."""
    require_assertions(path)
    import zarr

    with warnings.catch_warnings():
        # consolidated metadata are not part of the standard, but xarray asks for them
        warnings.simplefilter("ignore")
        _write(to_xarray(solved), path, None)
        if solved.ensemble is not None:
            _write(solved.ensemble.to_xarray(), path, "ensemble")
        zarr.consolidate_metadata(path)


def _write(data: "xarray.Dataset", path: Path, group: str | None) -> None:
    encoding = {name: with_checksums() for name in data.variables}
    data.to_zarr(path, group=group, mode="a", consolidated=False, encoding=encoding)


def data_arrays(run: TrainingRun) -> dict[str, np.ndarray]:
    """The data of a run under the names that run files give them."""
    arrays = {"train_inputs": run.X_train, "train_targets": run.Y_train, "test_inputs": run.X_test}
    return arrays if run.Y_test is None else {**arrays, "test_targets": run.Y_test}


def to_xarray(solved: SolvedRun) -> "xarray.Dataset":
    """Means and covariances at both orders, contributions, the ensemble's estimates, pulls and the data."""
    import xarray

    prediction = solved.prediction
    variables = {**_predicted(prediction), **_measured(solved), **_pulls(solved), **_data(solved.run)}
    coordinates = {"contribution": list(prediction.contributions)} if prediction.contributions else {}
    about = {
        "kind": "finitewidth prediction",
        "version": finitewidth.__version__,
        "network": json.dumps(solved.run.network.to_dict()),
        "algorithm": repr(solved.run.algorithm),
        "order": prediction.order,
        "verdict": prediction.verdict,
    }
    return xarray.Dataset(variables, coords=coordinates, attrs=about)


def _predicted(prediction: AtBothOrders) -> dict[str, Any]:
    variables = _moments("infinite_width", prediction.infinite_width)
    if prediction.order == 1:
        variables |= _moments("finite_width", prediction)
        parts = np.stack(list(prediction.contributions.values()))
        variables["contributions"] = (("contribution", *_ONE), parts)
        variables["finite_width_mean_uncertainty"] = (_ONE, prediction.uncertainty)
        if prediction.gives_variance:
            variables["finite_width_variance_uncertainty"] = (_ONE, prediction.variance_uncertainty)
        if prediction.sampling is not None:
            variables["finite_width_mean_stderr"] = (_ONE, prediction.stderr)
            if prediction.gives_variance:
                variables["finite_width_variance"] = (_ONE, prediction.variance)
                variables["finite_width_variance_stderr"] = (_ONE, prediction.variance_stderr)
    return variables


def _moments(name: str, prediction: AtBothOrders) -> dict[str, Any]:
    variables: dict[str, Any] = {f"{name}_mean": (_ONE, prediction.mean)}
    if prediction.factors is not None:
        variables[f"{name}_covariance"] = (_TWO, prediction.covariance)
    return variables


def _measured(solved: SolvedRun) -> dict[str, Any]:
    if solved.ensemble is None or solved.measured is None:
        return {}
    return {
        "ensemble_mean": (_ONE, solved.measured.value),
        "ensemble_mean_stderr": (_ONE, solved.measured.stderr),
        "ensemble_covariance": (_TWO, solved.ensemble.covariance.value),
        "ensemble_covariance_stderr": (_TWO, solved.ensemble.covariance.stderr),
    }


def _pulls(solved: SolvedRun) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    for name, comparison in (("infinite_width", solved.infinite), ("finite_width", solved.finite)):
        if comparison is not None:
            variables[f"{name}_pulls"] = (_ONE, comparison.pulls)
            if comparison.covariance_pulls is not None:
                variables[f"{name}_covariance_pulls"] = (_TWO, comparison.covariance_pulls)
    return variables


def _data(run: TrainingRun) -> dict[str, Any]:
    variables = {}
    for name, array in data_arrays(run).items():
        sample, _, kind = name.partition("_")
        dimensions = input_dimensions(array) if kind == "inputs" else ("output",)
        variables[name] = ((sample, *dimensions), array)
    return variables
