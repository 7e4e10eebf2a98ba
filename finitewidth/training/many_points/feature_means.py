"""Means over neurons of the features of a source layer, which control variates subtract and add again."""

import functools
from dataclasses import dataclass

import numpy as np

from finitewidth.training.many_points.source_layer import SourceLayer


@dataclass(frozen=True, eq=False)
class FeatureMeans:
    """Means of slopes and of the features x, p, r and s, (N, N) each."""

    layer: SourceLayer

    @property
    def slopes(self) -> np.ndarray:
        """<sigma' sigma'>."""
        return self.layer.moments.slope.value

    @property
    def _curvatures(self) -> np.ndarray:
        """<sigma'' sigma>."""
        assert self.layer.moments.leading is not None
        return self.layer.moments.leading

    @functools.cached_property
    def x(self) -> np.ndarray:
        p, values = self.layer.pairs, self.layer.moments.sigma.value
        squares = np.diag(values)
        pairs = p["Lam"] * values + p["Om"] * self.slopes
        return pairs + p["x2"] * squares[:, None] + p["x2"].T * squares[None, :]

    @functools.cached_property
    def p(self) -> np.ndarray:
        p = self.layer.pairs
        same_sample = p["p2"] * np.diag(self._curvatures)[:, None] + p["p3"] * np.diag(self.slopes)[:, None]
        return p["E"] * self._curvatures + same_sample

    @functools.cached_property
    def r(self) -> np.ndarray:
        p, third = self.layer.pairs, self.layer.moments.third
        assert third is not None
        same_sample = p["r3"] * np.diag(self._curvatures)[:, None] + p["r4"] * np.diag(self.slopes)[:, None]
        return p["Lam"] * self._curvatures + p["Om"] * third + same_sample

    @functools.cached_property
    def s(self) -> np.ndarray:
        slope = self.layer.moments.slope.gradient
        assert slope is not None and slope.both is not None
        return self.layer.pairs["Lam"] * self.slopes + self.layer.pairs["Om"] * slope.both
