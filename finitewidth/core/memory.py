"""A check of free memory before a large computation begins."""

import psutil

_SMALL = 1 << 20  # bytes
_SHARE = 0.9  # of the free memory that may be used


def require_memory(
    needed: float, what: str, remedy: str, *, count: int | None = None, power: int | None = None
) -> None:
    """Refuse a request for more memory than the machine has free; small ones are not looked at.

    Where the need grows as this power of the number of inputs, "{fit}" in the remedy becomes the number that
    would fit.
    """
    if needed < _SMALL:
        return
    available = psutil.virtual_memory().available
    if needed > _SHARE * available:
        if count is not None and power is not None:
            fit = int(count * (_SHARE * available / needed) ** (1 / power))
            remedy = remedy.replace("{fit}", str(fit))
        sizes = f"{_gigabytes(needed)} GB but {_gigabytes(available)} GB of memory are free"
        raise ValueError(f"{what} needs {sizes}; {remedy}.")


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.0f}" if size >= 1e12 else f"{size / 1e9:.3g}"
