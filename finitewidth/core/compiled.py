"""Loops over numbers, compiled by Numba: one pass over memory, on vector units, on all cores.

Import it, and modules with compiled loops, inside the functions that call them: Numba takes half a second to
import. Numba keeps compiled code next to the source file, or in the user's cache, and compiles again if that
file has changed, not if another one has: loops stand in one file with the compiled functions that they call.
"""

import inspect
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import types
from numba.extending import intrinsic


def compiled(function: Callable) -> Any:
    """The function compiled at its first call, and found again by later processes."""
    bare = inspect.unwrap(function)  # without run-time checks of types, which cannot be compiled
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(bare)
    except RuntimeError:  # there is no directory that can be written to
        return njit(**options)(bare)


def _rounded_once(typing, x, y, z):
    """x y + z, rounded once: the same bits on every machine."""

    def build(context, builder, signature, values):
        return builder.fma(*values)

    return types.float64(types.float64, types.float64, types.float64), build


fma: Any = intrinsic(_rounded_once)
