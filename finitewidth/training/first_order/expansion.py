"""How large the corrections of order 1/n are and what they neglect, and a warning where that is not small."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from finitewidth.core.display.user_warnings import warn
from finitewidth.training.first_order.truncation import POSTERIOR, Units, depth_over_width, truncation_of
from finitewidth.training.infinite.gaussian import Expansion, Prediction, Truncation

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
    "the largest variance",
    "training NTK",
    "widen the network or separate the inputs",
)


def judged(prediction: Prediction, Y: np.ndarray, untrained: float) -> Prediction:
    """The same with what it neglects: measured by the largest target and the largest variance.

    Y are the targets and `untrained` is the largest variance before training, whose rounding errors count as
    zero.
    """
    scales = Units(np.abs(Y).max(initial=0.0), _largest(prediction, untrained))
    return _measured(
        prediction, truncation_of(prediction, Units.of_training(prediction, Y)), scales, untrained
    )


def judged_posterior(prediction: Prediction, untrained: float) -> Prediction:
    """The same of a posterior: measured by its standard deviation and variance at each output.

    A posterior states where outputs are and how surely. A mean that moves by a standard deviation, or a
    variance that doubles, is another statement, however small both are beside the targets.
    """
    variance = np.maximum(prediction.infinite_width.variance, _ROUNDING * untrained)
    units = Units(np.sqrt(variance), variance)
    return _measured(prediction, truncation_of(prediction, units, POSTERIOR), units, untrained)


def _measured(prediction: Prediction, neglected: Truncation, scales: Units, untrained: float) -> Prediction:
    """Corrections and uncertainties relative to these scales, one for all outputs or one for each."""
    expansion = expansion_of(prediction, neglected, scales, untrained)
    return replace(prediction, truncation=neglected, expansion=expansion)


def expansion_of(
    prediction: Prediction, neglected: Truncation, scales: Units, untrained: float = 0.0
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
    )


def _spread(
    prediction: Prediction, neglected: Truncation, of_variance: np.ndarray | float, untrained: float
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


def _largest(prediction: Prediction, untrained: float) -> float:
    """The largest variance, at infinite width or through order 1/n."""
    variances = [prediction.infinite_width.variance]
    if prediction.gives_variance:
        variances.append(prediction.variance)
    return max(*(float(part.max(initial=0.0)) for part in variances), _ROUNDING * untrained)


def _relative(corrections: np.ndarray, scale: np.ndarray | float) -> float:
    """The largest correction in units of a scale; zero where the scale is."""
    sizes = np.abs(corrections)
    relative = np.divide(sizes, scale, out=np.zeros_like(sizes), where=np.asarray(scale) > 0)
    return float(relative.max(initial=0.0))


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
    warn(
        f"{what} (depth over width {expansion.depth_over_width:.2g}, condition number of the "
        f"{wording.kernel} {_plain(condition)}); {remedy}.",
        ExpansionWarning,
    )


def _plain(number: float) -> str:
    """Two digits, as people write them."""
    return f"{float(f'{number:.2g}'):g}"
