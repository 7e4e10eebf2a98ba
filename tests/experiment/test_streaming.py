"""Moments that are gathered in batches are those of all members together."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from finitewidth.experiment.streaming import (
    Gathered,
    JointMoments,
    Rows,
    covariance_estimate,
    joint_moments,
    mean_estimate,
    merge,
    merge_joint,
    moments,
    rows_or_moments,
)

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.standard_gamma(2.0, (60, 2, 3)) + 1e3 * np.arange(3)  # skewed, far from zero


def gathered(make, join, sizes, values=VALUES, weight=None):
    weight = np.ones(len(values)) if weight is None else weight
    total, start = None, 0
    for size in sizes:
        part = make(jnp.asarray(values[start : start + size]), jnp.asarray(weight[start : start + size]))
        part = type(part)(*map(np.asarray, part))
        total, start = part if total is None else join(total, part), start + size
    return total


@pytest.mark.parametrize("sizes", [(1, 7, 50, 2), (60,)])
def test_merged_moments_are_those_of_all_members(sizes):
    total = gathered(joint_moments, merge_joint, sizes)
    d = VALUES - VALUES.mean(axis=0)
    for power_a, power_b, value in ((1, 1, total.M11), (2, 1, total.M21), (2, 2, total.M22)):
        expected = np.einsum("mra,mrb->rab", d**power_a, d**power_b)
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-8)
    simple = gathered(moments, merge, sizes)
    np.testing.assert_allclose(simple.mean, VALUES.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(simple.M2, np.sum(d**2, axis=0), rtol=1e-9)


@pytest.mark.parametrize("sizes", [(2, 52, 2, 2), (2,) * 30, (2,)])
def test_few_members_with_long_outputs_are_gathered_as_rows(sizes):
    """Vectors of three entries: two members stay rows, and from three rows on they are reduced."""
    whole, start = Gathered(), 0
    for size in sizes:
        part = rows_or_moments(jnp.asarray(VALUES[start : start + size]), jnp.ones(size))
        assert isinstance(part, Rows if size < 3 else JointMoments)
        whole, start = whole.joined(part), start + size
        assert sum(len(rows.weight) for rows in whole.waiting) < 3
    expected = gathered(joint_moments, merge_joint, (start,))
    for value, exact in zip(whole.total(), expected, strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-9, atol=1e-8)


def test_members_of_weight_zero_do_not_count_even_if_they_are_infinite():
    values, weight = VALUES.copy(), np.ones(60)
    values[[3, 31]], weight[[3, 31]] = np.inf, 0.0
    total = gathered(joint_moments, merge_joint, (20, 20, 20), values, weight)
    kept = np.delete(VALUES, [3, 31], axis=0)
    assert total.count == 58
    np.testing.assert_allclose(total.mean, kept.mean(axis=0), rtol=1e-12)
    whole_batch_lost = gathered(moments, merge, (30, 30), values, np.repeat([0.0, 1.0], 30) * weight)
    np.testing.assert_allclose(
        whole_batch_lost.mean, np.delete(VALUES[30:], 1, axis=0).mean(axis=0), rtol=1e-12
    )


def test_standard_errors_are_the_spread_of_repeated_estimates():
    """400 ensembles of 50 members with gamma-distributed values: stated errors are right to 15 %.

    The spread of 400 estimates is known to 3.5 %, and skewed values make the stated errors of the covariance
    scatter more, not their mean square.
    """
    runs = RANDOM.standard_gamma(4.0, (400, 50, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    means, covariances = [], []
    for run in runs:
        total = gathered(joint_moments, merge_joint, (50,), run[:, None])
        means.append(mean_estimate(total))
        covariances.append(covariance_estimate(total))
    for estimates in (means, covariances):
        spread = np.std([e.value for e in estimates], axis=0, ddof=1)
        stated = np.sqrt(np.mean([e.stderr**2 for e in estimates], axis=0))
        np.testing.assert_allclose(stated, spread, rtol=0.15)
    exact = 4 * np.array([[1.0, 0.5], [0.5, 1.25]])
    average = np.mean([e.value[0] for e in covariances], axis=0)
    error = np.std([e.value[0] for e in covariances], axis=0, ddof=1) / 20
    assert np.max(np.abs((average - exact) / error)) < 4


@pytest.mark.parametrize("members", [2, 3, 4])
def test_the_standard_error_of_a_covariance_is_that_of_all_possible_samples(members):
    """Points drawn with equal chance: all samples of so many members are listed, and c and m22 are known."""
    points = np.array([[0.0, 1.0], [2.0, -1.0], [3.0, 5.0]])
    d = points - points.mean(axis=0)
    samples = points[list(itertools.product(range(3), repeat=members))]
    deviations = samples - samples.mean(axis=1, keepdims=True)
    drawn = np.einsum("sma,smb->sab", deviations, deviations) / (members - 1)
    M11, M22 = d.T @ d / 3 * (members - 1), (d**2).T @ d**2 / 3 * members
    known = JointMoments(np.asarray(members), points.mean(axis=0), M11, np.zeros((2, 2)), M22)
    np.testing.assert_allclose(covariance_estimate(known).value, drawn.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(covariance_estimate(known).stderr, drawn.std(axis=0), rtol=1e-12)


def test_one_member_says_nothing_about_the_spread():
    total = gathered(joint_moments, merge_joint, (1,), VALUES[:1])
    assert np.all(np.isinf(mean_estimate(total).stderr)) and np.all(
        np.isinf(covariance_estimate(total).stderr)
    )
