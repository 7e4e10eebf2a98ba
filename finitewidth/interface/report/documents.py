"""The documents that `solve` and `ensemble` print with --json and keep in summary.json."""

from pathlib import Path
from typing import Any

import finitewidth
from finitewidth.core.estimate import Estimate
from finitewidth.core.json_values import json_value
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.interface.runs.answers import agreements, conclusion, rows
from finitewidth.interface.runs.ensemble_runs import STORE, SUMMARY
from finitewidth.interface.runs.layer_summary import LayerSummary, Spread, Summary
from finitewidth.interface.runs.main_job import SolvedRun
from finitewidth.interface.runs.run_files import TrainingRun


def initialization_document(summary: Summary) -> dict[str, Any]:
    """Statistics at initialization, a few numbers for each layer."""
    run = summary.run
    return {
        "finitewidth": finitewidth.__version__,
        "command": "solve",
        "order": 0,
        "network": run.network.to_dict(),
        "data": {"source": run.source, "inputs": run.inputs.shape[0], "dimension": run.inputs[0].size},
        "error": summary.error,
        "layers": [_layer(layer) for layer in summary.layers],
    }


def _layer(layer: LayerSummary) -> dict[str, Any]:
    fields = vars(layer)
    return {name: vars(value) if isinstance(value, Spread) else value for name, value in fields.items()}


def solve_document(solved: SolvedRun) -> dict[str, Any]:
    """Prediction, ensemble and pulls."""
    run, prediction, ensemble = solved.run, solved.prediction, solved.ensemble
    return {
        "finitewidth": finitewidth.__version__,
        "command": "solve",
        "order": prediction.order,
        "network": run.network.to_dict(),
        "data": {
            "source": run.source,
            "train": len(run.X_train),
            "test": len(run.X_test),
            "dimension": run.X_train[0].size,
            "outputs": run.Y_train.shape[1],
        },
        "training": {"algorithm": repr(run.algorithm), "loss": repr(run.loss)},
        "theory": {
            "error": prediction.error,
            "condition": json_value(prediction.condition),
            "method": None if prediction.method is None else repr(prediction.method),
            "samples": None if prediction.sampling is None else prediction.sampling.samples,
            "verdict": None if prediction.expansion is None else prediction.verdict,
            "expansion": None if prediction.expansion is None else vars(prediction.expansion),
        },
        "ensemble": None if ensemble is None else _ensemble(ensemble, solved),
        "predictions": [vars(row) for row in rows(solved)],
        "contributions": json_value(prediction.contributions),
        "agreement": {name: vars(agreement) for name, agreement in agreements(solved).items()},
        "conclusion": conclusion(solved),
        "notes": list(solved.notes),
    }


def _ensemble(ensemble: Ensemble, solved: SolvedRun) -> dict[str, Any]:
    assert solved.run.options is not None
    controlled = ensemble.controlled
    return {
        "members": ensemble.members,
        "key": solved.run.options["key"],
        "diverged": ensemble.diverged,
        "unfinished": ensemble.unfinished,
        "loss": float(ensemble.loss.value[-1]),
        "loss_stderr": float(ensemble.loss.stderr[-1]),
        "variance_ratio": None if controlled is None else json_value(controlled.variance_ratio),
    }


def ensemble_document(run: TrainingRun, ensemble: Ensemble, target: Path) -> dict[str, Any]:
    """Estimates of an ensemble without theory."""
    return {
        "finitewidth": finitewidth.__version__,
        "command": "ensemble",
        "network": run.network.to_dict(),
        "algorithm": repr(run.algorithm),
        "loss_function": repr(run.loss),
        "members": ensemble.members,
        "diverged": ensemble.diverged,
        "unfinished": ensemble.unfinished,
        "points": [json_value(float(point)) for point in ensemble.points],
        "loss": _estimate(ensemble.loss),
        "mean": _estimate(ensemble.mean),
        "std": json_value(ensemble.std),
        "results": {"directory": str(target), "files": [STORE, SUMMARY]},
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": json_value(estimate.value), "stderr": json_value(estimate.stderr)}
