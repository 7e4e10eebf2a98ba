"""Four-leg Gaussian averages against closed forms, independent quadrature and their own symmetries."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

from finitewidth.core import cores
from finitewidth.gaussian.four_legs import averages as averages_module
from finitewidth.gaussian.four_legs.averages import (
    four_legs,
    four_legs_with_fixed_leg,
    remember_averages,
)
from finitewidth.gaussian.four_legs.closed_forms import have_closed_form
from finitewidth.gaussian.four_legs.conditioning import PairConditioning, Task
from finitewidth.gaussian.four_legs.families import FAMILIES, arrangements
from finitewidth.gaussian.four_legs.plans import fill_or_refuse
from finitewidth.gaussian.four_legs.trapezoid import Unreachable
from finitewidth.gaussian.tower import Tower
from finitewidth.network.layers.activation import Activation, as_activation

TOLERANCE = 1e-8
KINKED_TOLERANCE = 1e-5
STEP_FAMILIES = ((0, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 1))  # no derivative beyond the first


def kernel(count, dimension, size=1.0, bias=0.05, seed=0):
    x = np.random.default_rng(seed).standard_normal((count, dimension))
    return size * x @ x.T / dimension + bias


# --- an independent reference: the tensor trapezoid rule in the eigenvectors of K ------------


def tanh_derivatives(z):
    t = np.tanh(z)
    d = 1 - t**2
    return t, d, -2 * t * d, d * (6 * t**2 - 2)


def erf_derivatives(z):
    d = 2 / math.sqrt(math.pi) * np.exp(-(z**2))
    return erf(z), d, -2 * z * d, (4 * z**2 - 2) * d


def gelu_derivatives(z):
    cumulative, density = (1 + erf(z / math.sqrt(2))) / 2, np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return z * cumulative, cumulative + z * density, (2 - z**2) * density, (z**3 - 4 * z) * density


def softplus_derivatives(z):
    s = 1 / (1 + np.exp(-z))
    return np.logaddexp(0, z), s, s * (1 - s), s * (1 - s) * (1 - 2 * s)


DERIVATIVES = {
    "tanh": tanh_derivatives,
    "erf": erf_derivatives,
    "gelu": gelu_derivatives,
    "softplus": softplus_derivatives,
}


def by_quadrature(derivatives, K, labels, reach=7.3, density=0.24):
    """All families for one quadruple; the step on each axis follows the largest leg on it."""
    distinct = sorted(set(labels))
    eigenvalues, vectors = np.linalg.eigh(K[np.ix_(distinct, distinct)])
    present = eigenvalues > 1e-13 * eigenvalues.max()
    factor = (vectors[:, present] * np.sqrt(eigenvalues[present]))[:, ::-1]
    steps = np.minimum(0.5, density / np.abs(factor).max(axis=0))
    axes = [np.arange(-round(reach / h), round(reach / h) + 1) * h for h in steps]
    inner = np.zeros((0, 1))
    if len(axes) > 1:
        inner = np.stack([axis.reshape(-1) for axis in np.meshgrid(*axes[1:], indexing="ij")])
    totals = dict.fromkeys(FAMILIES, 0.0)
    for x in axes[0]:
        square = (inner**2).sum(axis=0) + x**2
        near = square < reach**2
        z = factor[:, :1] * x + factor[:, 1:] @ inner[:, near]
        legs = derivatives(z)
        weights = np.exp(-square[near] / 2) * np.prod(steps / math.sqrt(2 * math.pi))
        for family in FAMILIES:
            product = weights
            for order, label in zip(family, labels, strict=True):
                product = product * legs[order][distinct.index(label)]
            totals[family] += product.sum()
    return totals


LABELS = ((0, 1, 2, 3), (2, 0, 3, 1), (0, 0, 1, 2), (3, 1, 2, 3), (1, 2, 1, 2), (3, 0, 0, 0), (2, 2, 2, 2))


@pytest.mark.parametrize("name, size", [("tanh", 1.5), ("gelu", 1.5), ("erf", 0.05), ("softplus", 1.0)])
def test_averages_agree_with_direct_quadrature(name, size):
    K = kernel(4, 6, size)
    averages = four_legs(name, K, tolerance=TOLERANCE)
    for labels in LABELS:
        exact = by_quadrature(DERIVATIVES[name], K, labels)
        for family, average in averages.items():
            assert abs(average.value[labels] - exact[family]) <= average.error <= 1.1 * TOLERANCE


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_kernels_of_low_rank_are_ordinary(rank):
    K = kernel(4, rank, 0.8, bias=0.0, seed=rank)
    averages = four_legs("tanh", K, tolerance=TOLERANCE)
    for labels in LABELS:
        exact = by_quadrature(tanh_derivatives, K, labels, density=0.18)
        for family, average in averages.items():
            assert abs(average.value[labels] - exact[family]) <= average.error


def test_strongly_correlated_inputs_keep_the_tolerance():
    x = np.random.default_rng(1).standard_normal((4, 8))
    for x_close in (x[0] + 0.15 * x, np.stack([x[0], x[0] + 0.02 * x[1], x[2], x[3]])):
        K = 1.5 * x_close @ x_close.T / 8
        averages = four_legs("tanh", K, tolerance=TOLERANCE)
        for labels in LABELS[:4]:
            exact = by_quadrature(tanh_derivatives, K, labels, density=0.2)
            for family, average in averages.items():
                assert abs(average.value[labels] - exact[family]) <= average.error


# --- closed forms ----------------------------------------------------------------------------


def moment(K, labels):
    """<z_1 z_2 ...> as the sum over pairings (Isserlis)."""
    if not labels:
        return 1.0
    first, *rest = labels
    return sum(K[first, r] * moment(K, rest[:i] + rest[i + 1 :]) for i, r in enumerate(rest))


def test_linear_legs_are_sums_over_pairings():
    K = kernel(5, 3)
    averages = four_legs("linear", K)
    expected = sum(np.einsum(order, K, K) for order in ("ab,cd->abcd", "ac,bd->abcd", "ad,bc->abcd"))
    np.testing.assert_allclose(averages[0, 0, 0, 0].value, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(averages[1, 1, 0, 0].value, np.broadcast_to(K, (5,) * 4), rtol=1e-12)
    assert (averages[1, 1, 1, 1].value == 1).all() and not averages[2, 1, 1, 0].value.any()


def test_cubic_legs_are_sums_over_pairings():
    K, coefficients = kernel(3, 4, 0.5), (0.3, 1.0, -0.2, 0.1)
    averages = four_legs(f"polynomial{coefficients}", K)
    legs = [np.polynomial.Polynomial(coefficients).deriv(m).coef for m in range(4)]
    for labels in ((0, 1, 2, 0), (2, 2, 1, 0), (1, 1, 1, 1)):
        for family, average in averages.items():
            expected = 0.0
            for powers in itertools.product(*(range(len(legs[order])) for order in family)):
                factor = math.prod(legs[order][power] for order, power in zip(family, powers, strict=True))
                repeated = [label for label, power in zip(labels, powers, strict=True) for _ in range(power)]
                expected += factor * moment(K, repeated)
            assert average.value[labels] == pytest.approx(expected, rel=1e-11, abs=1e-13)


def test_integration_reproduces_the_closed_form_of_the_sine():
    K = kernel(6, 5, 1.2)
    by_hand = Activation(lambda z: jnp.sin(z))
    assert have_closed_form((as_activation("sin"),)) and not have_closed_form((by_hand,))
    exact, value = four_legs("sin", K), four_legs(by_hand, K, tolerance=TOLERANCE)
    for family in FAMILIES:
        assert (
            np.abs(exact[family].value - value[family].value).max() <= value[family].error <= 1.1 * TOLERANCE
        )


def test_integration_reproduces_the_closed_form_of_a_cubic():
    K = kernel(5, 6, 0.5)
    exact = four_legs("polynomial(0.3, 1.0, -0.2, 0.1)", K)
    value = four_legs(Activation(lambda z: 0.3 + z - 0.2 * z**2 + 0.1 * z**3), K, tolerance=TOLERANCE)
    for family in FAMILIES:
        assert np.abs(exact[family].value - value[family].value).max() <= value[family].error


# --- errors and symmetries -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tanh", "erf", "gelu", "swish", "softplus", "mish", "sigmoid"])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-7])
def test_the_reported_error_never_understates(name, tolerance):
    normal = np.random.default_rng(2).standard_normal((6, 8))
    kernels = [
        5 * np.corrcoef(normal),
        0.02 * normal @ normal.T / 8,
        (normal[0] + 0.2 * normal) @ (normal[0] + 0.2 * normal).T / 8,
        1.2 * normal[:, :2] @ normal[:, :2].T / 2 + 0.3,  # two input dimensions and a bias
    ]
    for K in kernels:
        rough, fine = four_legs(name, K, tolerance=tolerance), four_legs(name, K, tolerance=tolerance / 100)
        for family in FAMILIES:
            assert np.abs(rough[family].value - fine[family].value).max() <= rough[family].error


def test_permuted_inputs_permute_the_result():
    K, order = kernel(6, 4), np.array([3, 0, 5, 1, 4, 2])
    plain, permuted = four_legs("gelu", K), four_legs("gelu", K[np.ix_(order, order)])
    for family in FAMILIES:
        moved = plain[family].value[np.ix_(*[order] * 4)]
        np.testing.assert_allclose(permuted[family].value, moved, rtol=0, atol=2 * TOLERANCE)


def test_repeated_inputs_give_repeated_blocks():
    K, twice = kernel(4, 3), np.array([0, 1, 0, 2, 3, 1])
    plain, repeated = four_legs("gelu", K), four_legs("gelu", K[np.ix_(twice, twice)])
    for family in FAMILIES:
        block = plain[family].value[np.ix_(*[twice] * 4)]
        np.testing.assert_allclose(repeated[family].value, block, rtol=1e-12, atol=1e-13)


def test_slots_of_equal_order_can_be_exchanged():
    averages = four_legs("swish", kernel(5, 4))
    for family, average in averages.items():
        for places in itertools.permutations(range(4)):
            if tuple(family[place] for place in places) == family:
                np.testing.assert_allclose(average.value, average.value.transpose(places), atol=2 * TOLERANCE)


def test_an_antiparallel_input_only_flips_signs_of_odd_legs():
    K = kernel(4, 3, bias=0.0)
    K = np.block([[K, -K[:, :1]], [-K[:1], K[:1, :1]]])  # sample 4 is minus sample 0
    for family, average in four_legs("tanh", K).items():
        for labels in itertools.product(range(1, 5), repeat=3):
            sign = math.prod((-1) ** (m + 1) for m, s in zip(family, (4, *labels), strict=True) if s == 4)
            same = tuple(0 if s == 4 else s for s in (4, *labels))
            assert average.value[(4, *labels)] == pytest.approx(sign * average.value[same], abs=2 * TOLERANCE)


def test_a_zero_input_contributes_its_value_at_the_origin():
    K = kernel(3, 3, bias=0.0)
    K = np.pad(K, (0, 1))
    for family, average in four_legs("gelu", K).items():
        at_origin = gelu_derivatives(np.zeros(1))
        everywhere = math.prod(float(at_origin[order][0]) for order in family)
        assert average.value[3, 3, 3, 3] == pytest.approx(everywhere, abs=TOLERANCE)
        for labels in ((0, 1, 2, 3), (0, 0, 1, 3), (2, 2, 2, 3)):
            three = by_quadrature(gelu_derivatives, K, (*labels[:3], 3), reach=7.8)
            assert average.value[labels] == pytest.approx(three[family], abs=TOLERANCE)


def test_a_kernel_of_zeros_needs_no_integral():
    for family, average in four_legs("sigmoid", np.zeros((3, 3))).items():
        exact = math.prod((0.5, 0.25, 0.0, -0.125)[order] for order in family)
        np.testing.assert_allclose(average.value, exact, atol=1e-15)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_fewer_than_four_samples_are_enough(count):
    K = kernel(5, 4)
    few, many = four_legs("tanh", K[:count, :count]), four_legs("tanh", K)
    for family in FAMILIES:
        part = many[family].value[(slice(count),) * 4]
        np.testing.assert_allclose(few[family].value, part, rtol=0, atol=2 * TOLERANCE)


@pytest.mark.parametrize("activation", ["gelu", "sin", "relu"])
def test_a_fixed_leg_gives_slices_of_the_dense_arrays(activation):
    K = kernel(5, 8)
    K = K[np.ix_([0, 1, 2, 3, 1], [0, 1, 2, 3, 1])]
    families, tolerance = (STEP_FAMILIES, 1e-5) if activation == "relu" else (FAMILIES, TOLERANCE)
    dense = four_legs(activation, K, families, tolerance=tolerance)
    for fixed in (1, 3):
        parts = four_legs_with_fixed_leg(activation, K, fixed, families, tolerance=tolerance)
        assert set(parts) == set(itertools.product(families, range(4)))
        for (family, slot), part in parts.items():
            expected = np.take(dense[family].value, fixed, axis=slot)
            np.testing.assert_allclose(part.value, expected, rtol=0, atol=2 * tolerance)


def test_fewer_families_give_the_same_values():
    K = kernel(5, 4)
    every = four_legs("tanh", K)
    for family in FAMILIES:
        alone = four_legs("tanh", K, [family])[family]
        np.testing.assert_allclose(alone.value, every[family].value, rtol=0, atol=2 * TOLERANCE)


# --- kinks -----------------------------------------------------------------------------------


def test_four_equicorrelated_steps_are_all_up_with_probability_one_fifth():
    K = np.full((4, 4), 0.5) + 0.5 * np.eye(4)
    average = four_legs("relu", K, [(1, 1, 1, 1)], tolerance=KINKED_TOLERANCE)[1, 1, 1, 1]
    assert abs(average.value[0, 1, 2, 3] - 1 / 5) <= average.error <= KINKED_TOLERANCE


def test_three_steps_are_up_with_the_probability_of_a_spherical_triangle():
    for K in (kernel(3, 5), kernel(3, 2, bias=0.0)):
        average = four_legs("relu", K, [(1, 1, 1, 1)], tolerance=KINKED_TOLERANCE)[1, 1, 1, 1]
        roots = np.sqrt(np.diagonal(K))
        angles = np.arcsin(np.clip(K / np.outer(roots, roots), -1, 1))
        exact = 1 / 8 + (angles[0, 1] + angles[0, 2] + angles[1, 2]) / (4 * math.pi)
        assert abs(average.value[0, 0, 1, 2] - exact) <= KINKED_TOLERANCE


def relu_pair(K):
    """<relu relu> and <step step> for two samples (the arc-cosine kernels)."""
    root = math.sqrt(K[0, 0] * K[1, 1])
    angle = math.acos(K[0, 1] / root)
    return root * (math.sin(angle) + (math.pi - angle) * math.cos(angle)) / (2 * math.pi), (
        math.pi - angle
    ) / (2 * math.pi)


def test_independent_pairs_of_rectified_legs_factorize():
    first, second = np.array([[1.0, 0.7], [0.7, 2.0]]), np.array([[0.5, -0.3], [-0.3, 0.8]])
    K = np.block([[first, np.zeros((2, 2))], [np.zeros((2, 2)), second]])
    averages = four_legs("relu", K, STEP_FAMILIES, tolerance=KINKED_TOLERANCE)
    (value, step), (other_value, other_step) = relu_pair(first), relu_pair(second)
    for family, exact in zip(
        STEP_FAMILIES, (value * other_value, step * other_value, step * other_step), strict=True
    ):
        assert abs(averages[family].value[0, 1, 2, 3] - exact) <= averages[family].error <= KINKED_TOLERANCE


def test_parallel_rectified_legs_scale():
    K = kernel(3, 2, bias=0.0)
    scales = np.array([1.0, 1.0, 1.0, 2.0])  # sample 3 is twice sample 0
    K = K[np.ix_([0, 1, 2, 0], [0, 1, 2, 0])] * np.outer(scales, scales)
    averages = four_legs("leaky_relu(0.2)", K, STEP_FAMILIES, tolerance=KINKED_TOLERANCE)
    for family, average in averages.items():
        for labels in ((3, 0, 1, 2), (3, 3, 1, 2), (3, 1, 1, 1)):
            single = tuple(0 if s == 3 else s for s in labels)
            factor = math.prod(2.0 for m, s in zip(family, labels, strict=True) if s == 3 and m == 0)
            assert average.value[labels] == pytest.approx(
                factor * average.value[single], abs=3 * factor * KINKED_TOLERANCE
            )


def test_hard_saturation_has_two_kinks():
    K = np.diag([0.5, 2.0])
    averages = four_legs("hardtanh", K, STEP_FAMILIES, tolerance=KINKED_TOLERANCE)
    inside = erf(1 / np.sqrt(2 * np.diagonal(K)))
    square = (
        np.diagonal(K) * inside
        - np.sqrt(2 * np.diagonal(K) / np.pi) * np.exp(-1 / (2 * np.diagonal(K)))
        + (1 - inside)
    )
    assert abs(averages[1, 1, 1, 1].value[0, 0, 1, 1] - inside.prod()) <= KINKED_TOLERANCE
    assert abs(averages[1, 1, 0, 0].value[0, 0, 1, 1] - inside[0] * square[1]) <= KINKED_TOLERANCE
    assert abs(averages[0, 0, 0, 0].value[0, 0, 1, 1] - square.prod()) <= KINKED_TOLERANCE


@pytest.mark.long
def test_the_exponential_linear_unit_agrees_with_sampling():
    """Pull below 4 with four million samples."""
    K = kernel(4, 6)
    families = [(0, 0, 0, 0), (1, 1, 0, 0), (2, 1, 1, 0), (2, 2, 1, 1)]
    averages = four_legs("elu", K, families, tolerance=KINKED_TOLERANCE)
    z = np.linalg.cholesky(K) @ np.random.default_rng(0).standard_normal((4, 4_000_000))
    below = np.exp(np.minimum(z, 0))
    legs = np.where(z > 0, z, below - 1), np.where(z > 0, 1.0, below), np.where(z > 0, 0.0, below)
    for family in families:
        product = math.prod(legs[order][sample] for sample, order in enumerate(family))
        stderr = product.std() / math.sqrt(product.size)
        assert abs(product.mean() - averages[family].value[0, 1, 2, 3]) < 4 * stderr + KINKED_TOLERANCE


# --- refusals --------------------------------------------------------------------------------


def test_delta_functions_at_kinks_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 1, 1, 0\).*'relu'.*delta function.*smooth activation"):
        four_legs("relu", np.eye(2))


def test_out_of_reach_tolerances_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match=r"tolerance 1.0e-08 cannot be reached for activation 'tanh'.*scale"):
        four_legs("tanh", 200 * kernel(4, 5))


def test_a_refusal_names_a_tolerance_that_can_be_reached():
    tried = []

    def fill(tolerance, longest):
        tried.append((tolerance, longest))
        if tolerance < 2e-7 or longest < 1000:
            raise Unreachable("the series is long")

    with pytest.raises(
        ValueError,
        match=r"^tolerance 1.0e-08 .* for it at .*\(the series is long\); .*tolerance=1e-06\) does",
    ):
        fill_or_refuse(fill, "it", np.eye(3), 1e-8)
    fill_or_refuse(fill, "it", np.eye(3), 1e-6)
    assert tried[-2:] == [(1e-6, 320), (1e-6, 1280)]


@pytest.mark.long
def test_steep_activations_have_longer_series():
    """softplus(5z)/5 on nine inputs needs more than 320 Hermite terms; on four of them it does not."""
    steep = Activation(lambda z: jnp.logaddexp(0.0, 5 * z) / 5, name="steep")
    x = np.random.default_rng(0).standard_normal((15, 3))[6:]
    K, some, family = 0.1 + x @ x.T / 3, np.array([0, 3, 5, 8]), (2, 1, 1, 0)
    all_nine = four_legs(steep, K, (family,), tolerance=1e-7)[family].value
    alone = four_legs(steep, K[np.ix_(some, some)], (family,), tolerance=1e-9)[family].value
    np.testing.assert_allclose(all_nine[np.ix_(some, some, some, some)], alone, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("tanh", np.array([[1.0, 2.0], [2.0, 1.0]])), "K is no covariance matrix"),
        (("tanh", np.full((3, 3), -0.6) + 1.6 * np.eye(3)), "has the negative eigenvalue -2.0e-01"),
        (("tanh", np.array([[1.0, 0.2], [0.3, 1.0]])), "K is no covariance matrix: it must be symmetric"),
        (("tanh", np.array([[np.nan]])), "NaN or infinite"),
        (("tanh", np.eye(2), [(1, 0, 0, 0)]), "not a family"),
        (("tanh", np.eye(2), []), "families is empty"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        four_legs(*arguments)


def test_a_wrong_fixed_sample_and_tolerance_are_named():
    with pytest.raises(ValueError, match="fixed must be the number of a sample, 0 to 1, got 2"):
        four_legs_with_fixed_leg("tanh", np.eye(2), 2)
    with pytest.raises(ValueError, match="tolerance must lie between"):
        four_legs("tanh", np.eye(2), tolerance=0.0)


@pytest.mark.parametrize("name", ["tanh", "swish"])
def test_averages_have_the_same_bits_on_any_number_of_cores(name, monkeypatch):
    K, value = kernel(9, 12), []
    for count in (1, 3):
        monkeypatch.setattr(cores, "available", lambda count=count: count)
        value.append(four_legs(name, K, tolerance=1e-6))
    for family in FAMILIES:
        np.testing.assert_array_equal(value[0][family].value, value[1][family].value)


def test_compiled_tasks_agree_with_tasks_one_by_one():
    """The loops, which batches of tasks pass, against products of NumPy with a plan for each task."""
    K = kernel(7, 9)
    tower = Tower(as_activation("tanh"), 3)
    conditioning = PairConditioning((tower,) * 4, K, arrangements(FAMILIES), 1e-8)
    values = four_legs("tanh", K, tolerance=1e-8)
    for (p, q), others in (((0, 4), (2, 6)), ((5, 1), (3, 0))):
        task = Task(p, q, np.array(others[:1]), np.array(others[1:]))
        ((_, sums),) = conditioning.run([task])
        for family in FAMILIES:
            error = abs(values[family].value[p, q, others[0], others[1]] - sums[family][0, 0])
            assert error <= 2e-8, (family, error)


def test_remembered_averages_are_the_same_until_there_are_too_many(monkeypatch):
    monkeypatch.setattr(averages_module, "_memory", None)
    K, family = kernel(3, 2), (0, 0, 0, 0)
    fresh = four_legs("tanh", K, (family,))[family].value
    remember_averages(3 * fresh.nbytes / 2)  # room for one
    for _ in range(2):
        again = four_legs("tanh", K, (family,))[family].value
        assert np.array_equal(again, fresh)
        again[:] = 0.0  # a caller's own array
    assert averages_module._memory is not None and len(averages_module._memory._kept) == 1
    four_legs("tanh", 2 * K, (family,))
    assert len(averages_module._memory._kept) == 1  # the newer one
