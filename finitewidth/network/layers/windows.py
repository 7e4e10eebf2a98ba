"""Windows that slide over positions: which inputs each output of a convolution or a pool sees."""

from typing import NamedTuple

import numpy as np

from finitewidth.core.inputs import as_number
from finitewidth.network.layers.abstract import Shape

Padding = str | int | tuple
PADDINGS = ("same", "valid", "circular")


class Axis(NamedTuple):
    """A window that slides along one axis of positions."""

    size: int  # positions that come in
    taps: int
    stride: int
    low: int  # positions padded in front
    output: int  # positions that go out
    circular: bool  # whether positions beyond an end are those at the other end; otherwise zeros

    @property
    def high(self) -> int:
        """Positions padded behind, negative where the last ones are not seen."""
        return (self.output - 1) * self.stride + self.taps - self.size - self.low

    def sources(self) -> tuple[np.ndarray, np.ndarray]:
        """The input position of every output and tap (output, taps), and whether it is inside."""
        places = np.arange(self.output)[:, None] * self.stride + np.arange(self.taps)[None, :] - self.low
        inside = np.full(places.shape, True) if self.circular else (places >= 0) & (places < self.size)
        return places % self.size, inside


def axes(
    kind: str, shape: Shape, window: int | tuple, stride: int | tuple, padding: Padding
) -> tuple[Axis, ...]:
    """The windows along all axes of positions of samples of this shape, or an error that names `kind`."""
    count = len(shape) - 1
    if count not in (1, 2):
        raise ValueError(
            f"{kind} needs samples with one or two axes of positions before the channels, got shape {shape}; "
            "use input_shape=(T, C) or (H, W, C)."
        )
    windows = _for_each_axis(kind, "filter" if kind == "Conv" else "window", window, count)
    strides = _for_each_axis(kind, "stride", stride, count)
    pads = padding if isinstance(padding, str) else _for_each_axis(kind, "padding", padding, count)
    return tuple(
        _axis(kind, size, taps, step, pads if isinstance(pads, str) else pads[place])
        for place, (size, taps, step) in enumerate(zip(shape[:-1], windows, strides, strict=True))
    )


def _axis(kind: str, size: int, taps: int, stride: int, padding) -> Axis:
    if padding in ("same", "circular"):
        output = -(-size // stride)
        total = max((output - 1) * stride + taps - size, 0)
        return Axis(size, taps, stride, total // 2, output, padding == "circular")
    low, high = (0, 0) if padding == "valid" else (padding, padding) if isinstance(padding, int) else padding
    room = size + low + high - taps
    if room < 0:
        raise ValueError(
            f"{kind} has a window of {taps} positions, but with padding only {size + low + high} come in; "
            "make it smaller or pad more."
        )
    return Axis(size, taps, stride, low, room // stride + 1, False)


def as_sizes(name: str, value) -> int | tuple[int, ...]:
    """A whole number, or one for each axis."""
    if isinstance(value, list | tuple):
        if len(value) not in (1, 2):
            raise ValueError(f"{name} must be a number or one for each axis, got {value!r}.")
        return tuple(_as_size(name, part, 1) for part in value)
    return _as_size(name, value, 1)


def as_padding(value) -> Padding:
    """A word, a number, or for each axis a number or a pair (before, after)."""
    if isinstance(value, str):
        if value not in PADDINGS:
            words = ", ".join(map(repr, PADDINGS))
            raise ValueError(f"padding must be {words}, a number or pairs of numbers, got {value!r}.")
        return value
    if not isinstance(value, list | tuple):
        return _as_size("padding", value, 0)
    if len(value) not in (1, 2):
        raise ValueError(f"padding must be a number, or a number or pair for each axis, got {value!r}.")
    return tuple(_as_pad(part) for part in value)


def _as_pad(part) -> int | tuple[int, int]:
    if not isinstance(part, list | tuple):
        return _as_size("padding", part, 0)
    if len(part) != 2:
        raise ValueError(f"padding of an axis must be a number or a pair (before, after), got {part!r}.")
    return _as_size("padding", part[0], 0), _as_size("padding", part[1], 0)


def _as_size(name: str, value, lowest: int) -> int:
    number = as_number(value)
    if not (number == number // 1 and lowest <= number < 2**31):
        raise ValueError(f"{name} must be a whole number of at least {lowest}, got {value!r}.")
    return int(number)


def _for_each_axis(kind: str, name: str, value, count: int) -> tuple:
    if not isinstance(value, tuple):
        return (value,) * count
    if len(value) != count:
        raise ValueError(
            f"{kind} has {name}={value} for {count} axes of positions; give one number, or one for each axis."
        )
    return value
