"""Numbers as people write them."""

import math


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits: 110 and 0.012; powers of ten only beyond a million and below 1e-4."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    rounded = float(f"{value:.{digits}g}")
    if rounded == 0 or 1e-4 <= abs(rounded) < 1e6:
        return f"{rounded:.15g}"
    mantissa, _, power = f"{rounded:.{digits}g}".partition("e")
    if not power:  # a million and more with as many digits
        mantissa, _, power = f"{rounded:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"
