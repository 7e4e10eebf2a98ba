"""A check of free memory before a large computation begins."""

import psutil

_SMALL = 1 << 20  # bytes


def require_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse a request for more memory than the machine has free; small ones are not looked at."""
    if needed < _SMALL:
        return
    available = psutil.virtual_memory().available
    if needed > 0.9 * available:
        sizes = f"{_gigabytes(needed)} GB but {_gigabytes(available)} GB of memory are free"
        raise ValueError(f"{what} needs {sizes}; {remedy}.")


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.0f}" if size >= 1e12 else f"{size / 1e9:.3g}"
