r"""Which narrow widths an extrapolation trains: a wider one as long as it is worth its cost.

Narrow networks are cheap, but orders behind the fit are large in them. Both parts of the error are known
before a further width is trained: its standard error follows from those that were seen, which fall as
$n^{-1/2}$, and the sizes of orders from the fit. Cost is counted, never measured, so that the same key always
chooses the same widths.

Networks can be too narrow for any fit: where order 1/n is meaningless the series does not converge, and
coefficients that are fitted there are small and agree with each other without being those of the series.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.experiment.scaling import Fall

START = (24, 32, 48)
WIDER = (64, 96, 128, 192, 256, 384, 512)
MOST = 5  # widths; each is a program to compile
SHARE = 0.5  # a narrow network has at most this share of the width that was asked for
WORTH = 0.8  # of error² x cost, which must fall at least so far: estimates of the gain are rough
OVERHEAD = 1000  # what training costs beside arithmetic, in parameters of a network

FITTED = len(START)  # widths of a fit that can be judged

Remainders = Mapping[str, Sequence[Estimate]]
Fit = Callable[[Sequence[int], Remainders, Mapping[str, np.ndarray]], dict[str, Fall]]


def wider_width(
    fit: Fit,
    widths: Sequence[int],
    remainders: Remainders,
    first: Mapping[str, np.ndarray],
    n: int,
    parameters: Callable[[int], int],
) -> int | None:
    """The width to train next for the smallest error² x cost at width n; None if these widths are enough."""
    candidates = [m for m in WIDER if widths[-1] < m <= SHARE * n]
    if not candidates or len(widths) >= MOST:
        return None
    price = lambda ns: sum(parameters(m) + OVERHEAD for m in ns)  # noqa: E731
    now = _error(fit, widths, remainders, first, n) * price(widths)
    if not now > 0:  # outputs that never vary
        return None
    prices = {
        m: _error(fit, [*widths, m], _foreseen(fit, widths, remainders, first, m), first, n)
        * price([*widths, m])
        for m in candidates
    }
    best = min(candidates, key=lambda m: prices[m])
    return best if prices[best] < WORTH * now else None


def too_narrow(widths: Sequence[int], meaningless: Callable[[int], bool]) -> tuple[int, ...]:
    """The widths from which the series cannot be learned; `meaningless` judges order 1/n at a width.

    Fits that begin at START are judged by benchmarks, also where order 1/n is meaningless at its narrowest
    widths, as long as it is not at the widest.
    """
    narrow = tuple(n for n in widths if meaningless(n))
    return narrow if max(widths) in narrow else tuple(n for n in narrow if n < START[0])


def wide_enough(meaningless: Callable[[int], bool]) -> tuple[int, ...] | None:
    """The cheapest successive widths that are not too narrow; None if no width that is chosen will do."""
    every = (*START, *WIDER)
    sets = (every[i : i + FITTED] for i in range(len(every) - FITTED + 1))
    return next((widths for widths in sets if not too_narrow(widths, meaningless)), None)


def _error(fit: Fit, widths, remainders: Remainders, first, n: int) -> float:
    """Mean squares of the errors of mean and variance at width n, multiplied so that units do not matter."""
    squares = [np.mean(np.square(fall.at(n).stderr)) for fall in fit(widths, remainders, first).values()]
    return float(np.prod(squares) ** (1 / len(squares)))


def _foreseen(fit: Fit, widths, remainders: Remainders, first, m: int) -> dict[str, list[Estimate]]:
    """Remainders with those that the fit foresees at a further width, as noisy as networks there would be."""
    falls, narrowing = fit(widths, remainders, first), (widths[-1] / m) ** 0.5
    return {
        name: [*estimates, Estimate(falls[name].at(m).value, narrowing * estimates[-1].stderr)]
        for name, estimates in remainders.items()
    }
