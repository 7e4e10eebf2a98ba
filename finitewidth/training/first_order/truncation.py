r"""What a prediction through order 1/n neglects, from the sizes of its contributions before they cancel.

The contributions of order 1/n to an output add up to a correction, often a small difference of large numbers.
Order $1/n^2$ consists of their products, so that their size before they cancel counts. With $S$ the sum of
their absolute values at an output, $\bar S$ its mean square over the outputs and $s = \bar S / \text{scale}$,

$$\sigma = c\, s\, \sqrt{S^2 + \bar S^2},$$

where the scale is that of the targets, or of the variance at infinite width. The constants were chosen with
one half of a set of random problems and judged by the other half (`benchmarks/calibration.py`,
docs/uncertainty.md).
"""

from collections.abc import Iterable

import numpy as np

from finitewidth.training.infinite.gaussian import Prediction, Truncation

MEAN = 0.35
VARIANCE = 0.35


def truncation_of(
    prediction: Prediction, of_mean: np.ndarray | float, of_variance: np.ndarray | float
) -> Truncation:
    """One standard deviation of what is neglected; the scales are one for all outputs, or one for each."""
    mean = neglected(prediction.contributions.values(), of_mean, MEAN)
    sampled = None if prediction.sampling is None else prediction.sampling.variance
    if sampled is not None:
        infinite, parts = prediction.infinite_width, [part.value for part in sampled.contributions.values()]
        kernels = prediction.output_variance - infinite.output_variance - sum(parts)
        largest = float(np.max(of_variance))
        return Truncation(mean, output_variance=neglected([kernels, *parts], largest, VARIANCE))
    if prediction.factors is None:
        return Truncation(mean)
    spread = neglected(prediction.variance_contributions.values(), of_variance, VARIANCE)
    below_zero = np.maximum(-prediction.variance, 0.0)  # by so much at least it is wrong
    return Truncation(mean, np.maximum(spread, below_zero))


def neglected(
    contributions: Iterable[np.ndarray], scale: np.ndarray | float, factor: float
) -> np.ndarray:
    """The recipe for one set of contributions, of the shape of each of them."""
    size = sum(np.abs(part) for part in contributions)
    assert isinstance(size, np.ndarray)  # there are contributions at order 1
    scale = np.broadcast_to(np.asarray(scale, dtype=float), size.shape)
    relative = np.divide(size, scale, out=np.zeros_like(size), where=scale > 0)
    common = np.sqrt(np.mean(relative**2))
    return factor * common * np.hypot(size, common * scale)
