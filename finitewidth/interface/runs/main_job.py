"""The main job: the prediction for a run, an ensemble of trained networks, and the pulls between them."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import finitewidth
from finitewidth.comparison.compare import PredictionComparison, Trained, compare
from finitewidth.comparison.control_variates import control_variate
from finitewidth.core.display.progress import Progress
from finitewidth.core.estimate import Estimate
from finitewidth.core.methods import LegByLeg, Sampling
from finitewidth.core.run import Run
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.ensemble.training import train_ensemble
from finitewidth.interface.runs.run_files import TrainingRun
from finitewidth.network.algorithms.abstract import check_algorithm
from finitewidth.training.first_order.chosen_method import DENSE
from finitewidth.training.first_order.learning_problem import check_network
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.prediction import predict
from finitewidth.training.replay.replayed import ReplayedPrediction
from finitewidth.training.replay.replaying import is_replayed


@dataclass(frozen=True, eq=False)
class SolvedRun:
    """A run with its prediction and, if it has an [ensemble], the trained networks and the pulls."""

    run: TrainingRun
    prediction: Prediction | ReplayedPrediction
    ensemble: Ensemble | None
    infinite: PredictionComparison | None  # pulls of infinite width
    finite: PredictionComparison | None  # pulls of order 1/n, if the run asks for that order
    notes: tuple[str, ...]  # warnings raised on the way

    @property
    def measured(self) -> Estimate | None:
        """The ensemble's mean on test inputs, with the control variate."""
        return None if self.ensemble is None else self.ensemble.best_mean


def check_run(run: TrainingRun) -> None:
    """Refuse, before any work, a run that the theory does not cover or whose results could not be kept."""
    if not run.loss.is_squared_error and run.order == 0:
        raise ValueError(
            f"[theory] order is 0, and means of infinitely wide networks with loss={run.loss!r} are not "
            "Gaussian; write order = 1, which has them too, or use `finitewidth ensemble`."
        )
    if run.options is not None and run.options["record"].members:
        raise ValueError("[record] members belongs to `finitewidth ensemble`; remove it.")
    _check_method(run)
    if run.order == 1:
        try:
            check_network(run.network)
            check_algorithm(run.algorithm, order=1)
        except ValueError as error:
            raise ValueError(f"[theory] order is 1, but {error}") from None


def _check_method(run: TrainingRun) -> None:
    """Refuse a method where there is nothing to choose."""
    if run.order == 0 and run.method is not None:
        raise ValueError(
            "[theory] order is 0, and a method belongs to order 1/n; remove it, or write order = 1."
        )


def predict_run(
    run: TrainingRun, store: Path | None = None, progress: Progress = False
) -> Prediction | ReplayedPrediction:
    """Theory at the order of the run, with the whole covariance if its tensors can be stored.

    What takes long, neurons and legs of many samples, is kept in `store`, task by task.
    """
    prediction = predict(
        run.network,
        run.X_train,
        run.Y_train,
        run.X_test,
        algorithm=run.algorithm,
        loss=run.loss,
        order=run.order,
        method=run.method,
        run=Run(store=store if _takes_long(run) else None, progress=progress),
    )
    assert isinstance(prediction, Prediction | ReplayedPrediction)  # of order 0 for the squared error alone
    return prediction


def _takes_long(run: TrainingRun) -> bool:
    """Whether order 1/n is drawn or contracted leg by leg."""
    by_itself = run.method is None and len(run.X_train) + len(run.X_test) > DENSE
    by_itself = by_itself or is_replayed(run.algorithm, run.loss)
    return run.order == 1 and (by_itself or isinstance(run.method, Sampling | LegByLeg))


def train_run(run: TrainingRun, store: Path, progress: Progress = None) -> Ensemble:
    """An ensemble of real networks, with a control variate; finished batches are kept in `store`."""
    data = (run.network, run.X_train, run.Y_train, run.X_test)
    control = control_variate(*data, run.algorithm, run.loss)
    return train_ensemble(
        *data,
        algorithm=run.algorithm,
        loss=run.loss,
        control=control,
        **run.options_at(store, progress),
    )


def compared_run(
    run: TrainingRun, prediction: Prediction | ReplayedPrediction, ensemble: Ensemble | None, notes: list[str]
) -> SolvedRun:
    """The run with its prediction, its ensemble, and the pulls at both orders."""
    infinite = finite = None
    if ensemble is not None:
        infinite = _compared(prediction.infinite_width, ensemble)
        finite = _compared(prediction, ensemble) if prediction.order == 1 else None
    return SolvedRun(run, prediction, ensemble, infinite, finite, tuple(notes))


def _compared(prediction: Trained, ensemble: Ensemble) -> PredictionComparison:
    comparison = compare(prediction, ensemble)
    assert isinstance(comparison, PredictionComparison)
    return comparison


def fingerprint(run: TrainingRun) -> str:
    """A name for the unfinished work of a run, which depends on the run and not on the name of its file."""
    about = {
        "version": finitewidth.__version__,
        "network": run.network.to_dict(),
        "tables": run.tables,
        "shapes": [run.X_train.shape, run.Y_train.shape, run.X_test.shape],
    }
    numbers = b"".join(array.tobytes() for array in (run.X_train, run.Y_train, run.X_test))
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode() + numbers).hexdigest()[:16]
