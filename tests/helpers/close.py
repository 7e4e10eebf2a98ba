"""How close numbers are to exact ones, in units of a scale that the test states."""

import numpy as np


def assert_close(value, exact, tolerance: float = 1e-10, scale=None) -> None:
    """Differences are at most `tolerance` in units of `scale`, by default of the largest exact entry."""
    value, exact = np.asarray(value), np.asarray(exact)
    scale = np.abs(exact).max(initial=0.0) if scale is None else np.asarray(scale)
    allowed = np.broadcast_to(tolerance * scale, np.broadcast_shapes(value.shape, exact.shape))
    assert np.isfinite(value).all()
    np.testing.assert_array_less(np.abs(value - exact), allowed + 1e-300)


def own_sizes(K) -> np.ndarray:
    """The scale of each entry of a kernel from its two inputs, so that a small input's digits count too."""
    own = np.sqrt(np.diag(K))
    return np.outer(own, own)
