"""How large the corrections of order 1/n are and what they neglect, and a warning where that is not small."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from finitewidth.core.display.user_warnings import warn
from finitewidth.training.infinite.gaussian import Expansion, Prediction, Truncation
from finitewidth.training.infinite.spreads import AtBothOrders
from finitewidth.training.neglected.truncation import Units, depth_over_width

_ROUNDING = 1e-10
_NEGATIVE = 1e-6  # eigenvalues closer to zero than this may be rounding of the averages


class ExpansionWarning(UserWarning):
    """The expansion in 1/n is not to be trusted: what it neglects is not small.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)  # the verdict says the same
        fw.predict(net, X, Y, X_test).verdict
    ```
    """


class Wording(NamedTuple):
    """What a warning says corrections are measured by, and what helps."""

    mean: str
    covariance: str
    kernel: str
    remedy: str


DESCENT = Wording(
    "the largest target",
    "the largest variance before training",
    "training NTK",
    "widen the network or separate the inputs",
)


def judged(
    prediction: Prediction, neglected: Truncation, Y: np.ndarray, untrained: float, places: np.ndarray
) -> Prediction:
    """The same with what it neglects: measured by the largest target and the variance before training.

    Y are the targets, `untrained` is the largest variance of a training point before training, and `places`
    says of each test input where it lies. The scales belong to the problem, not to what is asked about.
    """
    scales = Units(np.abs(Y).max(initial=0.0), untrained)
    return _measured(prediction, neglected, scales, untrained, places)


def judged_posterior(
    prediction: Prediction, neglected: Truncation, untrained: float, places: np.ndarray
) -> Prediction:
    """The same of a posterior: measured by its standard deviation and variance at each output.

    A posterior states where outputs are and how surely. A mean that moves by a standard deviation, or a
    variance that doubles, is another statement, however small both are beside the targets.
    """
    variance = np.maximum(prediction.infinite_width.variance, _ROUNDING * untrained)
    return _measured(prediction, neglected, Units(np.sqrt(variance), variance), untrained, places)


def _measured(
    prediction: Prediction, neglected: Truncation, scales: Units, untrained: float, places: np.ndarray
) -> Prediction:
    """Corrections and uncertainties relative to these scales, one for all outputs or one for each."""
    expansion = expansion_of(prediction, neglected, scales, untrained, places)
    return replace(prediction, truncation=neglected, expansion=expansion)


def expansion_of(
    prediction: AtBothOrders,
    neglected: Truncation,
    scales: Units,
    untrained: float = 0.0,
    places: np.ndarray | None = None,
) -> Expansion:
    """How large corrections are and what they neglect, in units of these scales."""
    spread, lowest, unsure = _spread(prediction, neglected, scales.variance, untrained)
    return Expansion(
        depth_over_width(prediction.net),
        _relative(prediction.mean - prediction.infinite_width.mean, scales.mean),
        spread,
        lowest,
        _relative(neglected.mean, scales.mean),
        unsure,
        _decisive(neglected, scales, places),
    )


def _decisive(neglected: Truncation, scales: Units, places: np.ndarray | None) -> str:
    """The number whose uncertainty is the largest in units of its scale, by where it lies."""
    if not neglected.mean.size:
        return ""
    parts = {"mean": _in_units(neglected.mean, scales.mean)}
    if neglected.variance is not None:
        parts["variance"] = _in_units(neglected.variance, scales.variance)
    name = max(parts, key=lambda name: parts[name].max())
    sample = np.unravel_index(parts[name].argmax(), parts[name].shape)[0]
    return f"the {name}" if places is None else f"the {name} {places[sample]}"


def _spread(
    prediction: AtBothOrders, neglected: Truncation, of_variance: np.ndarray | float, untrained: float
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Of the covariance: the largest correction, the lowest eigenvalue and the largest uncertainty."""
    if not prediction.gives_variance or neglected.variance is None:
        return None, None, None
    infinite, largest = prediction.infinite_width, _largest(prediction, untrained)
    correction = _relative(prediction.variance - infinite.variance, of_variance)
    if prediction.factors is None:
        lowest = min(prediction.variance.min(initial=0.0), 0.0)
    else:
        lowest = np.linalg.eigvalsh(prediction.covariance.reshape(prediction.mean.size, -1))[0]
    return correction, float(lowest / largest), _relative(neglected.variance, of_variance)


def _largest(prediction: AtBothOrders, untrained: float) -> float:
    """The largest variance, at infinite width or through order 1/n."""
    variances = [prediction.infinite_width.variance]
    if prediction.gives_variance:
        variances.append(prediction.variance)
    return max(*(float(part.max(initial=0.0)) for part in variances), _ROUNDING * untrained)


def _relative(corrections: np.ndarray, scale: np.ndarray | float) -> float:
    """The largest correction in units of a scale; zero where the scale is."""
    return float(_in_units(corrections, scale).max(initial=0.0))


def _in_units(values: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    return np.divide(np.abs(values), scale, out=np.zeros_like(values), where=np.asarray(scale) > 0)


def warn_of(expansion: Expansion, condition: float, *, wording: Wording = DESCENT) -> None:
    """Warn where order 1/n is not to be trusted, or leaves a covariance that no ensemble can have."""
    lowest = expansion.lowest_eigenvalue or 0.0
    negative = (
        f"the covariance through order 1/n has an eigenvalue of {_plain(lowest)} of the largest variance, "
        "below zero"
    )
    indefinite = lowest < -_NEGATIVE
    if expansion.verdict != "trusted":
        of_mean = expansion.mean_uncertainty >= (expansion.covariance_uncertainty or 0.0)
        part, size = ("mean", expansion.mean) if of_mean else ("covariance", expansion.covariance or 0.0)
        what = (
            f"order 1/n is {expansion.verdict}: it moves the {part} by {_plain(size)} of "
            f"{getattr(wording, part)} and leaves it uncertain by {_plain(expansion.uncertainty)} of that"
        )
        if indefinite:
            what += f", and {negative}"
        remedy = wording.remedy
    elif indefinite:
        what, remedy = negative, "widen the network"
    else:
        return
    decides = f"; {expansion.decided_by} decides" if expansion.decided_by else ""
    warn(
        f"{what} (depth over width {expansion.depth_over_width:.2g}, condition number of the "
        f"{wording.kernel} {_plain(condition)}{decides}); {remedy}.",
        ExpansionWarning,
    )


def _plain(number: float) -> str:
    """Two digits, as people write them."""
    return f"{float(f'{number:.2g}'):g}"
