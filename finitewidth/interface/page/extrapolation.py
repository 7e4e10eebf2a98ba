"""The tab beyond order 1/n: narrow networks are trained, and their remainder is read at the asked width."""

from collections.abc import Callable

import jax
import numpy as np

from finitewidth.comparison.extrapolation import Extrapolation, extrapolate
from finitewidth.core.json_values import json_value
from finitewidth.core.run import Run
from finitewidth.interface.page import answers, problem
from finitewidth.interface.page.ensembles import BATCH, told_seldom
from finitewidth.interface.page.values import BadValues, Values

SHARES = (6, 8, 12)  # narrow widths over the depth: the expansion is in depth over width
_DRAWN = np.geomspace(1, 16, 25)  # widths of a curve, in units of the narrowest


def narrow_widths(depth: int) -> tuple[int, ...]:
    """Widths of the networks that are trained."""
    return tuple(share * depth for share in SHARES)


def check(values: Values) -> None:
    """Refuse networks without order 1/n, and those whose narrow versions are too deep to train here."""
    reason = answers.why_no_finite_width(problem.network(values))
    if reason:
        raise BadValues({"train": reason})
    if values.algorithm == "flow":
        raise BadValues(
            {"algorithm": "narrow networks are trained for a finite time here; choose another algorithm."}
        )


def beyond(values: Values, tell: Callable[[dict], None]) -> None:
    """Tell mean and spread with the orders behind 1/n, and in between how much is done."""
    x_train, y = problem.training_points(values)
    x = answers.positions(values.points, 0)
    widths = narrow_widths(values.depth)
    with answers.noted(UserWarning) as caught, jax.default_device(jax.local_devices()[0]):
        there = extrapolate(
            problem.network(values),
            problem.inputs(x_train),
            y[:, None],
            problem.inputs(x),
            algorithm=problem.algorithm(values),
            widths=widths,
            members=values.members,
            key=0,
            run=Run(batch_size=BATCH, progress=_over_widths(tell, len(widths))),
        )
        assert isinstance(there, Extrapolation)  # `check` refuses kinks
        result = _summary(x, there)
    about = {"members": values.members, "of": values.members, "notes": answers.texts(caught)}
    tell({"result": {**result, **about}})


def _over_widths(tell: Callable[[dict], None], count: int) -> Callable[[int, int], None]:
    """The progress of all widths, from that of one after the other."""
    finished = 0

    def listen(trained: int, of: int) -> None:
        nonlocal finished
        seldom(finished * of + trained, count * of)
        finished += trained == of

    seldom = told_seldom(tell)
    return listen


def _summary(x: np.ndarray, there: Extrapolation) -> dict:
    infinite = there.prediction.infinite_width
    shift = there.mean.value - infinite.mean
    place = int(np.argmax(np.abs(there.prediction.mean - infinite.mean)[:, 0]))
    std = there.std
    return {
        "x": x.tolist(),
        "shift": shift[:, 0].tolist(),
        "shift_error": there.mean.stderr[:, 0].tolist(),
        "std": json_value(std.value[:, 0]),  # none where a variance is below zero
        "std_error": json_value(std.stderr[:, 0]),
        "chi_square": float(np.median(there.chi_square["mean"])),
        "freedom": there.freedom,
        "over_width": {"x": float(x[place]), **_over_width(there, place)},
    }


def _over_width(there: Extrapolation, place: int) -> dict:
    """The shift of one mean against the width: theory, narrow networks and both together."""
    mean = there.prediction.infinite_width.mean[place, 0]
    narrowest = there.widths[0]
    widths = np.unique([*(narrowest * _DRAWN).round(), *there.widths, there.n]).astype(int).tolist()
    curve = [there.at(n) for n in widths]
    theory = {n: one.prediction.mean[place, 0] - mean for n, one in zip(widths, curve, strict=True)}
    return {
        "width": widths,
        "theory": [theory[n] for n in widths],
        "together": [float(one.mean.value[place, 0] - mean) for one in curve],
        "together_error": [float(one.mean.stderr[place, 0]) for one in curve],
        "narrow": {
            "width": list(there.widths),
            "shift": [theory[n] + float(one.value[place, 0]) for n, one in _narrow(there)],
            "error": [float(one.stderr[place, 0]) for _, one in _narrow(there)],
        },
    }


def _narrow(there: Extrapolation):
    return zip(there.widths, there.remainders["mean"], strict=True)
