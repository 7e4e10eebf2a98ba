"""Fresh problems that judge the uncertainty of predictions, chosen by theory before any network is trained.

    python -m benchmarks.calibration.fresh   adds to benchmarks/calibration/results/fresh.json

Candidates are drawn as the problems that chose the recipe. Theory says how far trained networks will spread,
and so how many of them bring their standard error down to 0.4 of an expected remainder, of the mean and
of the variance. The stated uncertainty is not asked, since problems selected by it would have remainders that
are small beside it: the expectation is a rough product of corrections, with constants of its own. Each
candidate takes the widest place at which it needs no more than the work of one problem; one that fits
nowhere, whose corrections are larger than what they correct, or that theory refuses, is left out. So every
width is judged, and at each one the problems with large corrections, since no ensemble of this size could
judge the others. At widths from 64 on hardly any candidate fits; those for such places have targets larger by
the square root of width/32, since networks learn features in proportion to targets squared over width.
"""

import itertools
import json
import warnings
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.calibration.predictions import fw, rms
from benchmarks.calibration.problems import (
    FIRST,
    FLOWS,
    FRESH,
    JUDGES,
    LARGE_TARGETS,
    Case,
    case,
    members_for,
)

NARROW, WIDE = {48: 6, 32: 6, 24: 6, 16: 6}, {256: 2, 128: 2, 96: 2, 64: 3}  # places by width
FLOW = {48: 1, 32: 2, 24: 2}
WORK = {256: 1e12, 128: 6e11, 96: 5e11, 64: 3e11}  # of an ensemble, by width
USUAL_WORK = 1.5e11
CANDIDATES, WIDE_CANDIDATES = 80, 120  # for the places of one kind, at most
SHARE_OF_MEAN, SHARE_OF_VARIANCE = 0.12, 0.08  # of the product of corrections that is expected to remain
PRECISION = 2.5  # standard errors in an expected remainder
SPREAD_OF_VARIANCE = 1.8  # of the variance of one network, as the first problems had it
LEAST = 1000  # networks


@dataclass(frozen=True)
class Size:
    """Corrections of order 1/n in units of what they correct, rms over outputs."""

    correction: float
    before: float  # the absolute contributions, before they cancel

    @classmethod
    def of(cls, parts: dict[str, np.ndarray], unit: float) -> "Size":
        sizes = sum(np.abs(part) for part in parts.values())
        return cls(rms(sum(parts.values())) / unit, rms(sizes) / unit)

    @property
    def both(self) -> float:
        return float(np.hypot(4 * self.correction, self.before))


def needed(prediction: fw.records.Prediction, Y: np.ndarray) -> int | None:
    """Networks whose standard errors are small enough, rms over outputs; None where corrections are large."""
    y = rms(Y)
    spread = y**2 + rms(prediction.infinite_width.variance)
    mean = Size.of(prediction.contributions, y)
    variance = Size.of(prediction.variance_contributions, spread)
    if max(mean.correction, variance.correction) > 1:
        return None
    product = mean.before + variance.before
    fluctuation = np.abs(prediction.variance_contributions["ntk_fluctuation"])
    deviation = rms(np.sqrt(fluctuation))
    both = np.hypot(
        rms(np.sqrt(np.maximum(prediction.variance, 0))), rms(np.sqrt(prediction.infinite_width.variance))
    )
    of_mean = deviation / (SHARE_OF_MEAN * product * mean.both * y)
    of_variance = SPREAD_OF_VARIANCE * deviation * both
    of_variance /= SHARE_OF_VARIANCE * product * variance.both * spread
    return int(np.ceil((PRECISION * max(of_mean, of_variance)) ** 2 / 500) * 500)


def place(one: Case, open_places: dict[int, int]) -> dict | None:
    """The widest open place that a candidate fits, with its number of networks."""
    prepared = fw.prepare(one.net, *one.problem)
    for width in (width for width, free in open_places.items() if free):
        there = prepared.with_width(width).with_targets(case(one.number, width).Y_train)
        networks = needed(there.predict(one.algorithm), there.Y)
        most = members_for(replace(one, net=there.net), WORK.get(width, USUAL_WORK))
        if networks is not None and max(LEAST, networks) <= most:
            return {"number": one.number, "width": width, "members": max(LEAST, networks)}
    return None


def fill(
    places: dict[int, int], first: int, chosen: list[dict], kind: type = object, most: int = CANDIDATES
) -> None:
    """Candidates from a number on, with algorithms of a kind, until all places are taken or all are seen."""
    open_places = dict(places)
    candidates = (one for one in map(case, itertools.count(first)) if isinstance(one.algorithm, kind))
    for one in itertools.islice(candidates, most):
        try:
            found = place(one, open_places)
        except ValueError as refusal:  # of theory, before any network is trained: another one will do
            print(one.number, "is left out:", refusal, flush=True)
            continue
        if found is not None:
            open_places[found["width"]] -= 1
            chosen.append(found)
            FRESH.write_text(json.dumps(chosen, indent=1))
        print(one.number, found, sum(open_places.values()), "places are open", flush=True)
        if not any(open_places.values()):
            return


def main() -> None:
    warnings.simplefilter("ignore")
    chosen: list[dict] = [one for one in json.loads(FRESH.read_text()) if one["number"] < JUDGES]
    fill(NARROW, FIRST, chosen)
    fill(FLOW, FLOWS, chosen, fw.GradientFlow)  # of which the others have few
    fill(WIDE, LARGE_TARGETS, chosen, most=WIDE_CANDIDATES)


if __name__ == "__main__":
    main()
