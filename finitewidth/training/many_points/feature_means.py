"""Averages over neurons of the features of a source layer: what control variates subtract and add again."""

import functools
from dataclasses import dataclass

import numpy as np

from finitewidth.training.many_points.source_layer import SourceLayer


@dataclass(frozen=True, eq=False)
class Means:
    """Averages over pairs of samples, (N, N) each."""

    layer: SourceLayer

    @property
    def slopes(self) -> np.ndarray:
        """<sigma' sigma'>."""
        return self.layer.moments.slope.value

    @property
    def _bends(self) -> np.ndarray:
        """<sigma'' sigma>."""
        assert self.layer.moments.leading is not None
        return self.layer.moments.leading

    @functools.cached_property
    def x(self) -> np.ndarray:
        p, values = self.layer.pairs, self.layer.moments.sigma.value
        alone = np.diag(values)
        both = p["Lam"] * values + p["Om"] * self.slopes
        return both + p["x2"] * alone[:, None] + p["x2"].T * alone[None, :]

    @functools.cached_property
    def p(self) -> np.ndarray:
        p = self.layer.pairs
        alone = p["p2"] * np.diag(self._bends)[:, None] + p["p3"] * np.diag(self.slopes)[:, None]
        return p["E"] * self._bends + alone

    @functools.cached_property
    def r(self) -> np.ndarray:
        p, third = self.layer.pairs, self.layer.moments.third
        assert third is not None
        alone = p["r3"] * np.diag(self._bends)[:, None] + p["r4"] * np.diag(self.slopes)[:, None]
        return p["Lam"] * self._bends + p["Om"] * third + alone

    @functools.cached_property
    def s(self) -> np.ndarray:
        slope = self.layer.moments.slope.slope
        assert slope is not None and slope.both is not None
        return self.layer.pairs["Lam"] * self.slopes + self.layer.pairs["Om"] * slope.both
