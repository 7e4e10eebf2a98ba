"""What claims are judged by: extrapolations in the width, and distances in standard errors."""

import numpy as np

import finitewidth as fw
from finitewidth.comparison.evidence import extrapolated


def test_a_polynomial_in_the_inverse_width_is_extrapolated_exactly():
    """3 - 2/n + 5/n^2 at three widths; errors are those of the three weights."""
    widths, errors = np.array([8, 16, 64]), np.array([0.1, 0.2, 0.3])
    values = [fw.Estimate(np.asarray(3 - 2 / n + 5 / n**2), e) for n, e in zip(widths, errors, strict=True)]
    weights = np.linalg.inv(np.vander(1 / widths, increasing=True))[0]
    limit = extrapolated(widths.tolist(), values)
    np.testing.assert_allclose(limit.value, 3, rtol=1e-12)
    np.testing.assert_allclose(limit.stderr, np.sqrt(np.sum((weights * errors) ** 2)), rtol=1e-12)
