"""The answers on test inputs: theory beside trained networks, row by row, and how well they agree."""

from dataclasses import dataclass

import numpy as np

from finitewidth.comparison.compare import PredictionComparison
from finitewidth.core.json_values import json_value
from finitewidth.interface.runs.main_job import SolvedRun
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.replay.replayed import ReplayedPrediction


@dataclass(frozen=True)
class Row:
    """One output on one test input; None for a number that the run does not have."""

    test: int  # counted from 1
    output: int
    label: str | None
    infinite_width: float
    infinite_width_std: float
    target: float | None = None
    finite_width: float | None = None
    finite_width_uncertainty: float | None = None  # of what is neglected, one standard deviation
    finite_width_stderr: float | None = None  # of the theory itself, where it was sampled
    finite_width_std: float | None = None  # also where the variance through order 1/n is below zero
    finite_width_std_uncertainty: float | None = None
    finite_width_std_stderr: float | None = None  # of the theory itself
    ensemble: float | None = None
    ensemble_stderr: float | None = None
    ensemble_std: float | None = None
    ensemble_std_stderr: float | None = None
    pull_infinite_width: float | None = None
    pull_finite_width: float | None = None
    deviation: float | None = None  # of order 1/n, by the standard error and the uncertainty together


@dataclass(frozen=True)
class Agreement:
    """The pulls of one order: root mean square and largest, of the mean and of the covariance."""

    mean_rms: float | None
    mean_largest: float | None
    covariance_rms: float | None
    covariance_largest: float | None


def columns(solved: SolvedRun) -> dict[str, np.ndarray]:
    """The numbers of all rows that the run has, by the names of the fields of a row, (M, n_L) each."""
    prediction, measured = solved.prediction, solved.measured
    leading, finite = prediction.infinite_width, prediction if prediction.order == 1 else None
    known = {
        "infinite_width": leading.mean,
        "infinite_width_std": leading.std,
        "target": solved.run.Y_test,
        "finite_width": finite and finite.mean,
        "finite_width_uncertainty": finite and finite.uncertainty,
        "finite_width_stderr": finite.stderr if finite and finite.sampling is not None else None,
        **_spreads(finite),
        "ensemble": measured and measured.value,
        "ensemble_stderr": measured and measured.stderr,
        "ensemble_std": solved.ensemble and solved.ensemble.std,
        "ensemble_std_stderr": solved.ensemble and solved.ensemble.std_stderr,
        "pull_infinite_width": solved.infinite and solved.infinite.pulls,
        "pull_finite_width": solved.finite and solved.finite.pulls,
        "deviation": solved.finite and solved.finite.deviations,
    }
    return {name: column for name, column in known.items() if column is not None}


def rows(solved: SolvedRun) -> list[Row]:
    """One row for every output on every test input."""
    numbers, labels = columns(solved), solved.run.labels
    result = []
    for a, i in np.ndindex(numbers["infinite_width"].shape):
        values = {name: json_value(column[a, i]) for name, column in numbers.items()}
        result.append(Row(a + 1, i + 1, labels[a] if labels else None, **values))
    return result


def _spreads(finite: Prediction | ReplayedPrediction | None) -> dict[str, np.ndarray | None]:
    """Spreads at order 1/n, what they neglect, and their standard errors where they were sampled."""
    if finite is None or not finite.gives_variance:
        return {}
    std, stderr = finite.std, None
    if finite.sampling is not None:
        stderr = finite.variance_stderr / np.where(std > 0, 2 * std, np.nan)
    return {
        "finite_width_std": std,
        "finite_width_std_uncertainty": finite.std_uncertainty,
        "finite_width_std_stderr": stderr,
    }


def agreements(solved: SolvedRun) -> dict[str, Agreement]:
    """The agreement of each order with the ensemble; empty without an ensemble."""
    comparisons = {"infinite_width": solved.infinite, "finite_width": solved.finite}
    return {name: _agreement(one) for name, one in comparisons.items() if one is not None}


def _agreement(comparison: PredictionComparison) -> Agreement:
    pulls, covariance = comparison.pulls, comparison.covariance_pulls
    if covariance is not None:  # it is symmetric: every pair counts once
        size = comparison.pulls.size
        covariance = covariance.reshape(size, size)[np.triu_indices(size)]
    return Agreement(*_size(pulls), *((None, None) if covariance is None else _size(covariance)))


def _size(pulls: np.ndarray) -> tuple[float | None, float | None]:
    """Root mean square and largest pull; None if a single member leaves no standard error."""
    return json_value(np.sqrt(np.mean(pulls**2))), json_value(np.abs(pulls).max())


def conclusion(solved: SolvedRun) -> str:
    """The order that is left out, in words, with the numbers that show whether it matters."""
    prediction = solved.prediction
    if solved.run.network.unknown_layer is not None:
        return (
            "Order 1/n is left out: it knows dense layers, activations and residual blocks of them only, "
            f"not the {solved.run.network.unknown_layer} of this network."
        )
    if prediction.expansion is None:
        return "Order 1/n is left out; order = 1 in [theory] includes it."
    moved = float(np.abs(prediction.mean - prediction.infinite_width.mean).max())
    text = (
        f"Order 1/n is {prediction.verdict}. It moves the mean by up to {moved:.2g} and leaves it uncertain "
        f"by up to {prediction.uncertainty.max():.2g}, one standard deviation of what is neglected"
    )
    if prediction.gives_variance and prediction.below_zero.any():
        where = f"{prediction.below_zero.sum()} of {prediction.mean.size} outputs"
        text = f"{text}. The variance through order 1/n is below zero at {where}, where no spread is given"
    if solved.measured is None:
        return f"{text}."
    smallest, largest = solved.measured.stderr.min(), solved.measured.stderr.max()
    return f"{text}. Standard errors of the ensemble are {smallest:.1g} to {largest:.1g}."
