"""What the page shows for its values, as plain numbers and sentences; all of it is asked of the library."""

import functools
import math
import warnings

import numpy as np

from finitewidth.critical.audit import Audit, audit
from finitewidth.interface.page import problem
from finitewidth.interface.page.values import BadValues, Values
from finitewidth.network.mlp import MLP
from finitewidth.theory.ratios import ratios
from finitewidth.theory.records import Theory
from finitewidth.theory.solve import solve
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.first_order.statistics import FiniteWidth, finite_width
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.spectrum import spectrum
from finitewidth.training.prediction import predict

SHOWN_RATIOS = ("V", "A", "B")
FINITE_DEPTH = 12  # layers up to which bands at finite width are computed
_FOUR_LEG_TOLERANCE = 1e-5  # far below what a plot shows
_ANY_WIDTH = 64  # statistics know ratios of widths only, so one preparation serves all widths
_LARGEST_SIGNAL = 30.0  # K beyond which averages over inputs take too long for a page
_SPAN_FOR_LOG = 20.0


def theory(values: Values) -> dict:
    """Criticality in words, signals over depth, ratios of fluctuations and infinitely wide networks."""
    net = problem.network(values)
    found = audit(net)
    answer: dict = {
        "values": values.to_dict(),
        "critical": _criticality_in_words(net, found),
        "depth": _over_depth(net, found),
        "errors": {},
    }
    try:
        _check_signal(found)
        answer["regression"] = _infinite_width(net, values)
    except ValueError as error:
        field = "learning_rate" if str(error).startswith("learning_rate") else "regression"
        answer["errors"][field] = str(error)
    answer["finite_missing"] = _why_no_finite_width(net)
    return answer


def finite(values: Values, part: int) -> dict:
    """Mean and spread through order 1/n at some of the inputs and at the training points."""
    net = problem.network(values)
    reason = _why_no_finite_width(net)
    if reason:
        raise BadValues({"finite": reason})
    _check_signal(audit(net))
    prepared = _statistics(net.replace(widths=(2, *[_ANY_WIDTH] * (net.depth - 1), 1)), values.points, part)
    _, y = problem.training_points(values)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExpansionWarning)
        prediction = (
            prepared.with_width(values.width).with_targets(y[:, None]).predict(problem.algorithm(values))
        )
    assert prediction.expansion is not None
    return {
        "part": part,
        "parts": len(problem.PARTS),
        **_curve(_positions(values.points, part), prediction),
        "size": _number(prediction.expansion.size),
        "warning": " ".join(sorted({_sentence(str(one.message)) for one in caught})),
    }


# --- criticality ---------------------------------------------------------------------------------------


def _criticality_in_words(net: MLP, found: Audit) -> dict:
    point = found.point
    return {
        "verdict": _verdict(net, found),
        "class": point.universality_class,
        "why": _sentence(point.explanation),
        "C_b": point.C_b,
        "C_W": point.C_W,
        "findings": [_sentence(str(finding)) for finding in found.findings],
        "width": _sentence(found.aspect_verdict),
        "advice": [_sentence(line) for line in found.advice],
    }


def _verdict(net: MLP, found: Audit) -> dict:
    lengths = found.correlation_length_parallel, found.correlation_length_perp
    chi = found.path.perpendicular
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
    if not found.findings and 2 * min(lengths) > net.depth:
        return {"state": "close", "text": f"{text}: this network is not deep enough to tell."}
    return {"state": "off", "text": f"{text}."}


def _layers(length: float) -> str:
    return "no number of layers" if math.isinf(length) else f"{length:.3g} layers"


# --- over depth ----------------------------------------------------------------------------------------


def _over_depth(net: MLP, found: Audit) -> dict:
    path = found.path
    layers = list(range(1, net.depth + 1))
    critical = math.isinf(found.correlation_length_perp)
    answer = {
        "layer": layers,
        "K": _numbers(path.K),
        "Theta": _numbers(path.Theta),
        "log_layer": critical and net.depth >= 12,  # a power of depth is a straight line then
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
        "finite_K": _numbers(finite_K),
        "finite_Theta": _numbers(finite_Theta),
        "ratios": _ratios(one, layers),
        "layer_over_width": [l / net.widths[1] for l in layers],
    }


def _ratios(one: Theory, layers: list[int]) -> dict[str, list]:
    reports = [{row.name: row.ratio for row in ratios(one.layer(l)).rows} for l in layers]
    return {name: _numbers([report[name] for report in reports]) for name in SHOWN_RATIOS}


def _spans(values: np.ndarray) -> bool:
    """Whether a logarithmic axis shows more: positive values over more than a decade."""
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
        "train": {"x": _numbers(x), "y": _numbers(y)},
        "infinite": _curve(shown, prediction),
        "largest_learning_rate": _number(fastest),
    }


def _curve(x, prediction: Prediction) -> dict:
    return {"x": _numbers(x), "mean": _numbers(prediction.mean[:, 0]), "std": _numbers(prediction.std[:, 0])}


def _positions(points: int, part: int) -> np.ndarray:
    """Inputs of a part and the training points, which cost nothing more."""
    return np.unique(np.concatenate([problem.training_inputs(points), problem.PARTS[part]]))


@functools.lru_cache(maxsize=192)
def _statistics(net: MLP, points: int, part: int) -> FiniteWidth:
    return finite_width(
        net,
        problem.inputs(problem.training_inputs(points)),
        np.zeros((points, 1)),
        problem.inputs(_positions(points, part)),
        four_leg_tolerance=_FOUR_LEG_TOLERANCE,
    )


def _why_no_finite_width(net: MLP) -> str:
    activation = net.activation
    if not activation.is_smooth:
        return (
            f"{activation.name} has a kink, where the differentials of the NTK are infinite: training has no "
            "correction of order 1/n, so only infinite width is drawn. Real networks can be trained."
        )
    if net.depth > FINITE_DEPTH:
        return (
            f"The band at finite width is computed up to {FINITE_DEPTH} layers on this page, and this "
            f"network has {net.depth}; fw.predict has no such limit."
        )
    return ""


def _check_signal(found: Audit) -> None:
    largest = float(found.path.K.max())
    if not largest <= _LARGEST_SIGNAL:
        raise ValueError(
            f"Signals grow to K = {largest:.3g}, beyond {_LARGEST_SIGNAL:g}, where averages take longer than "
            "this page allows; lower C_W, C_b or the depth."
        )


# --- plain numbers and sentences -----------------------------------------------------------------------


def _number(value) -> float | None:
    """JSON has no infinity: null stands for it."""
    return float(value) if math.isfinite(value) else None


def _numbers(values) -> list[float | None]:
    return [_number(value) for value in values]


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
