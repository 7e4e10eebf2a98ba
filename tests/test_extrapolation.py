"""Higher orders in 1/n, fitted to narrow networks."""

import numpy as np
import pytest

import finitewidth as fw
from finitewidth.experiment.scaling import fall_with_width

X = np.array([[1.2, -0.4, 0.3], [-0.5, 1.1, 0.8], [0.2, 0.7, -1.3], [0.6, 0.5, 0.4]])
Y = np.array([[1.0], [-0.8], [0.5]])
DESCENT = fw.GradientDescent(0.15, 10)


def network(n: int = 128) -> fw.MLP:
    return fw.MLP((3, n, n, 1), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)


def test_a_sum_of_powers_is_recovered_with_its_errors():
    widths, powers = (8, 16, 32, 64), (2, 3)
    exact = np.array([[3.0, -40.0], [-1.0, 7.0]])  # entries, orders
    rng, pulls, chi = np.random.default_rng(0), [], []
    for _ in range(200):
        stderr = [np.array([0.01, 0.02]) / n for n in widths]
        noise = [s * rng.standard_normal(2) for s in stderr]
        values = [exact @ [float(n) ** -k for k in powers] + e for n, e in zip(widths, noise, strict=True)]
        fall = fall_with_width(widths, list(map(fw.Estimate, values, stderr)), powers)
        pulls.append((fall.coefficients.T - exact) / np.sqrt(np.einsum("kk...->...k", fall.errors)))
        chi.append(fall.chi_square)
    assert np.mean(np.square(pulls)) == pytest.approx(1.0, abs=0.2)
    assert np.mean(chi) == pytest.approx(fall.freedom, abs=0.4)


def test_orders_behind_the_first_come_from_narrow_networks():
    found = fw.extrapolate(
        network(), X[:3], Y, X[3:], algorithm=DESCENT, widths=(6, 8, 12, 16), members=2000, progress=False
    )
    wide = fw.train_ensemble(
        network(20),
        X[:3],
        Y,
        X[3:],
        algorithm=DESCENT,
        members=4000,
        key=5,
        control=fw.control_variate(network(20), X[:3], Y, X[3:], DESCENT),
        progress=False,
    )
    there = found.at(20)
    difference = there.mean.value - wide.controlled.mean.value
    assert np.max(np.abs(difference) / np.hypot(there.mean.stderr, wide.controlled.mean.stderr)) < 4
    assert found.n == 128 and found.freedom == 2
    np.testing.assert_allclose(  # nothing is left of the ensembles in the limit
        found.at(10**6).mean.value,
        fw.predict(network(10**6), X[:3], Y, X[3:], algorithm=DESCENT).mean,
        atol=1e-9,
    )
    assert "128" in repr(found)


@pytest.mark.parametrize(
    "options, message",
    [({"widths": (8, 16)}, "widths=.* has 2 different widths"), ({"widths": (8, 1, 2)}, "widths")],
)
def test_too_few_widths_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fw.extrapolate(network(), X[:3], Y, X[3:], algorithm=DESCENT, **options)


def test_hidden_layers_of_different_widths_are_refused():
    with pytest.raises(ValueError, match="hidden layers of one width"):
        fw.extrapolate(fw.MLP((3, 8, 9, 1), "tanh"), X[:3], Y, X[3:], algorithm=DESCENT)
