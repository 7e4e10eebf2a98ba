"""Loops over numbers, compiled by Numba: one pass over memory, on vector units, on all cores.

Import it, and modules with compiled loops, inside the functions that call them: Numba takes half a second to
import. Numba keeps compiled code next to the source file, or in the user's cache, and compiles again if that
file has changed, not if another one has: loops stand in one file with the compiled functions that they call.
"""

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic, models, register_model


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


# --- eight numbers at a time --------------------------------------------------------------------------
#
# Vector units are used by name where the compiler would not: in sums, whose order it must not change, and in
# loops that write to one of many arrays. All machines add in the same order.

LANES = 8
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


class _Lanes(types.Type):
    def __init__(self):
        super().__init__(name="Lanes")


_lanes = _Lanes()


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _VECTOR)


def _place(context, builder, kind, array, index):
    """A pointer to eight numbers of a contiguous array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


def _load(typing, array, index):
    """Eight numbers from a flat place of a contiguous array."""

    def build(context, builder, signature, values):
        return builder.load(_place(context, builder, signature.args[0], *values), align=8)

    return _lanes(array, types.intp), build


def _store(typing, array, index, lanes):
    """Write eight numbers to a flat place of a contiguous array."""

    def build(context, builder, signature, values):
        builder.store(values[2], _place(context, builder, signature.args[0], *values[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, _lanes), build


def _spread(typing, x):
    """One number eight times."""

    def build(context, builder, signature, values):
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), values[0], _number(0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), places)

    return _lanes(types.float64), build


def _product(typing, x, y):
    def build(context, builder, signature, values):
        return builder.fmul(*values)

    return _lanes(_lanes, _lanes), build


def _product_sum(typing, x, y, z):
    """x y + z, rounded once."""

    def build(context, builder, signature, values):
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = builder.module.globals.get(_FMA) or ir.Function(builder.module, kind, _FMA)
        return builder.call(function, values)

    return _lanes(_lanes, _lanes, _lanes), build


def _total(typing, x):
    """The sum of eight numbers, halves added to halves."""

    def build(context, builder, signature, values):
        sum_, half = values[0], LANES // 2
        while half:
            halves = (range(half), range(half, 2 * half))
            kind = ir.VectorType(ir.IntType(32), half)
            low, high = (builder.shuffle_vector(sum_, sum_, ir.Constant(kind, list(h))) for h in halves)
            sum_, half = builder.fadd(low, high), half // 2
        return builder.extract_element(sum_, _number(0))

    return types.float64(_lanes), build


def _number(value: int) -> ir.Constant:
    return ir.Constant(ir.IntType(32), value)


_FMA = f"llvm.fma.v{LANES}f64"
load: Any = intrinsic(_load)
store: Any = intrinsic(_store)
spread: Any = intrinsic(_spread)
product: Any = intrinsic(_product)
product_sum: Any = intrinsic(_product_sum)
total: Any = intrinsic(_total)
