"""How large the corrections of order 1/n to a prediction are, and a warning where they are not small."""

import warnings

import numpy as np

from finitewidth.theory.ratios import WARNED
from finitewidth.training.infinite.gaussian import Expansion, Prediction

_ROUNDING = 1e-10
_NEGATIVE = 1e-6  # eigenvalues closer to zero than this may be rounding of the averages


class ExpansionWarning(UserWarning):
    """The expansion in 1/n has left its range: corrections are not small."""


def expansion_of(prediction: Prediction, Y: np.ndarray, untrained: float) -> Expansion:
    """The size of the corrections in a prediction of order 1.

    Y are the targets and `untrained` is the largest variance before training, whose rounding errors count as
    zero.
    """
    depth_over_width = sum(1 / n for n in prediction.net.ladder.widths[1:-1])
    infinite, scale = prediction.infinite_width, np.abs(Y).max(initial=0.0)
    shift = np.abs(prediction.mean - infinite.mean).max(initial=0.0)
    mean = float(shift / scale) if scale > 0 else 0.0
    if prediction.factors is None and prediction.averaged_variance is None:
        return Expansion(depth_over_width, mean, 0.0, 0.0)
    largest = max(infinite.variance.max(initial=0.0), _ROUNDING * untrained)
    if prediction.averaged_variance is not None:
        before = infinite.output_variance
        spread = np.abs(prediction.averaged_variance - before).max(initial=0.0)
        lowest = min(prediction.averaged_variance.min(initial=0.0), 0.0)
        return Expansion(depth_over_width, mean, float(spread / largest), float(lowest / largest))
    spread = np.abs(prediction.variance - infinite.variance).max(initial=0.0)
    eigenvalues = np.linalg.eigvalsh(prediction.covariance.reshape(prediction.mean.size, -1))
    return Expansion(depth_over_width, mean, float(spread / largest), float(eigenvalues[0] / largest))


def warn_of(
    expansion: Expansion, condition: float, *, kernel: str = "training NTK", stacklevel: int = 3
) -> None:
    """Warn where corrections are not small, or leave a covariance that no ensemble can have."""
    if expansion.size > WARNED:
        part = "mean" if expansion.mean >= expansion.covariance else "covariance"
        what = f"corrections of order 1/n to the {part} are {expansion.size:.2g} of what they correct"
        remedy = "widen the network or separate the inputs"
    elif expansion.lowest_eigenvalue < -_NEGATIVE:
        what = (
            f"the covariance through order 1/n has an eigenvalue of {expansion.lowest_eigenvalue:.2g} of the "
            "largest variance, below zero"
        )
        remedy = "widen the network"
    elif expansion.depth_over_width > WARNED:
        what = "the network is too narrow for its depth"
        remedy = "widen it"
    else:
        return
    warnings.warn(
        f"{what} (depth over width {expansion.depth_over_width:.2g}, condition number of the {kernel} "
        f"{condition:.1e}), beyond the range of the expansion; {remedy}.",
        ExpansionWarning,
        stacklevel=stacklevel,
    )
