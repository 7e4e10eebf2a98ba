"""How large the corrections of order 1/n to a prediction are, and a warning where they are not small."""

import warnings
from typing import NamedTuple

import numpy as np

from finitewidth.theory.ratios import WARNED
from finitewidth.training.infinite.gaussian import Expansion, Prediction

_ROUNDING = 1e-10
_NEGATIVE = 1e-6  # eigenvalues closer to zero than this may be rounding of the averages


class ExpansionWarning(UserWarning):
    """The expansion in 1/n has left its range: corrections are not small."""


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


def expansion_of(prediction: Prediction, Y: np.ndarray, untrained: float) -> Expansion:
    """The size of the corrections to trained networks: by the largest target and the largest variance.

    Y are the targets and `untrained` is the largest variance before training, whose rounding errors count as
    zero.
    """
    return _measured(prediction, np.abs(Y).max(initial=0.0), _largest(prediction, untrained), untrained)


def expansion_of_posterior(prediction: Prediction, untrained: float) -> Expansion:
    """The size of the corrections to a posterior: by its standard deviation and variance at each output.

    A posterior states where outputs are and how surely. A mean that moves by a standard deviation, or a
    variance that doubles, is another statement, however small both are beside the targets.
    """
    variance = np.maximum(prediction.infinite_width.variance, _ROUNDING * untrained)
    return _measured(prediction, np.sqrt(variance), variance, untrained)


def _measured(
    prediction: Prediction, of_mean: np.ndarray | float, of_variance: np.ndarray | float, untrained: float
) -> Expansion:
    """Corrections relative to these scales, one for all outputs or one for each."""
    depth_over_width = sum(1 / n for n in prediction.net.ladder.widths[1:-1])
    infinite = prediction.infinite_width
    mean = _relative(prediction.mean - infinite.mean, of_mean)
    if not prediction.gives_variance:
        return Expansion(depth_over_width, mean, 0.0, 0.0)
    variance = _relative(prediction.variance - infinite.variance, of_variance)
    if prediction.factors is None:
        lowest = min(prediction.variance.min(initial=0.0), 0.0)
    else:
        lowest = np.linalg.eigvalsh(prediction.covariance.reshape(prediction.mean.size, -1))[0]
    return Expansion(depth_over_width, mean, variance, float(lowest / _largest(prediction, untrained)))


def _largest(prediction: Prediction, untrained: float) -> float:
    return max(prediction.infinite_width.variance.max(initial=0.0), _ROUNDING * untrained)


def _relative(corrections: np.ndarray, scale: np.ndarray | float) -> float:
    """The largest correction in units of a scale; zero where the scale is."""
    sizes = np.abs(corrections)
    relative = np.divide(sizes, scale, out=np.zeros_like(sizes), where=np.asarray(scale) > 0)
    return float(relative.max(initial=0.0))


def warn_of(
    expansion: Expansion, condition: float, *, wording: Wording = DESCENT, stacklevel: int = 3
) -> None:
    """Warn where corrections are not small, or leave a covariance that no ensemble can have."""
    negative = (
        f"the covariance through order 1/n has an eigenvalue of {_plain(expansion.lowest_eigenvalue)} of the "
        "largest variance, below zero"
    )
    if expansion.size > WARNED:
        part = "mean" if expansion.mean >= expansion.covariance else "covariance"
        unit = getattr(wording, part)
        what = f"corrections of order 1/n to the {part} are {_plain(expansion.size)} of {unit}"
        if expansion.lowest_eigenvalue < -_NEGATIVE:
            what += f", and {negative}"
        remedy = wording.remedy
    elif expansion.lowest_eigenvalue < -_NEGATIVE:
        what, remedy = negative, "widen the network"
    elif expansion.depth_over_width > WARNED:
        what = "the network is too narrow for its depth"
        remedy = "widen it"
    else:
        return
    warnings.warn(
        f"{what} (depth over width {expansion.depth_over_width:.2g}, condition number of the "
        f"{wording.kernel} {condition:.1e}), beyond the range of the expansion; {remedy}.",
        ExpansionWarning,
        stacklevel=stacklevel,
    )


def _plain(number: float) -> str:
    """Two digits, as people write them."""
    return f"{float(f'{number:.2g}'):g}"
