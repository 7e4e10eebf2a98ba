"""Lengths of time in words."""

_UNITS = ((3600.0, "hours"), (86400.0, "days"))
_LONG = (10_000.0, 3 * 86400.0)  # seconds, from which a number of hours, or of days, says more
_YEAR = 365 * 86400.0


def spoken(seconds: float) -> str:
    """A time as people say it: 1600 s, 40 hours, 12 days, more than a year."""
    if seconds > _YEAR:
        return "more than a year"
    for (unit, name), long in reversed(list(zip(_UNITS, _LONG, strict=True))):
        if seconds >= long:
            return f"about {seconds / unit:.0f} {name}"
    return f"about {seconds:.0f} s"
