"""Laws that deep critical networks approach."""

import numpy as np
import pytest

import finitewidth as fw

DEPTH = 400
X = [[1.0, -1.0]]


def gaps(theory, l: int) -> tuple[float, float]:
    laws, layer = fw.critical.asymptotes(theory), theory.layer(l)
    return tuple(
        float(np.abs(np.diag(value) / law[:, l - 1] - 1).max())
        for value, law in ((layer.K, laws.K), (layer.Theta, laws.Theta))
    )


@pytest.mark.parametrize("name", ["tanh", "sin", "elu"])
def test_corrections_to_the_laws_fall_with_depth(name):
    """As log l / l: by 0.38 from layer 100 to 400, and 10 % are allowed at layer 400 of elu's square law."""
    theory = fw.solve(fw.MLP.critical((2, *[1] * (DEPTH - 1), 1), name), X, order=0)
    for early, late in zip(gaps(theory, 100), gaps(theory, 400), strict=True):
        assert late < 0.6 * early or late < 0.01
        assert late < 0.1


@pytest.mark.parametrize("name, exact", [("relu", 1e-12), ("linear", 1e-12), ("gelu", 1e-2)])
def test_constant_kernels_make_the_ntk_grow_linearly(name, exact):
    """Exactly, but for the first layer of gelu, whose weights see the inputs."""
    theory = fw.solve(fw.MLP.critical((2, *[1] * (DEPTH - 1), 1), name), X, order=0)
    assert max(gaps(theory, DEPTH)) < exact
    assert fw.critical.asymptotes(theory).Theta_law == "grows as l"


def test_the_law_of_tanh_is_stated_in_words():
    laws = fw.critical.asymptotes(fw.solve(fw.MLP.critical((2, 8, 8, 1), "tanh"), X, order=0))
    np.testing.assert_allclose(laws.K[0], 1 / (2 * np.arange(1, 4)), rtol=1e-12)
    assert (laws.K_law, laws.Theta_law) == ("falls as 1/l", "constant")


def test_other_networks_have_no_law():
    off = fw.critical.asymptotes(fw.solve(fw.MLP((2, 8, 8, 1), "tanh", C_W=1.3), X, order=0))
    assert off.K is None and off.K_law == "not at criticality"
    rates = fw.critical.asymptotes(fw.solve(fw.MLP((2, 8, 8, 1), "tanh", C_W=1.0), X, order=0))
    assert rates.K is not None and rates.Theta is None
