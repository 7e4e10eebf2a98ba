"""Answers of the page to its values, as plain numbers and sentences; the library computes all of them."""

import contextlib
import functools
import math
import re
import warnings
from collections.abc import Iterator, Sequence

import numpy as np

from finitewidth.core.json_values import json_value
from finitewidth.core.methods import Tensors
from finitewidth.critical.audit import Audit, audit
from finitewidth.interface.page import problem
from finitewidth.interface.page.values import BadValues, Values
from finitewidth.network.mlp import MLP
from finitewidth.theory.ratios import ratios
from finitewidth.theory.records import Theory
from finitewidth.theory.solve import solve
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.first_order.prepared import Prepared, prepare
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.spectrum import spectrum
from finitewidth.training.prediction import predict

SHOWN_RATIOS = ("V", "A", "B")
LEAST_COMPILATION = 0.02  # seconds from which a compiled program is kept for the next start of the page
REMEMBERED = 50e6  # bytes of four-leg averages, which serve other depths, learning rates and widths
FINITE_DEPTH = 12  # layers up to which bands at finite width are computed
FOUR_LEG_TOLERANCE = 1e-5  # too small to be seen in a plot
_ANY_WIDTH = 64  # statistics depend on ratios of widths only, so one preparation serves all widths
_LARGEST_SIGNAL = 30.0  # for larger K, averages over inputs take too long for a page
_SPAN_FOR_LOG = 20.0
# of each universality class, without the constants that fw.criticality(...).explanation names
_WHY = {
    "scale-invariant": "The activation is linear on each side of zero. At the critical C_W the kernel K "
    "keeps the value that the first layer gives it, and gradients keep their size.",
    "K*=0": "The activation is zero at zero, and its slope is not. At the critical point small signals "
    "keep their size, and K falls as a power of the layer: nothing is lost exponentially.",
    "half-stable": "At one value of K a layer keeps both norms and directions of signals. Other signals "
    "drift towards it from one side and away from it on the other; the first layer starts them there.",
    "unstable": "A layer keeps norms and directions of vanishing signals only; other signals grow.",
    "none": "No C_b and C_W keep both norms and directions of signals: choose another activation, or your "
    "own C_b and C_W.",
}
_VERDICT_WORDS = re.compile(r"^order 1/n is (trusted|doubtful|meaningless): ")


def theory(values: Values) -> dict:
    """Criticality in words, signals and ratios of fluctuations over depth, and infinitely wide networks."""
    net = problem.network(values)
    verdict = audit(net)
    answer: dict = {
        "critical": _criticality_in_words(net, verdict),
        "depth": _over_depth(net, verdict),
        "errors": {},
    }
    try:
        _check_signal(verdict)
        answer["regression"] = _infinite_width(net, values)
    except ValueError as error:
        field = "learning_rate" if str(error).startswith("learning_rate") else "regression"
        answer["errors"][field] = str(error)
    answer["finite_missing"] = why_no_finite_width(net)
    return answer


def finite(values: Values, part: int) -> dict:
    """Mean and spread through order 1/n at one part of the inputs and at the training points."""
    net = problem.network(values)
    reason = why_no_finite_width(net)
    if reason:
        raise BadValues({"finite": reason})
    check_signal(net)
    prepared = _statistics(net.replace(widths=(2, *[_ANY_WIDTH] * (net.depth - 1), 1)), values.points, part)
    _, y = problem.training_points(values)
    with noted(ExpansionWarning) as caught:
        prediction = (
            prepared.with_width(values.width).with_targets(y[:, None]).predict(problem.algorithm(values))
        )
    return {
        "part": part,
        "parts": len(problem.PARTS),
        **curve(positions(values.points, part), prediction),
        "verdict": prediction.verdict,
        "warning": warnings_in_words(caught),
    }


# --- criticality ---------------------------------------------------------------------------------------


def _criticality_in_words(net: MLP, verdict: Audit) -> dict:
    point = verdict.point
    return {
        "verdict": _state(net, verdict),
        "class": point.universality_class,
        "why": _WHY[point.universality_class],
        "C_b": point.C_b,
        "C_W": point.C_W,
        "findings": [_sentence(str(finding)) for finding in verdict.findings],
        "width": _ended(verdict.aspect_verdict),
        "advice": [_sentence(line) for line in verdict.advice],
    }


def _state(net: MLP, verdict: Audit) -> dict:
    lengths = verdict.correlation_length_parallel, verdict.correlation_length_perp
    chi = verdict.path.perpendicular
    last = float(chi[np.isfinite(chi)][-1]) if np.isfinite(chi).any() else math.inf
    fate = "vanish" if last < 1 else "explode"
    if all(map(math.isinf, lengths)):
        text = "No exponential in depth: signals and gradients change at most as a power of the layer."
        return {"state": "critical", "text": text}
    norms, directions = (_layers(length) for length in lengths)
    text = (
        f"Norms of signals change by a factor e in {norms}, gradients and angles in {directions} "
        f"(χ⊥ = {last:.3g} in the last layer, so gradients {fate} with depth)"
    )
    if not verdict.findings and 2 * min(lengths) > net.depth:
        return {"state": "close", "text": f"{text}: this network is not deep enough to tell."}
    return {"state": "off", "text": f"{text}."}


def _layers(length: float) -> str:
    return "infinitely many layers" if math.isinf(length) else f"{length:.3g} layers"


# --- over depth ----------------------------------------------------------------------------------------


def _over_depth(net: MLP, verdict: Audit) -> dict:
    path = verdict.path
    layers = list(range(1, net.depth + 1))
    critical = math.isinf(verdict.correlation_length_perp)
    answer = {
        "layer": layers,
        "K": json_value(path.K),
        "Theta": json_value(path.Theta),
        "log_layer": critical and net.depth >= 12,  # a power of depth is then a straight line
        "log_K": _spans(path.K),
        "log_Theta": _spans(path.Theta),
        "ratios": {},
        "missing": "",
    }
    try:
        one = solve(net, problem.inputs([0.0]))
    except ValueError as error:
        return {**answer, "missing": _sentence(str(error))}
    finite_K = [float(one.layer(l).G[0, 0]) for l in layers]
    finite_Theta = [float(one.layer(l).H[0, 0]) for l in layers]
    return {
        **answer,
        "finite_K": json_value(finite_K),
        "finite_Theta": json_value(finite_Theta),
        "ratios": _ratios(one, layers),
        "layer_over_width": [l / net.widths[1] for l in layers],
    }


def _ratios(one: Theory, layers: list[int]) -> dict[str, list]:
    reports = [{row.name: row.ratio for row in ratios(one.layer(l)).rows} for l in layers]
    return {name: json_value([report[name] for report in reports]) for name in SHOWN_RATIOS}


def _spans(values: np.ndarray) -> bool:
    """Whether a logarithmic axis is better: positive values over more than a decade."""
    finite_values = values[np.isfinite(values)]
    return bool(finite_values.min() > 0 and finite_values.max() > _SPAN_FOR_LOG * finite_values.min())


# --- the regression ------------------------------------------------------------------------------------


def _infinite_width(net: MLP, values: Values) -> dict:
    x, y = problem.training_points(values)
    X = problem.inputs(x)
    how = problem.algorithm(values)
    fastest = spectrum(net, X).largest_learning_rate
    shown = problem.curve(x)
    prediction = predict(net, X, y[:, None], problem.inputs(shown), algorithm=how, order=0)
    assert isinstance(prediction, Prediction)
    return {
        "train": {"x": json_value(x), "y": json_value(y)},
        "infinite": curve(shown, prediction),
        "largest_learning_rate": json_value(fastest),
    }


def curve(x, prediction: Prediction) -> dict:
    """Mean and spread with what order 1/n neglects; no spread where a variance is below zero."""
    parts = {
        "mean": prediction.mean,
        "uncertainty": prediction.uncertainty,
        "std": prediction.std,
        "std_uncertainty": prediction.std_uncertainty,
    }
    return json_value({"x": x, **{name: part[:, 0] for name, part in parts.items()}})


def positions(points: int, part: int) -> np.ndarray:
    """Inputs of one part, and the training points, which cost nothing extra."""
    return np.unique(np.concatenate([problem.training_inputs(points), problem.PARTS[part]]))


@functools.lru_cache(maxsize=64)
def _statistics(net: MLP, points: int, part: int) -> Prepared:
    return prepare(
        net,
        problem.inputs(problem.training_inputs(points)),
        np.zeros((points, 1)),
        problem.inputs(positions(points, part)),
        method=Tensors(tolerance=FOUR_LEG_TOLERANCE),
    )


def why_no_finite_width(net: MLP) -> str:
    """Why bands of trained networks at finite width are not computed here; empty if they are."""
    if net.kinked is not None:
        return (
            f"{net.kinked.name} has a kink, where the differentials of the NTK are infinite: training has no "
            "correction of order 1/n, so only infinite width is drawn. Real networks can be trained."
        )
    return why_too_deep(net)


def why_too_deep(net: MLP) -> str:
    """Why a network is too deep for finite width on a page; empty if it is not."""
    if net.depth <= FINITE_DEPTH:
        return ""
    return (
        f"The band at finite width is computed up to {FINITE_DEPTH} layers on this page, and this "
        f"network has {net.depth}; the library has no such limit."
    )


def check_signal(net: MLP) -> None:
    """Refuse networks whose averages take too long for a page."""
    _check_signal(audit(net))


def _check_signal(verdict: Audit) -> None:
    largest = float(verdict.path.K.max())
    if not largest <= _LARGEST_SIGNAL:
        raise ValueError(
            f"Signals grow to K = {largest:.3g}, beyond {_LARGEST_SIGNAL:g}, where averages take longer than "
            "this page allows; lower C_W, C_b or the depth."
        )


# --- sentences -----------------------------------------------------------------------------------------


def _sentence(text: str) -> str:
    text = _ended(text)
    return text[:1].upper() + text[1:]


@contextlib.contextmanager
def noted(kind: type[Warning]) -> Iterator[list[warnings.WarningMessage]]:
    """The warnings of a kind that are raised meanwhile, in a list that is filled on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", kind)
        yield caught


def texts(caught: Sequence[warnings.WarningMessage]) -> list[str]:
    """Different warnings as they are."""
    return sorted({str(one.message) for one in caught})


def warnings_in_words(caught: Sequence[warnings.WarningMessage]) -> str:
    """The different warnings about order 1/n, in sentences."""
    # without their first words, which are the verdict itself
    return " ".join(sorted({_sentence(_VERDICT_WORDS.sub("", text, count=1)) for text in texts(caught)}))


def _ended(text: str) -> str:
    text = " ".join(text.split())
    return text + ("" if text.endswith((".", "!", "?")) else ".")
