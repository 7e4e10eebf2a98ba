r"""Trapezoid grids for products of four legs: how fine and how far they must be.

The trapezoid rule with step h misses a Gaussian integral by the Fourier transform of the integrand
at multiples of $2\pi/h$ (Poisson summation). The transform is measured for products of four legs
with the scales that they have along the axis: the poles of legs of equal scale coincide, which a
step chosen from single legs would not see. Away from the axis growing activations are larger, so
lines beside it are looked at as well.
"""

from collections.abc import Sequence

import numpy as np

from finitewidth.core.cores import on_all_cores
from finitewidth.gaussian.four_legs.families import Family
from finitewidth.gaussian.tower import Tower

_LARGEST_RADIUS = 40.0
_LARGEST_FREQUENCY = 400.0
_BESIDE = 1.5  # standard deviations beside the axis at which spectra are measured as well
_CHUNK = 30_000  # points of legs that are worth a task while spectra are measured


Towers = tuple[Tower, Tower, Tower, Tower]  # the activation of each leg, all up to the same derivative


def are_odd(towers: Towers) -> bool:
    """Whether all four legs are odd functions."""
    return all(tower.activation.is_odd for tower in towers)


def of_legs(towers: Sequence[Tower], z: np.ndarray, axis: int = 0) -> np.ndarray:
    """Derivatives along a new first axis, where each leg along `axis` of z has its own activation."""
    if all(tower is towers[0] for tower in towers):
        return towers[0](z)
    parts = zip(towers, np.moveaxis(z, axis, 0), strict=True)
    return np.stack([tower(part) for tower, part in parts], axis=axis + 1)


class Unreachable(Exception):
    """No grid or series here reaches the tolerance; the text names the one that fails."""


class TrapezoidSteps:
    """How far and how finely a Gaussian integral over products of four legs must be sampled."""

    def __init__(self, towers: Towers, dealt: tuple[Family, ...], largest: Sequence[float], tolerance: float):
        """Towers and largest variances of the four legs, and the orders that are dealt to them."""
        self.towers = towers
        alike = towers[2] is towers[3] and all((p, q, s, r) in dealt for p, q, r, s in dealt)
        self.orders = np.array([orders for orders in dealt if not alike or orders[2] >= orders[3]])
        self.tolerance = tolerance
        self.scales = np.sqrt(np.asarray(largest, dtype=float))
        self.scale = float(self.scales.max())
        self.radius = self._find_radius()
        self.highest_frequency = self._find_highest_frequency()
        self.finest_step = 2 * np.pi / self.highest_frequency

    def frequencies(self, scales: np.ndarray, deviations: np.ndarray) -> np.ndarray:
        """Lowest sampling frequencies that reach the tolerance, one for each row of four legs.

        A leg is scale * x along the axis and has the given deviation, with sign, across it.
        """
        trial = np.linspace(self.highest_frequency / 25, self.highest_frequency, 49)
        spectra = self._spectra(scales, trial)
        for beside in (_BESIDE,) if are_odd(self.towers) else (_BESIDE, -_BESIDE):
            spectra = np.maximum(spectra, self._spectra(scales, trial, beside * deviations))
        tails = np.maximum.accumulate(spectra[:, ::-1], axis=1)[:, ::-1]
        good = 2 * tails <= self.tolerance
        good[:, -1] = True  # legs of smaller scale are never harder than the hardest
        return trial[np.argmax(good, axis=1)]

    def _find_radius(self) -> float:
        radii = np.arange(1.0, _LARGEST_RADIUS, 0.05)
        z = np.concatenate([np.zeros(1), radii]) * self.scales[:, None]
        sizes = np.abs(of_legs(self.towers, np.concatenate([z, -z], axis=1)))
        sizes = np.maximum(*np.split(sizes, 2, axis=2))
        sizes = np.maximum.accumulate(sizes, axis=2)[:, :, 1:]  # (order, leg, radius)
        growth = np.ones((len(self.orders), radii.size))
        for leg in range(4):
            growth = growth * sizes[self.orders[:, leg], leg]
        small = np.exp(-(radii**2) / 2) * np.maximum(growth.max(axis=0), 1.0) < self.tolerance
        if not np.isfinite(sizes).all() or not small[-1]:
            raise ValueError(
                f"activation {self.towers[0].activation.name!r} grows too fast for a Gaussian average over "
                f"K with largest diagonal entry {self.scale**2:.3g}; scale the inputs or C_W down."
            )
        return float(radii[np.flatnonzero(~small)[-1] + 1]) if not small[0] else 1.0

    def _find_highest_frequency(self) -> float:
        top = 8.0
        while top <= _LARGEST_FREQUENCY:
            trial = np.linspace(top / 4, top, 61)
            legs = np.tile(self.scales, (3, 1))
            spectrum = self._spectra(legs, trial, legs * [[0.0], [_BESIDE], [-_BESIDE]]).max(axis=0)
            too_large = np.flatnonzero(2 * spectrum > self.tolerance)
            if too_large.size == 0:
                return float(trial[0])
            if too_large[-1] < 45:  # the tail has been seen to stay small
                return float(trial[too_large[-1] + 1])
            top *= 1.5
        raise Unreachable(
            f"it would need steps below {2 * np.pi / _LARGEST_FREQUENCY:.2g} standard deviations"
        )

    def _spectra(self, scales: np.ndarray, frequencies: np.ndarray, offsets: np.ndarray | None = None):
        """Largest transform over all arrangements of derivative orders, (rows, frequencies).

        Families have an even total parity: without offsets, products of odd activations are even.
        """
        from finitewidth.gaussian.four_legs.loops import lines

        step = 2 * np.pi / (2.2 * frequencies[-1])
        half, is_even = np.ceil(self.radius / step), offsets is None and are_odd(self.towers)
        x = np.arange(0 if is_even else -half, half + 1) * step
        gaussian = np.exp(-(x**2) / 2) * step / np.sqrt(2 * np.pi)
        angles = x[:, None] * frequencies
        if is_even:
            gaussian[1:] *= 2
            waves = np.cos(angles)
        else:
            waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        squares = np.empty((len(scales), len(frequencies)))
        offsets = np.broadcast_to(0.0 if offsets is None else offsets, scales.shape)

        def measure(start: int, stop: int) -> None:
            z = scales[start:stop, :, None] * x + offsets[start:stop, :, None]
            legs = of_legs(self.towers, z, axis=1)  # (order, row, leg, x)
            lines.largest_spectra(legs, gaussian, self.orders, waves, squares[start:stop])

        rows = 1 + _CHUNK // (4 * x.size)
        list(on_all_cores(lambda start: measure(start, start + rows), range(0, len(scales), rows)))
        return np.sqrt(squares)


def plane_grid(
    steps: Sequence[float] | np.ndarray, radius: float, is_odd: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Trapezoid nodes (points, axes) and weights for x ~ N(0, 1); a step of zero drops the axis.

    The total parity of every family is even, so an odd activation needs half of the plane only.
    """
    axes, weight = [], 1.0
    halve = is_odd and steps[0] > 0
    for number, step in enumerate(steps):
        if step == 0:
            axes.append(np.zeros(1))
            continue
        half = int(np.ceil(radius / step))
        axes.append((np.arange(0 if halve and number == 0 else -half, half) + 0.5) * step)
        weight *= step / np.sqrt(2 * np.pi)
    points = np.stack([axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    points = points[(points**2).sum(axis=1) <= radius**2]
    return points, np.exp(-(points**2).sum(axis=1) / 2) * weight * (2 if halve else 1)
