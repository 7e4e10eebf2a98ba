"""Warnings that point at the user's line, however many functions of the library stand between."""

import sys
import warnings
from types import FrameType

BETWEEN = (
    "finitewidth",
    "jaxtyping",
    "beartype",
    "contextlib",
    "functools",
    "importlib",
    "sklearn",
    "torch",
)  # the library, wrappers around it, and libraries that call it back


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line that is neither the library's own nor a wrapper's."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_between(frame):
        frame = frame.f_back
        level += not frame.f_code.co_filename.startswith("<frozen importlib")  # which warnings does not count
    warnings.warn(message, category, stacklevel=level)


def _is_between(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "").partition(".")[0]
    return module in BETWEEN or frame.f_code.co_filename.startswith("<@beartype")
