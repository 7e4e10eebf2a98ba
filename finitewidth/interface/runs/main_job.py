"""The main job: what theory predicts of trained networks, what an ensemble measures, and the pulls."""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import finitewidth
from finitewidth.comparison.compare import PredictionComparison, compare, control_variate
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.ensemble.training import train_ensemble
from finitewidth.interface.runs.reading import TrainingRun
from finitewidth.network.algorithms.abstract import check_algorithm
from finitewidth.training.first_order.problem import check_network
from finitewidth.training.first_order.statistics import DENSE
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.prediction import predict


@dataclass(frozen=True, eq=False)
class Outcome:
    """A run and what came of it; without [ensemble] there is nothing to compare."""

    run: TrainingRun
    prediction: Prediction
    ensemble: Ensemble | None
    infinite: PredictionComparison | None  # pulls of infinite width
    finite: PredictionComparison | None  # pulls of order 1/n, where it was asked for
    notes: tuple[str, ...]  # warnings on the way

    @property
    def measured(self) -> Estimate | None:
        """The ensemble's mean on test inputs, with the control variate."""
        if self.ensemble is None:
            return None
        controlled = self.ensemble.controlled
        return self.ensemble.mean if controlled is None else controlled.mean


@dataclass(frozen=True)
class Row:
    """One output on one test input; None where there is nothing to say."""

    test: int  # counted from 1
    output: int
    label: str | None
    target: float | None
    infinite_width: float
    infinite_width_std: float
    finite_width: float | None
    finite_width_std: float | None
    ensemble: float | None
    ensemble_stderr: float | None
    ensemble_std: float | None
    ensemble_std_stderr: float | None
    pull_infinite_width: float | None
    pull_finite_width: float | None


@dataclass(frozen=True)
class Agreement:
    """Pulls of one order in two numbers each."""

    mean_rms: float | None
    mean_largest: float | None
    covariance_rms: float | None
    covariance_largest: float | None


def check_run(run: TrainingRun) -> None:
    """Refuse, before any work, what the theory does not know or the results could not hold."""
    if not run.loss.is_squared_error:
        raise ValueError(
            "[training] loss: solve compares means and covariances, which the theory knows for 'mse'; "
            "use it, or train without theory by `finitewidth ensemble`."
        )
    if run.options is not None and run.options.get("keep_members"):
        raise ValueError("[ensemble] keep_members belongs to `finitewidth ensemble`; remove it, or use that.")
    if run.order == 1:
        try:
            check_network(run.network)
            check_algorithm(run.algorithm, order=1)
        except ValueError as error:
            raise ValueError(f"[theory] order is 1, but {error}") from None


def predict_run(run: TrainingRun) -> Prediction:
    """Theory at the order that the run asks for; the whole covariance where its tensors can be stored."""
    found = predict(
        run.network,
        run.X_train,
        run.Y_train,
        run.X_test,
        algorithm=run.algorithm,
        order=run.order,
        four_leg_tolerance=run.tolerance,
        covariance=len(run.X_train) + len(run.X_test) <= DENSE,
    )
    assert isinstance(found, Prediction)  # the loss is the squared one
    return found


def train_run(run: TrainingRun, store: Path) -> Ensemble:
    """Real networks beside the theory; finished batches are kept in `store`."""
    assert run.options is not None
    data = (run.network, run.X_train, run.Y_train, run.X_test)
    control = control_variate(*data, run.algorithm)
    return train_ensemble(
        *data, algorithm=run.algorithm, loss=run.loss, control=control, store=store, **run.options
    )


def outcome_of(
    run: TrainingRun, prediction: Prediction, ensemble: Ensemble | None, notes: list[str]
) -> Outcome:
    """The run with its pulls at both orders."""
    infinite = finite = None
    if ensemble is not None:
        infinite = _compared(prediction.infinite_width, ensemble)
        finite = _compared(prediction, ensemble) if prediction.order == 1 else None
    return Outcome(run, prediction, ensemble, infinite, finite, tuple(notes))


def _compared(prediction: Prediction, ensemble: Ensemble) -> PredictionComparison:
    found = compare(prediction, ensemble)
    assert isinstance(found, PredictionComparison)
    return found


def fingerprint(run: TrainingRun) -> str:
    """The same for the same run, whatever its file is called: under it unfinished work is found again."""
    about = {
        "version": finitewidth.__version__,
        "network": run.network.to_dict(),
        "tables": run.tables,
        "shapes": [run.X_train.shape, run.Y_train.shape, run.X_test.shape],
    }
    numbers = b"".join(array.tobytes() for array in (run.X_train, run.Y_train, run.X_test))
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode() + numbers).hexdigest()[:16]


# --- what tables, figures and documents say -----------------------------------------------------------


def rows(outcome: Outcome) -> list[Row]:
    """Every output on every test input."""
    run, prediction, measured = outcome.run, outcome.prediction, outcome.measured
    leading, finite = prediction.infinite_width, prediction if prediction.order == 1 else None
    columns = {
        "target": run.Y_test,
        "finite_width": finite and finite.mean,
        "finite_width_std": finite.std if finite and finite.factors is not None else None,
        "ensemble": measured and measured.value,
        "ensemble_stderr": measured and measured.stderr,
        "ensemble_std": outcome.ensemble and outcome.ensemble.std,
        "ensemble_std_stderr": outcome.ensemble and outcome.ensemble.std_stderr,
        "pull_infinite_width": outcome.infinite and outcome.infinite.pulls,
        "pull_finite_width": outcome.finite and outcome.finite.pulls,
    }
    infinite, spread = leading.mean, leading.std
    samples, outputs = infinite.shape
    return [
        Row(
            test=a + 1,
            output=i + 1,
            label=run.labels[a] if run.labels else None,
            infinite_width=float(infinite[a, i]),
            infinite_width_std=float(spread[a, i]),
            **{name: None if column is None else plain(column[a, i]) for name, column in columns.items()},
        )
        for a in range(samples)
        for i in range(outputs)
    ]


def agreements(outcome: Outcome) -> dict[str, Agreement]:
    """By order; empty without an ensemble."""
    found = {"infinite_width": outcome.infinite, "finite_width": outcome.finite}
    return {name: _agreement(comparison) for name, comparison in found.items() if comparison is not None}


def _agreement(comparison: PredictionComparison) -> Agreement:
    pulls, covariance = comparison.pulls, comparison.covariance_pulls
    if covariance is not None:  # symmetric: every pair counts once
        size = comparison.pulls.size
        covariance = covariance.reshape(size, size)[np.triu_indices(size)]
    return Agreement(*_size(pulls), *((None, None) if covariance is None else _size(covariance)))


def _size(pulls: np.ndarray) -> tuple[float | None, float | None]:
    """Root mean square and largest; None where one member leaves no standard error."""
    return plain(np.sqrt(np.mean(pulls**2))), plain(np.abs(pulls).max())


def conclusion(outcome: Outcome) -> str:
    """What is left out, in a sentence, with the numbers that it is judged by."""
    prediction = outcome.prediction
    if prediction.expansion is None:
        return "Left out is order 1/n; it comes with order = 1 in [theory]."
    moved = float(np.abs(prediction.mean - prediction.infinite_width.mean).max())
    ratio = prediction.expansion.depth_over_width
    text = (
        f"Order 1/n moves the mean by up to {moved:.2g}. Left out is order 1/n^2, about depth/width "
        f"= {ratio:.2g} times that, {ratio * moved:.1g}, times a number of order one"
    )
    if outcome.measured is None:
        return f"{text}."
    smallest, largest = outcome.measured.stderr.min(), outcome.measured.stderr.max()
    return f"{text}; standard errors of the ensemble are {smallest:.1g} to {largest:.1g}."


def document(outcome: Outcome) -> dict[str, Any]:
    """What --json prints and summary.json holds."""
    run, prediction, ensemble = outcome.run, outcome.prediction, outcome.ensemble
    return {
        "finitewidth": finitewidth.__version__,
        "command": "solve",
        "order": prediction.order,
        "network": run.network.to_dict(),
        "data": {
            "source": run.source,
            "train": len(run.X_train),
            "test": len(run.X_test),
            "dimension": run.X_train.shape[1],
            "outputs": run.Y_train.shape[1],
        },
        "training": {"algorithm": repr(run.algorithm), "loss": repr(run.loss)},
        "theory": {
            "error": prediction.error,
            "condition": plain(prediction.condition),
            "expansion": None if prediction.expansion is None else vars(prediction.expansion),
        },
        "ensemble": None if ensemble is None else _ensemble_part(ensemble, outcome),
        "predictions": [vars(row) for row in rows(outcome)],
        "contributions": {name: plain(part) for name, part in prediction.contributions.items()},
        "agreement": {name: vars(found) for name, found in agreements(outcome).items()},
        "conclusion": conclusion(outcome),
        "notes": list(outcome.notes),
    }


def _ensemble_part(ensemble: Ensemble, outcome: Outcome) -> dict[str, Any]:
    assert outcome.run.options is not None
    return {
        "members": ensemble.members,
        "key": outcome.run.options["key"],
        "diverged": ensemble.diverged,
        "unfinished": ensemble.unfinished,
        "loss": float(ensemble.loss.value[-1]),
        "loss_stderr": float(ensemble.loss.stderr[-1]),
        "variance_ratio": None if ensemble.controlled is None else plain(ensemble.controlled.variance_ratio),
    }


def plain(value: Any) -> Any:
    """Numbers and lists; None where JSON has no number."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return float(value) if math.isfinite(value) else None
