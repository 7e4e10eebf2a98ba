"""Which networks `speed.py` measures, with how many inputs, and the targets."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.architectures.networks import (
    FLATTEN,
    GLOBAL,
    convolutions,
    myrtle,
    pooled,
    residual_perceptron,
    wide_residual_network,
)


class Row(NamedTuple):
    """One calculation of K and Theta at the output."""

    name: str
    network: str  # as JSON
    N: int
    target: float = 0.0  # how many times faster than neural-tangents it must be

    @property
    def case(self) -> tuple[str, int]:
        return self.network, self.N

    def __str__(self) -> str:
        return f"{self.name}, N = {self.N}"


class Plan(NamedTuple):
    """Which rows are measured."""

    both: tuple[Row, ...]
    alone: tuple[Row, ...]  # finitewidth only: activations of which neural-tangents has no kernel
    memory: tuple[Row, ...]
    growth: dict[str, tuple[float, tuple[tuple[float, Row], ...]]]  # expected exponent, and size and row


def full_plan() -> Plan:
    flat, averaged = "5 convolutions, Flatten", "5 convolutions, GlobalAveragePool"
    eight, large = functools.partial(convolutions, 8, 1), functools.partial(convolutions, 32, 3)
    residual = Row("residual MLP, depth 20", residual_perceptron(20), 1000, 3)
    both = (
        Row(f"{flat}, 8x8", eight(FLATTEN), 200, 3),
        Row(f"{flat}, 32x32x3", large(FLATTEN), 100, 3),
        Row(f"{averaged}, 8x8", eight(GLOBAL), 100, 5),
        Row(f"{averaged}, 8x8", eight(GLOBAL), 200, 5),
        Row(f"{averaged}, 32x32x3", large(GLOBAL), 4),
        Row("Myrtle-5, 8x8", myrtle(8), 100, 5),
        Row("2 convolutions, AveragePool 2x2, Flatten, 32x32x3", pooled(32, 3), 4, 100),
        Row("wide residual network, 8x8x3", wide_residual_network(8), 50),
        residual,
    )
    return Plan(both, _alone(8, 100, 20, 1000), (both[0], both[1], both[3], both[5], residual), _growth(1))


def quick_plan() -> Plan:
    both = (
        Row("3 convolutions, Flatten, 8x8", convolutions(8, 1, FLATTEN, count=3), 20),
        Row("3 convolutions, GlobalAveragePool, 4x4", convolutions(4, 1, GLOBAL, count=3), 20),
        Row("2 convolutions, AveragePool 2x2, Flatten, 8x8x3", pooled(8, 3), 4),
        Row("wide residual network, 4x4x3", wide_residual_network(4), 6),
        Row("residual MLP, depth 6", residual_perceptron(6), 100),
    )
    return Plan(both, _alone(4, 20, 10, 50), both[1:2], _growth(4))


def _alone(side: int, flat: int, averaged: int, dense: int) -> tuple[Row, ...]:
    rows = []
    for activation in ("tanh", "user"):
        rows += [
            Row(f"{activation}, Flatten, {side}x{side}", convolutions(side, 1, FLATTEN, activation), flat),
            Row(
                f"{activation}, GlobalAveragePool, {side}x{side}",
                convolutions(side, 1, GLOBAL, activation),
                averaged,
            ),
            Row(f"{activation}, residual MLP, depth 20", residual_perceptron(20, activation), dense),
        ]
    return tuple(rows)


def _growth(divisor: int) -> dict:
    """Rows of relu networks whose cost should grow as a power of N or of the number of positions P."""

    def row(end: dict, side: int, N: int) -> Row:
        return Row(f"{end['kind']}, {side}x{side}", convolutions(side, 1, end), N)

    return {
        "N, Flatten, 8x8": (2, _sized((200, 400, 800), divisor, lambda N: (N, row(FLATTEN, 8, N)))),
        "N, GlobalAveragePool, 8x8": (2, _sized((50, 100, 200), divisor, lambda N: (N, row(GLOBAL, 8, N)))),
        "P, Flatten, N = 100": (1, _sized((16, 24, 32), divisor, lambda s: (s * s, row(FLATTEN, s, 100)))),
        "P, GlobalAveragePool, N = 20": (
            2,
            _sized((8, 12, 16), divisor, lambda s: (s * s, row(GLOBAL, s, 20))),
        ),
    }


def _sized(sizes: tuple[int, ...], divisor: int, sized: Callable) -> tuple:
    return tuple(sized(size // divisor) for size in sizes)
