"""Algorithm projectors as symbols of NTK eigenvalues, against sums over steps written out."""

import math

import numpy as np
import pytest

import finitewidth as fw

TOLERANCE = 1e-12  # exact identities
PRINTED = 6e-13  # values known to twelve decimals
PAIR = np.array([0.5, 2.0])
HARD = np.array([1e-9, 0.3, 0.3, 1.7, 2.5])  # nearly zero, degenerate, and beyond one over the learning rate


def by_steps(l, eta, steps, e=None):
    """Sums over steps of the free trajectory, a, c and u^s updated in place; mode e weighs late steps."""
    u = 1 - eta * l
    size = l.size
    power, a, c = np.ones(size), np.zeros(size), np.zeros((size, size))
    shapes = {"A": 2, "B": 2, "IA": 3, "IB": 3, "IIA": 3, "IIB": 3}
    symbols = {name: np.zeros((size,) * axes) for name, axes in shapes.items()}
    for s in range(steps):
        weight = eta * (1.0 if e is None else u[e] ** (steps - 1 - s))
        x, y, z = power[:, None, None], power[None, :, None], power[None, None, :]
        a_b, a_c = a[None, :, None], a[None, None, :]
        symbols["A"] += weight * np.multiply.outer(power, a)
        symbols["B"] += weight * (np.multiply.outer(power, a) + eta / 2 * np.multiply.outer(power, power))
        symbols["IA"] += -weight / 2 * x * a_b * a_c
        symbols["IB"] += -weight * (x * a_b * a_c / 2 + eta / 2 * x * y * a_c + eta**2 / 6 * x * y * z)
        symbols["IIA"] += -weight * x * c[None]
        symbols["IIB"] += -weight * (x * a_b * a_c + y * c[:, None, :] + eta * x * y * a_c)
        c = c + eta * np.multiply.outer(power, a)
        a = a + eta * power
        power = power * u
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    symbols["B"] = (symbols["B"] + symbols["B"].T) / 2
    symbols["IB"] = sum(symbols["IB"].transpose(order) for order in orders) / 6
    return symbols


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 40])
def test_descent_is_a_sum_over_its_steps(steps):
    eta = 0.6
    symbols = fw.GradientDescent(eta, steps).symbols(HARD)
    for name, expected in by_steps(HARD, eta, steps).items():
        np.testing.assert_allclose(symbols.outputs[name], expected, rtol=TOLERANCE, atol=1e-14)
    np.testing.assert_allclose(symbols.f[1:], (1 - (1 - eta * HARD[1:]) ** steps) / HARD[1:], rtol=TOLERANCE)
    assert symbols.f[0] == pytest.approx(eta * steps, rel=1e-7)


def test_the_training_set_absorbs_what_it_no_longer_feels():
    eta, steps, l = 0.6, 7, np.array([0.2, 0.9, 2.5])
    symbols = fw.GradientDescent(eta, steps).symbols(l)
    whole = by_steps(l, eta, steps)
    for e in range(l.size):
        left = by_steps(l, eta, steps, e)
        absorbed = symbols.absorbed(e)
        for name in whole:
            np.testing.assert_allclose(absorbed[name], (whole[name] - left[name]) / l[e], rtol=1e-11)


@pytest.mark.parametrize("algorithm", [fw.GradientFlow(3.0), fw.GradientDescent(0.6, 5), fw.GradientFlow()])
def test_symbols_of_the_second_kind_do_not_depend_on_the_path(algorithm):
    """Z_B, Z_IB and Z_IIB factorize: parameters end, to leading order, where the residual sends them."""
    symbols = algorithm.symbols(HARD[1:])
    f, Z = symbols.f, symbols.outputs
    np.testing.assert_allclose(Z["B"], np.multiply.outer(f, f) / 2, rtol=TOLERANCE)
    np.testing.assert_allclose(Z["IB"], -np.einsum("a,b,c->abc", f, f, f) / 6, rtol=TOLERANCE)
    np.testing.assert_allclose(Z["IIB"], -np.einsum("b,ac->abc", f, Z["A"]), rtol=TOLERANCE)


def test_converged_symbols_have_their_printed_values():
    descent, flow = fw.GradientDescent(0.6).symbols(PAIR).outputs, fw.GradientFlow().symbols(PAIR).outputs
    close = dict(rtol=0, atol=PRINTED)
    np.testing.assert_allclose(
        descent["A"].ravel(), (1.647058823529, 0.736842105263, -0.052631578947, -0.0625), **close
    )
    np.testing.assert_allclose(
        descent["IIA"].ravel()[:4],
        (-0.737040021488, -0.441015750563, 0.056370434282, 0.063677712801),
        **close,
    )
    np.testing.assert_allclose(flow["A"].ravel(), (2, 0.8, 0.2, 0.125), **close)
    np.testing.assert_allclose(
        flow["IA"].ravel(),
        (-4 / 3, -7 / 15, -7 / 15, -8 / 45, -1 / 15, -13 / 360, -13 / 360, -1 / 48),
        **close,
    )
    np.testing.assert_allclose(
        flow["IIA"].ravel(), (-4 / 3, -2 / 3, -4 / 15, -8 / 45, -1 / 15, -2 / 45, -1 / 36, -1 / 48), **close
    )


def test_many_steps_are_the_end_of_training():
    long, end = (fw.GradientDescent(0.6, steps).symbols(PAIR) for steps in (500, math.inf))
    for name in end.outputs:
        np.testing.assert_allclose(long.outputs[name], end.outputs[name], rtol=TOLERANCE)
    for name in ("f", "f_2", "f_3"):
        np.testing.assert_allclose(getattr(long, name), getattr(end, name), rtol=TOLERANCE)


@pytest.mark.parametrize("time", [1e-3, 1.0, 300.0])
def test_small_steps_approach_gradient_flow_as_the_learning_rate(time):
    l = np.array([0.02, 0.5, 0.5, 2.0])
    flow = fw.GradientFlow(time).symbols(l)
    gaps = []
    for steps in (2000, 4000) if time < 100 else (20_000, 40_000):
        descent = fw.GradientDescent(time / steps, steps).symbols(l)
        gaps.append(max(np.abs(descent.outputs[k] / flow.outputs[k] - 1).max() for k in flow.outputs))
    assert gaps[0] < 0.1
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.05)


def test_divided_differences_of_learning_survive_degenerate_eigenvalues():
    symbols = fw.GradientFlow(2.0).symbols(np.array([0.7, 0.7, 1.1]))
    f = lambda l: -math.expm1(-2 * l) / l  # noqa: E731
    slope = (f(0.7 + 1e-5) - f(0.7 - 1e-5)) / 2e-5
    assert symbols.f_2[0, 1] == pytest.approx(slope, rel=1e-8)
    assert symbols.f_2[0, 2] == pytest.approx((f(1.1) - f(0.7)) / 0.4, rel=TOLERANCE)
    assert symbols.f_3[0, 1, 2] == pytest.approx((symbols.f_2[0, 2] - slope) / 0.4, rel=1e-7)


def test_the_two_step_update_leaves_the_universal_projectors_only():
    Z = fw.TwoStep().symbols(PAIR).outputs
    assert not any(Z[name].any() for name in ("A", "IA", "IIA", "IIB"))
    np.testing.assert_allclose(Z["B"], 1 / (2 * np.multiply.outer(PAIR, PAIR)), rtol=TOLERANCE)


def test_an_algorithm_may_be_given_by_its_projectors():
    flow = fw.algorithms.Projectors(
        Z_A=lambda a, b: 1 / (a * (a + b)),
        Z_IA=lambda a, b, c: -(1 / (a + b) + 1 / (a + c)) / (2 * a * (a + b + c)),
        Z_IIA=lambda a, b, c: -1 / (a * (a + b) * (a + b + c)),
        Z_IIB=lambda a, b, c: -1 / (a * b * (a + c)),
    )
    mine, library = flow.symbols(HARD[1:]).outputs, fw.GradientFlow().symbols(HARD[1:]).outputs
    for name in library:
        np.testing.assert_allclose(mine[name], library[name], rtol=TOLERANCE)


def test_the_projector_of_descent_diverges_at_the_edge_of_stability():
    """Z_A of the top mode grows as 1 / (2 - eta l); Z_B stays (PDLT inf.171)."""
    gaps = np.array([1e-2, 1e-3, 1e-4])
    symbols = [fw.GradientDescent((2 - gap) / 2.0).symbols(PAIR).outputs for gap in gaps]
    np.testing.assert_allclose(
        [Z["A"][1, 1] * gap for Z, gap in zip(symbols, gaps, strict=True)], -0.25, rtol=0.02
    )
    np.testing.assert_allclose([Z["B"][1, 1] for Z in symbols], 0.125, rtol=1e-9)
