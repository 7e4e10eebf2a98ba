"""Fresh problems that judge the uncertainty of predictions, chosen by theory before any network is trained.

    python benchmarks/calibration_fresh.py   adds to benchmarks/results/calibration_fresh.json

Candidates are drawn as the problems that chose the recipe. Theory says how far trained networks will spread,
and so how many of them bring their standard error down to a third of the stated uncertainty, of the mean and
of the variance. Each candidate takes the widest place at which it needs no more than the work of one problem;
one that fits nowhere, or is meaningless there, is left out. So every width is judged, and at each one the
problems with large uncertainties, since no ensemble of this size could judge the others. At widths from 64 on
hardly any candidate fits; those for such places have targets larger by the square root of width/32, since
networks learn features in proportion to targets squared over width.
"""

import itertools
import json
import warnings
from dataclasses import replace

import numpy as np
from calibration import fw, rms
from calibration_problems import FIRST, FLOWS, FRESH, JUDGES, LARGE_TARGETS, Case, case, members_for

NARROW, WIDE = {48: 6, 32: 6, 24: 5, 16: 5}, {256: 4, 128: 4, 96: 4, 64: 4}  # places by width
FLOW = {48: 2, 32: 2, 24: 2}
WORK = {256: 1.5e12, 128: 1e12, 96: 6e11, 64: 6e11}  # of an ensemble, by width
USUAL_WORK = 3e11
PRECISION = 3.0  # standard errors in an uncertainty
SPREAD_OF_VARIANCE = 1.8  # of the variance of one network, as the first problems had it
LEAST = 1000  # networks


def needed(prediction: fw.Prediction) -> int:
    """Networks whose standard errors are small enough, rms over outputs."""
    fluctuation = np.abs(prediction.variance_contributions["ntk_fluctuation"])
    spread = rms(np.sqrt(fluctuation))
    both = np.hypot(
        rms(np.sqrt(np.maximum(prediction.variance, 0))), rms(np.sqrt(prediction.infinite_width.variance))
    )
    of_mean = spread / rms(prediction.uncertainty)
    of_variance = SPREAD_OF_VARIANCE * spread * both / rms(prediction.variance_uncertainty)
    return int(np.ceil((PRECISION * max(of_mean, of_variance)) ** 2 / 500) * 500)


def place(one: Case, open_places: dict[int, int]) -> dict | None:
    """The widest open place that a candidate fits, with its number of networks."""
    prepared = fw.finite_width(one.net, *one.problem)
    for width in (width for width, free in open_places.items() if free):
        there = prepared.with_width(width).with_targets(case(one.number, width).Y_train)
        prediction = there.predict(one.algorithm)
        members = max(LEAST, needed(prediction))
        most = members_for(replace(one, net=there.net), WORK.get(width, USUAL_WORK))
        if members <= most and prediction.verdict != "meaningless":
            return {"number": one.number, "width": width, "members": members}
    return None


def fill(places: dict[int, int], first: int, chosen: list[dict], kind: type = object) -> None:
    """Candidates from a number on, with algorithms of a kind, until all places are taken."""
    open_places = dict(places)
    for number in itertools.count(first):
        one = case(number)
        if not isinstance(one.algorithm, kind):
            continue
        found = place(one, open_places)
        if found is not None:
            open_places[found["width"]] -= 1
            chosen.append(found)
            FRESH.write_text(json.dumps(chosen, indent=1))
        print(number, found, sum(open_places.values()), "places are open", flush=True)
        if not any(open_places.values()):
            return


def main() -> None:
    warnings.simplefilter("ignore")
    chosen: list[dict] = [one for one in json.loads(FRESH.read_text()) if one["number"] < JUDGES]
    fill(WIDE, LARGE_TARGETS, chosen)
    fill(NARROW, FIRST, chosen)
    fill(FLOW, FLOWS, chosen, fw.GradientFlow)  # of which the others have few


if __name__ == "__main__":
    main()
