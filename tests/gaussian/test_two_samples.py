"""Four legs on two samples, against a quadrature in two dimensions."""

import numpy as np

from finitewidth.gaussian.two_legs.two_samples import two_samples
from finitewidth.network.layers.activation import as_activation

K = np.array([[1.3, 0.5], [0.5, 0.7]])


def test_averages_are_those_of_a_grid_in_two_dimensions():
    nodes = np.arange(-9, 9, 0.1)  # the trapezoidal rule: poles of tanh lie far from the axis
    weights = 0.1 * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    x, w = np.meshgrid(nodes, nodes, indexing="ij"), np.outer(weights, weights)
    one, two = np.tensordot(np.linalg.cholesky(K), x, axes=1)
    s_1, s_2, slope_1, slope_2 = np.tanh(one), np.tanh(two), 1 / np.cosh(one) ** 2, 1 / np.cosh(two) ** 2
    exact = {
        "cube_one": s_1**3 * s_2,
        "squares": s_1**2 * s_2**2,
        "sloped_square": slope_1 * s_1**2 * slope_2,
        "sloped_pair": slope_1 * s_1 * slope_2 * s_2,
    }
    found = two_samples(as_activation("tanh"), K)
    for name, product in exact.items():
        np.testing.assert_allclose(getattr(found, name)[0, 1], np.sum(w * product), rtol=1e-7, err_msg=name)
