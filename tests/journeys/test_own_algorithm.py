"""An algorithm and a loss of a user's own, each a class in one file, at both orders and in real networks."""

import functools
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.training.infinite.sampled import gaussian_members

RANDOM = np.random.default_rng(3)
X, Y, X_TEST = RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(3, 2)), RANDOM.normal(size=(2, 2))
NET = fw.MLP((2, 24, 2), "tanh", C_b=0.1, C_W=1.2)
TOLERANCE = 1e-9  # two derivations of one number


@dataclass(frozen=True)
class Rates(fw.algorithms.AbstractAlgorithm):
    """Gradient descent with a learning rate for each step; symbols as sums over steps."""

    rates: tuple[float, ...]

    motion = "steps"

    @property
    def end(self):
        return float(len(self.rates))

    def learning_rate_at(self, step, numbers):
        return jnp.asarray(self.rates)[step.astype(int)]

    def response(self, eigenvalues):
        return self.symbols(eigenvalues).f

    def symbols(self, eigenvalues):
        l = eigenvalues
        f, f_2, f_3 = np.zeros(l.shape), np.zeros(l.shape * 2), np.zeros(l.shape * 3)
        power, slope, bend = np.ones_like(l), np.zeros_like(f_2), np.zeros_like(f_3)  # divided differences
        for eta in self.rates:
            f, f_2, f_3 = f + eta * power, f_2 + eta * slope, f_3 + eta * bend
            bend = (1 - eta * l)[:, None, None] * bend - eta * slope
            slope = (1 - eta * l)[:, None] * slope - eta * power
            power = (1 - eta * l) * power
        return fw.algorithms.Symbols(f, f_2, f_3, self.sums(l), functools.partial(self.absorbed, l))

    def absorbed(self, l, e):
        later = np.cumprod([1.0, *(1 - eta * l[e] for eta in self.rates[:0:-1])])[::-1]
        whole, left = self.sums(l), self.sums(l, later)
        return {name: (whole[name] - left[name]) / l[e] for name in whole}

    def sums(self, l, weights=None):
        weights = np.ones(len(self.rates)) if weights is None else weights
        size = l.size
        Z = {name: np.zeros((size,) * 2) for name in ("A", "B")}
        Z |= {name: np.zeros((size,) * 3) for name in ("IA", "IB", "IIA", "IIB")}
        power, a, c = np.ones(size), np.zeros(size), np.zeros((size, size))
        for eta, weight in zip(self.rates, weights, strict=True):
            x, y, z = power[:, None, None], power[:, None], power
            b, d = a[:, None], a
            step = eta * weight
            Z["A"] += step * np.multiply.outer(power, a)
            Z["B"] += step * (np.multiply.outer(power, a) + np.multiply.outer(a, power)) / 2
            Z["B"] += step * eta / 2 * np.multiply.outer(power, power)
            Z["IA"] -= step / 2 * x * b * d
            orders = x * b * d + a[:, None, None] * y * d + a[:, None, None] * b * z
            pairs = x * y * d + x * b * z + a[:, None, None] * y * z
            Z["IB"] -= step / 6 * (orders + eta * pairs + eta**2 * x * y * z)
            Z["IIA"] -= step * x * c
            Z["IIB"] -= step * (x * b * d + y * c[:, None, :] + eta * x * y * d)
            c = c + eta * np.multiply.outer(power, a)
            a = a + eta * power
            power = power * (1 - eta * l)
        return Z


@dataclass(frozen=True)
class OnlyItsEnd(fw.algorithms.AbstractAlgorithm):
    """The least that an algorithm can be."""

    end: float = 3.0  # type: ignore[assignment]


@dataclass(frozen=True)
class HalfSquare(fw.losses.AbstractLoss):
    """The squared error that does not say it is."""

    def value(self, z, y):
        return jnp.sum((z - y) ** 2) / 2

    def minimizer(self, Y):
        return Y


@dataclass(frozen=True)
class LogCosh(fw.losses.AbstractLoss):
    """Quadratic near the target, linear far from it."""

    def value(self, z, y):
        return jnp.sum(jnp.logaddexp(z - y, y - z) - np.log(2))

    @property
    def largest_curvature(self):
        return 1.0


# --- algorithms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1])
def test_equal_rates_are_gradient_descent_at_both_orders(order):
    mine, known = (
        fw.predict(NET, X, Y, X_TEST, algorithm=algorithm, order=order)
        for algorithm in (Rates((0.1,) * 4), fw.GradientDescent(0.1, 4))
    )
    np.testing.assert_allclose(mine.mean, known.mean, rtol=TOLERANCE, atol=1e-12)
    np.testing.assert_allclose(mine.covariance, known.covariance, rtol=TOLERANCE, atol=1e-12)


def test_symbols_of_other_rates_do_not_depend_on_the_path_where_they_must_not():
    """Z_B, Z_IB and Z_IIB factorize for every sequence of steps."""
    symbols = Rates((0.3, 0.05, 0.2)).symbols(np.array([0.2, 0.9, 2.5]))
    f, Z = symbols.f, symbols.outputs
    np.testing.assert_allclose(Z["B"], np.multiply.outer(f, f) / 2, rtol=1e-12)
    np.testing.assert_allclose(Z["IB"], -np.einsum("a,b,c->abc", f, f, f) / 6, rtol=1e-12)
    np.testing.assert_allclose(Z["IIB"], -np.einsum("b,ac->abc", f, Z["A"]), rtol=1e-12)


def test_real_networks_take_the_steps_of_an_algorithm_of_ones_own():
    options = dict(members=6, key=1, record=fw.Record(at=(1, 2)))
    mine, known = (
        fw.train_ensemble(NET, X, Y, X_TEST, algorithm=algorithm, **options)
        for algorithm in (Rates((0.1,) * 4), fw.GradientDescent(0.1, 4))
    )
    np.testing.assert_allclose(mine.outputs.value, known.outputs.value, rtol=1e-12)
    other = fw.train_ensemble(NET, X, Y, X_TEST, algorithm=Rates((0.1, 0.02)), **options)
    np.testing.assert_allclose(other.outputs.value[0], known.outputs.value[0], rtol=1e-12)
    assert np.abs(other.outputs.value[1] - known.outputs.value[1]).max() > 1e-3


def test_an_algorithm_is_refused_where_it_says_nothing():
    with refused(r"algorithm=OnlyItsEnd\(end=3.0\) has no response .* define its method response"):
        fw.predict(NET, X, Y, X_TEST, algorithm=OnlyItsEnd(), order=0)
    with refused(r"algorithm=OnlyItsEnd\(end=3.0\) has no solution at order 1/n"):
        fw.predict(NET, X, Y, X_TEST, algorithm=OnlyItsEnd())
    with refused(r"algorithm=OnlyItsEnd\(end=3.0\) does not say how real networks move"):
        fw.train_ensemble(NET, X, Y, X_TEST, algorithm=OnlyItsEnd(), members=2, key=0)
    with refused("a trajectory needs fw.GradientFlow"):
        fw.trajectory(NET, X, Y, X_TEST, algorithm=OnlyItsEnd(), times=[1], order=0)
    with refused(r"algorithm=OnlyItsEnd\(end=3.0\) is for loss=fw.MSE"):
        fw.predict(NET, X, Y, X_TEST, algorithm=OnlyItsEnd(), loss=LogCosh(), order=0)


def test_only_the_end_is_needed_where_training_has_one():
    mine, known = (
        fw.predict(NET, X, Y, X_TEST, algorithm=algorithm, order=0)
        for algorithm in (OnlyItsEnd(np.inf), fw.Newton())
    )
    np.testing.assert_array_equal(mine.mean, known.mean)


# --- losses -------------------------------------------------------------------------------------------


def test_the_end_of_training_is_the_kernel_prediction_of_the_minimizer():
    mine, known = (fw.predict(NET, X, Y, X_TEST, loss=loss, order=0) for loss in (HalfSquare(), fw.MSE()))
    np.testing.assert_array_equal(mine.mean, known.mean)
    np.testing.assert_array_equal(mine.covariance, known.covariance)


@pytest.mark.parametrize("algorithm", [fw.GradientDescent(0.1, 5), fw.GradientFlow(0.7)])
def test_members_trained_in_function_space_follow_the_linear_law_of_the_squared_error(algorithm):
    drawn = fw.FunctionSpace(members=4, key=2)
    mine = fw.predict(NET, X, Y, X_TEST, loss=HalfSquare(), algorithm=algorithm, order=0, method=drawn)
    known = fw.predict(NET, X, Y, X_TEST, algorithm=algorithm, order=0, method=drawn)
    np.testing.assert_allclose(known.outputs, mine.outputs, rtol=1e-12)
    assert mine.method == drawn
    both = fw.kernels(NET, np.concatenate([X, X_TEST]))
    z = gaussian_members(both.K, 4, 2, 2)
    l, V = np.linalg.eigh(both.Theta[:3, :3])
    F = V * algorithm.response(l) @ V.T
    expected = z[:, 3:] - both.Theta[3:, :3] @ F @ (z[:, :3] - Y)
    np.testing.assert_allclose(mine.outputs, expected, rtol=1e-7, atol=1e-9)
    with refused(r"loss=HalfSquare\(\) knows no classes"):
        mine.probabilities  # noqa: B018


@pytest.mark.long
def test_real_networks_are_trained_on_a_loss_of_ones_own():
    options = dict(algorithm=fw.GradientDescent(0.1, 4), members=6, key=1)
    mine, known = (
        fw.train_ensemble(NET, X, Y, X_TEST, loss=loss, **options) for loss in (HalfSquare(), fw.MSE())
    )
    np.testing.assert_allclose(mine.outputs.value, known.outputs.value, rtol=1e-12)
    robust = fw.train_ensemble(NET, X, Y, X_TEST, loss=LogCosh(), **options, record=fw.Record(at=(0,)))
    assert robust.loss.value[-1] < robust.loss.value[0]


def test_a_loss_is_refused_where_it_says_nothing():
    with refused(r"loss=LogCosh\(\) does not say which outputs minimize it; stop at a finite time"):
        fw.predict(NET, X, Y, X_TEST, loss=LogCosh(), order=0)
    with refused(r"order=1 with loss=LogCosh\(\) replays training step by step"):
        fw.predict(NET, X, Y, X_TEST, loss=LogCosh())
    with refused(r"learning_rate=50 is not below 2 / .* times the largest curvature 1 of LogCosh"):
        fw.predict(NET, X, Y, X_TEST, loss=LogCosh(), algorithm=fw.GradientDescent(50.0, 2), order=0)
    with refused(r"algorithm Newton\(\) is for MSE\(\), got loss LogCosh"):
        fw.train_ensemble(NET, X, Y, X_TEST, algorithm=fw.Newton(), loss=LogCosh(), members=2, key=0)


def test_the_expected_test_loss_takes_a_loss_of_ones_own():
    prediction = fw.predict(NET, X, Y, X_TEST, order=0)
    mine, by_hand = (
        prediction.test_loss(Y[:2], loss=loss)
        for loss in (LogCosh(), lambda z, y: jnp.sum(jnp.logaddexp(z - y, y - z) - np.log(2)))
    )
    assert mine.total == by_hand.total and not mine.exact
