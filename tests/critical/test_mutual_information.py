"""Entropy and mutual information of outputs, against exact mixtures and the table of appendix A."""

import math

import numpy as np
import pytest
from helpers.problems import refused
from scipy.integrate import quad
from scipy.special import gammaln

import finitewidth as fw
from finitewidth.critical.mutual_information import Information, best_ratio
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.two_legs.averages import two_legs


def entropy_of_mixture(m, v):
    """Exact entropy of m Gaussians whose common variance is log-normal with mean 1 and variance v."""
    spread = math.sqrt(math.log(1 + v))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    variances, weights = np.exp(spread * nodes - spread**2 / 2), weights / weights.sum()

    def density(r):
        return float(np.sum(weights * np.exp(-(r**2) / (2 * variances)) / (2 * np.pi * variances) ** (m / 2)))

    sphere = math.log(2) + m / 2 * math.log(math.pi) - gammaln(m / 2)

    def integrand(r):
        p = density(r)
        return -p * math.log(p) * math.exp(sphere) * r ** (m - 1) if p > 1e-300 else 0.0

    return quad(integrand, 0, 30, epsabs=1e-13, epsrel=1e-12, limit=400)[0]


@pytest.mark.parametrize("m", [1, 2, 3])
def test_entropy_is_that_of_an_exact_mixture(m):
    """A log-normal variance has kappa_3 = 3 v^2 + ..., which enters at v^4: what is left falls so."""
    net = fw.MLP((2, 8, 3), "tanh")
    left = []
    for v in (0.02, 0.04):
        exact = entropy_of_mixture(m, v)
        left.append(exact - Information(net, 1.0, v).entropy(m))
        assert abs(left[-1]) < 30 * v**4
    assert abs(left[1]) < 2**3.5 * 1.5 * abs(left[0]) + 1e-10 and abs(left[1] / left[0]) > 2**3


def test_mutual_information_is_the_difference_of_entropies():
    information = Information(fw.MLP((2, 8, 5), "tanh"), 1.3, 0.01)
    expected = information.entropy(2) + information.entropy(3) - information.entropy(5)
    np.testing.assert_allclose(information.mutual_information(2, 3), expected, rtol=1e-9)
    np.testing.assert_allclose(information.mutual_information(), expected, rtol=1e-9)


def test_linear_networks_have_the_stated_fluctuation():
    """V = 2 (L - 1) K^2 for one input, and G1 = 0."""
    information = fw.critical.information(fw.MLP((3, 50, 50, 50, 4), "linear", C_W=1.0), [1.0, -0.5, 0.3])
    np.testing.assert_allclose(information.v, 2 * 3 / 50, rtol=1e-12)
    np.testing.assert_allclose(information.best_aspect_ratio, 4 / (32 * information.nu), rtol=1e-12)
    assert information.within_range and "within the" in information.reading


def fluctuation_rate(point):
    r"""nu = V/(K^2 L) of critical networks of an activation, deep and wide, by its universality class.

    Scale-invariant: $6 (a_+^4 + a_-^4)/(a_+^2 + a_-^2)^2 - 1$. K* = 0: 2/3. Half-stable: at K*,
    $C_W^2 (\langle\sigma^4\rangle - \langle\sigma^2\rangle^2)/K_\star^2$.
    """
    activation = point.activation
    if activation.slopes is not None:
        above, below = (slope**2 for slope in activation.slopes)
        return 6 * (above**2 + below**2) / (above + below) ** 2 - 1
    if point.universality_class == "K*=0":
        return 2 / 3
    assert point.universality_class == "half-stable"
    K = np.array([[point.K_star]])
    fourth = float(four_legs(activation, K, ((0, 0, 0, 0),))[0, 0, 0, 0].value.item())
    second = float(two_legs(activation, K)[0, 0].value.item())
    return point.C_W**2 * (fourth - second**2) / point.K_star**2


@pytest.mark.parametrize(
    "activation, nu, two, ten",
    [
        ("linear", 2, 0.0769, 0.0400),
        ("relu", 5, 0.0308, 0.0160),
        ("tanh", 2 / 3, 0.231, 0.120),
        ("gelu", 4.904, 0.0314, 0.0163),
        ("swish", 4.923, 0.0312, 0.0162),
    ],
)
def test_aspect_ratios_of_the_classes(activation, nu, two, ten):
    rate = fluctuation_rate(fw.criticality(activation))
    np.testing.assert_allclose(rate, nu, rtol=2e-4)
    np.testing.assert_allclose([best_ratio(rate, 2), best_ratio(rate, 10)], [two, ten], rtol=4e-3)


def test_the_audit_says_it_in_one_line():
    net = fw.MLP.critical((3, *[40] * 9, 2), "relu")
    audit = fw.audit(net)
    direct = fw.critical.information(net, np.ones(3))
    np.testing.assert_allclose(audit.information.v, direct.v, rtol=1e-9)
    np.testing.assert_allclose(audit.information.G, direct.G, rtol=1e-9)
    assert "beyond the" in audit.information.reading


def test_bad_input_is_named():
    net = fw.MLP((2, 8, 3), "tanh")
    information = fw.critical.information(net, [1.0, 2.0])
    with refused("outputs must be at most the n_L = 3 outputs"):
        information.entropy(4)
    with refused("first . second must be at most the n_L = 3"):
        information.mutual_information(2, 2)
    with refused("x must be one input of 2 numbers, got 2 rows"):
        fw.critical.information(net, np.ones((2, 2)))
