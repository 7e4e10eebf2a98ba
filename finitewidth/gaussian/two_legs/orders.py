"""Pairs of derivative orders: which averages exist, and on which scale they live.

At a kink the derivative of order `jump_order` jumps, and the next one is a delta function. An average
with one delta function still exists; it is computed by integrating by parts.
"""

from finitewidth.network.layers.activation import HIGHEST_DERIVATIVE, Activation

Orders = tuple[int, int]


def existing(activation: Activation, orders) -> tuple[Orders, ...]:
    """The pairs of orders as whole numbers, or an error that names the one whose average does not exist."""
    pairs = tuple((int(a), int(b)) for a, b in orders)
    for asked, (a, b) in zip(orders, pairs, strict=True):
        if tuple(asked) != (a, b):
            raise ValueError(f"orders must be pairs of whole numbers, got {tuple(asked)}.")
        high, low = max(a, b), min(a, b)
        if not 0 <= low <= high <= HIGHEST_DERIVATIVE:
            raise ValueError(f"orders must lie between 0 and {HIGHEST_DERIVATIVE}, got {(a, b)}.")
        jump = activation.jump_order
        if high > jump + 1 or (high == jump + 1 and low > jump - 1):
            raise ValueError(
                f"the average of derivatives {(a, b)} does not exist for activation {activation.name!r}: its "
                f"derivative of order {int(jump)} jumps at z = {activation.kinks[0]:g}; use a smooth one."
            )
    return pairs


def has_delta(activation: Activation, orders: tuple[Orders, ...]) -> bool:
    """Whether a leg of some pair is a delta function."""
    return any(max(pair) > activation.jump_order for pair in orders)


def as_functions(activation: Activation, orders: tuple[int, ...]) -> tuple[int, ...]:
    """The orders, sorted, with that of a delta function replaced by the one below, which is a function."""
    return tuple(int(a) for a in sorted({min(order, activation.jump_order) for order in orders}))


def of_legs(orders: tuple[Orders, ...]) -> tuple[int, ...]:
    """All orders that occur in the pairs, sorted."""
    return tuple(sorted({order for pair in orders for order in pair}))


def leveled(activation: Activation, pair: Orders) -> Orders:
    """The orders whose scale an average lives on: by parts, a delta function takes its partner's slope."""
    a, b = sorted(pair, reverse=True)
    moved = (a - 1, b + 1) if a > activation.jump_order else (a, b)
    return moved if pair[0] >= pair[1] else (moved[1], moved[0])
