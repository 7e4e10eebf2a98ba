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


def narrow(widths: tuple[int, ...], members: int) -> fw.Extrapolation:
    return fw.extrapolate(
        network(), X[:3], Y, X[3:], algorithm=DESCENT, widths=widths, members=members, progress=False
    )


def test_nothing_of_the_ensembles_is_left_in_the_limit():
    found = narrow((4, 6, 8), 40)
    assert found.n == 128 and found.freedom == 1 and "128" in repr(found)
    limit = fw.predict(network(10**6), X[:3], Y, X[3:], algorithm=DESCENT)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(found.at(10**6), name).value, getattr(limit, name), atol=1e-7)


@pytest.mark.long
def test_orders_behind_the_first_come_from_narrow_networks():
    there, net = narrow((6, 8, 12, 16), 4000).at(20), network(20)
    control = fw.control_variate(net, X[:3], Y, X[3:], DESCENT)
    options = {"algorithm": DESCENT, "members": 8000, "key": 5, "control": control, "progress": False}
    seen = fw.train_ensemble(net, X[:3], Y, X[3:], **options).controlled
    assert seen is not None
    error = np.hypot(there.mean.stderr, seen.mean.stderr)
    assert np.max(np.abs(there.mean.value - seen.mean.value) / error) < 4


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
