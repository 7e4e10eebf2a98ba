r"""Fits to what order 1/n leaves over in networks of several widths, with orders that are not fitted.

Orders behind the fitted ones are expected to continue the known ones as a geometric series, as in Melendez et
al., *Quantifying correlated truncation errors in effective field theory* (2019), and take part in the fit
with this size as their standard deviation.

The ratio of the series is a width below which the expansion makes no sense: one width for all statistics of
the same networks. The largest ratio of successive orders of each of them estimates it, and is too large where
an order vanishes by accident, as a_1 of a variance may. Then another statistic gives the smaller ratio.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.experiment.scaling import Fall, fall_with_width

ORDERS = (2, 3)  # powers of 1/n that are fitted
NEXT = (4, 5, 6)  # powers of which only the size is expected


def falls_of_remainders(
    widths: Sequence[int], remainders: Mapping[str, Sequence[Estimate]], first: Mapping[str, np.ndarray]
) -> dict[str, Fall]:
    """Orders of the remainder of each statistic; `first` has coefficients of 1/n, from theory."""
    squares, ratios, bounds = {}, {}, {}
    for name, estimates in remainders.items():
        fitted = fall_with_width(widths, estimates, ORDERS)
        noise = np.stack([0 * first[name], *np.einsum("kk...->k...", fitted.errors)])
        seen = np.stack([first[name], *fitted.coefficients]) ** 2  # of a_1, a_2, a_3
        squares[name] = seen - noise
        ratios[name] = growth_of_orders(seen - noise, seen - noise, widths[-1])
        bounds[name] = growth_of_orders(seen - noise, seen + noise, widths[-1], unknown=widths[-1])
    falls = {}
    for name, estimates in remainders.items():
        growth = min([ratios[name], *(bound for other, bound in bounds.items() if other != name)])
        falls[name] = fall_with_width(widths, estimates, ORDERS, _expected(squares[name], growth))
    return falls


def _expected(squares: np.ndarray, growth: float) -> dict[int, np.ndarray]:
    """Sizes of the orders behind the fitted ones, entry by entry."""
    series = growth ** np.arange(len(squares)).reshape(-1, *[1] * (squares.ndim - 1))
    typical = np.sqrt(np.maximum(np.mean(squares / series**2, axis=0), squares[0] / len(squares)))
    return {k: typical * growth ** (k - 1) for k in NEXT}


def growth_of_orders(
    lower: np.ndarray, upper: np.ndarray, widest: float, unknown: float | None = None
) -> float:
    """The largest ratio of successive orders, over all outputs, at most the widest of the narrow widths.

    `lower` and `upper` are squares of what is divided by and of what is divided. Where noise hides the
    former, the ratio is `unknown`, or not counted.
    """
    small, large = (np.mean(part, axis=tuple(range(1, part.ndim))) for part in (lower, upper))
    ratios = [
        np.sqrt(max(b, 0.0) / a) if a > 0 else unknown for a, b in zip(small[:-1], large[1:], strict=True)
    ]
    known = [ratio for ratio in ratios if ratio is not None]
    return float(np.clip(max(known, default=widest), 1.0, widest))
