"""Trained networks for the page: an ensemble that grows in stages, so that its curves appear early."""

import time
from collections.abc import Callable

import jax
import numpy as np

from finitewidth.core.run import Run
from finitewidth.experiment.ensemble.plan import Stepping
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.ensemble.training import train_ensemble
from finitewidth.interface.page import problem
from finitewidth.interface.page.answers import noted, texts
from finitewidth.interface.page.values import BadValues, Values

TRAINED_WIDTH, TRAINED_DEPTH = 256, 12  # the largest networks that the page trains
TIME_LIMIT = 120.0  # seconds of one training
BATCH = 16  # networks of the one compiled program that serves every stage, and of the first stage
_STAGES = (32, 4, 1)  # a stage trains 1/32, 1/4, all of the members, those of the stage before included
_BETWEEN_NEWS = 0.25  # seconds
_TRAINING_ERROR = 1e-7  # residuals of a few 1e-4, too small to be seen in a plot


def check(values: Values) -> None:
    """Refuse networks whose training would take too long."""
    errors = {}
    if values.width > TRAINED_WIDTH:
        errors["width"] = f"networks up to width {TRAINED_WIDTH} are trained here, got {values.width}."
    if values.depth > TRAINED_DEPTH:
        errors["depth"] = f"networks up to {TRAINED_DEPTH} layers are trained here, got {values.depth}."
    if errors:
        raise BadValues(errors)


def train(values: Values, tell: Callable[[dict], None]) -> None:
    """Tell mean and spread of the trained networks after every stage, and in between how much is done."""
    net, how = problem.network(values), problem.algorithm(values)
    x_train, y = problem.training_points(values)
    x = problem.compared(x_train)
    is_endless = values.algorithm == "flow"
    stages = sorted({max(BATCH, values.members // part) for part in _STAGES})
    for stage, members in enumerate(stages):
        # a compiled program belongs to a device: with the device named here, one program serves all stages
        with noted(UserWarning) as caught, jax.default_device(jax.local_devices()[0]):
            ensemble = train_ensemble(
                net,
                problem.inputs(x_train),
                y[:, None],
                problem.inputs(x),
                algorithm=how,
                members=members,
                key=0,
                method=Stepping(training_error=_TRAINING_ERROR if is_endless else None),
                run=Run(
                    batch_size=BATCH,
                    progress=_of_stage(tell, sum(stages[:stage]), sum(stages)),
                ),
            )
        about = {"members": members, "of": values.members, "notes": texts(caught)}
        tell({"result": {**_summary(x, ensemble), **about}})


def _of_stage(tell: Callable[[dict], None], before: int, total: int) -> Callable[[int, int], None]:
    seldom = told_seldom(tell)
    return lambda trained, _of: seldom(before + trained, total)


def told_seldom(tell: Callable[[dict], None]) -> Callable[[int, int], None]:
    """Tell the part of the whole work that is done, a few times a second at most."""
    last = 0.0

    def listen(trained: int, total: int) -> None:
        nonlocal last
        if time.monotonic() >= last + _BETWEEN_NEWS:
            last = time.monotonic()
            tell({"progress": trained / total})

    return listen


def _summary(x: np.ndarray, ensemble: Ensemble) -> dict:
    spread = ensemble.std[:, 0]
    spread_error = np.where(spread > 0, ensemble.std_stderr[:, 0], 0.0)
    return {
        "x": x.tolist(),
        "mean": ensemble.mean.value[:, 0].tolist(),
        "mean_error": ensemble.mean.stderr[:, 0].tolist(),
        "std": spread.tolist(),
        "std_error": spread_error.tolist(),
    }
