r"""Trapezoid grids for products of four legs: how fine and how far they must be.

The trapezoid rule with step h misses a Gaussian integral by the Fourier transform of the integrand
at multiples of $2\pi/h$ (Poisson summation). The transform is measured for products of four legs
with the scales that they have along the axis: the poles of legs of equal scale coincide, which a
step chosen from single legs would not see. Away from the axis growing activations are larger, so
lines beside it are looked at as well.
"""

from collections.abc import Sequence

import numpy as np

from finitewidth.gaussian.four_legs.families import Family, arrangements
from finitewidth.gaussian.tower import Tower

_LARGEST_RADIUS = 40.0
_LARGEST_FREQUENCY = 400.0
_BESIDE = 1.5  # standard deviations beside the axis at which spectra are measured as well
_CHUNK = 3_000_000  # numbers held at once while spectra are measured


class Unreachable(Exception):
    """No grid or series here reaches the tolerance; the text names the one that fails."""


class TrapezoidSteps:
    """How far and how finely a Gaussian integral over products of four legs must be sampled."""

    def __init__(self, tower: Tower, families: tuple[Family, ...], largest_variance: float, tolerance: float):
        self.tower = tower
        self.orders = np.array([orders for orders in arrangements(families) if orders[2] >= orders[3]])
        self.families = np.array(families)
        self.tolerance = tolerance
        self.scale = float(np.sqrt(largest_variance))
        self.radius = self._find_radius()
        self.highest_frequency = self._find_highest_frequency()
        self.finest_step = 2 * np.pi / self.highest_frequency

    def frequencies(self, scales: np.ndarray, deviations: np.ndarray) -> np.ndarray:
        """Lowest sampling frequencies that reach the tolerance, one for each row of four legs.

        A leg is scale * x along the axis and has the given deviation, with sign, across it.
        """
        trial = np.linspace(self.highest_frequency / 25, self.highest_frequency, 49)
        spectra = self._spectra(scales, trial)
        for beside in (_BESIDE,) if self.tower.activation.is_odd else (_BESIDE, -_BESIDE):
            spectra = np.maximum(spectra, self._spectra(scales, trial, beside * deviations))
        tails = np.maximum.accumulate(spectra[:, ::-1], axis=1)[:, ::-1]
        good = 2 * tails <= self.tolerance
        good[:, -1] = True  # legs of smaller scale are never harder than the hardest
        return trial[np.argmax(good, axis=1)]

    def _find_radius(self) -> float:
        radii = np.arange(1.0, _LARGEST_RADIUS, 0.05)
        z = np.concatenate([np.zeros(1), radii]) * self.scale
        sizes = np.abs(self.tower(np.concatenate([z, -z])))
        sizes = np.maximum(*np.split(sizes, 2, axis=1))
        sizes = np.maximum.accumulate(sizes, axis=1)[:, 1:]
        growth = np.maximum(sizes[self.families].prod(axis=1).max(axis=0), 1.0)
        small = np.exp(-(radii**2) / 2) * growth < self.tolerance
        if not np.isfinite(sizes).all() or not small[-1]:
            raise ValueError(
                f"activation {self.tower.activation.name!r} grows too fast for a Gaussian average over "
                f"K with largest diagonal entry {self.scale**2:.3g}; scale the inputs or C_W down."
            )
        return float(radii[np.flatnonzero(~small)[-1] + 1]) if not small[0] else 1.0

    def _find_highest_frequency(self) -> float:
        top = 8.0
        while top <= _LARGEST_FREQUENCY:
            trial = np.linspace(top / 4, top, 61)
            legs = np.full((3, 4), self.scale)
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

    def _spectra(self, scales: np.ndarray, frequencies: np.ndarray, offsets: np.ndarray | float = 0.0):
        """Largest transform over all arrangements of derivative orders, (rows, frequencies)."""
        step = 2 * np.pi / (2.2 * frequencies[-1])
        x = np.arange(-np.ceil(self.radius / step), np.ceil(self.radius / step) + 1) * step
        gaussian = np.exp(-(x**2) / 2) * step / np.sqrt(2 * np.pi)
        angles = x[:, None] * frequencies
        waves = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
        spectra = np.empty((len(scales), len(frequencies)))
        offsets = np.broadcast_to(offsets, scales.shape)
        rows = max(1, _CHUNK // (len(self.orders) * x.size))
        for start in range(0, len(scales), rows):
            part = slice(start, start + rows)
            legs = self.tower(scales[part, :, None] * x + offsets[part, :, None])  # (order, row, leg, x)
            products = gaussian * legs[self.orders[:, 0], :, 0]
            for leg in range(1, 4):
                products = products * legs[self.orders[:, leg], :, leg]
            real, imaginary = np.split(products @ waves, 2, axis=-1)
            spectra[part] = np.hypot(real, imaginary).max(axis=0)
        return spectra


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
