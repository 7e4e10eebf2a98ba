"""Orthogonal weights: deep limits in closed form, and every form of the tensors against every other.

Criteria: exact identities 1e-12 of the largest entry, large depths 1e-3, two routes 1e-7, pulls below 4.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.experiment.layers.dense import orthogonal
from finitewidth.theory.tensors import TENSORS
from finitewidth.theory.unrolled.pair_corrections import pair_corrections
from finitewidth.theory.vertex.fields import fields

EXACT = 1e-12
RANDOM = np.random.default_rng(3)
MIXED = ("orthogonal", "gaussian", "orthogonal", "gaussian")


def same(value, exact, tolerance=1e-7):
    """Within a fraction of the largest entry, or of one."""
    np.testing.assert_allclose(value, exact, rtol=0, atol=tolerance * max(1.0, np.abs(exact).max()))


# --- large depth ----------------------------------------------------------------------------------------


def test_norms_and_angles_do_not_fluctuate_in_deep_linear_networks():
    """V = -(K13 K24 + K14 K23) at every depth; A, B, D, F, G1, H1, P, R and U vanish."""
    lb, lW, X = 0.5, 1.3, RANDOM.normal(size=(2, 6))
    theory = fw.solve(fw.MLP([6] * 7, "linear", lambda_b=lb, lambda_W=lW, weights="orthogonal"), X)
    for l in range(1, 7):
        layer, q = theory.layer(l), (l - 1) * l * (2 * l - 1) / 6
        K, mu = layer.K, lb + lW * layer.K
        exact = dict.fromkeys(("A", "B", "D", "F", "P", "R", "U"), np.zeros((2,) * 4))
        exact["V"] = -np.einsum("ac,bd->abcd", K, K) - np.einsum("ad,bc->abcd", K, K)
        exact["Q"] = lW * np.einsum("bd,ac->abcd", K, mu) * l * (l - 1) / 2
        exact["S"] = lW * np.einsum("ac,bd->abcd", mu, mu) * q
        exact["T"] = lW**2 * np.einsum("bc,ad->abcd", K, mu) * q
        for name, value in exact.items():
            same(layer.arrays[name], value, EXACT * 10)  # entries up to ten
        same(layer.G1, 0.0, EXACT)
        same(layer.H1, 0.0, EXACT)


@pytest.mark.parametrize("lb, names", [(0.7, "VFB"), (0.0, "VFBDA")])
def test_fluctuations_of_relu_grow_more_slowly(lb, names):
    """V/K^2 = 3l - 5 where Gaussian weights have 5(l - 1); F and B are halved; D has two thirds."""
    lW, X = 1.1, np.array([[0.6, -1.1, 0.4]])
    net = fw.MLP([3] * 9, "relu", C_W=2.0, lambda_b=lb, lambda_W=lW, weights="orthogonal")
    theory = fw.solve(net, X)
    for l in range(1, 9):
        layer, q = theory.layer(l), (l - 1) * l * (2 * l - 1) / 6
        K = layer.K.item()
        mu = lb + lW * K / 2
        exact = {"V": (3 * l - 5) * K**2, "F": K * mu * l * (l - 1) / 2, "B": mu**2 * q}
        exact |= {"D": 2 * K * mu * l * (l - 1), "A": mu**2 * (5 * q + l * (l - 1) / 2)}
        if l == 1:
            exact["V"] = -2 * K**2
        for name in names:
            same(layer.arrays[name].item(), exact[name], EXACT * 1000)  # of entries up to a thousand
        assert layer.G1.item() == pytest.approx(0, abs=EXACT) and layer.H1.item() == pytest.approx(
            0, abs=1e-9
        )


def test_fluctuations_of_tanh_saturate_with_depth():
    """Where Gaussian weights have V/K^2 = (2/3) l, F/(K Theta) = l/4, ... the limits are reached as log(l)/l.

    With lambda_b = 1/l biases have two thirds of the NTK: c_b = 2/3, w = 1/3.
    """
    depths, b, w = np.array([1000, 2000, 4000]), 2 / 3, 1 / 3
    net = fw.MLP([4] * 4001, "tanh", lambda_b=[1.0 / k for k in range(1, 4001)], weights="orthogonal")
    theory = fw.solve(net, np.full((1, 4), math.sqrt(0.5)), layers=depths.tolist())
    units = {"V": (2, 0, 0), "G1": (1, 0, 0), "F": (1, 1, 0), "B": (0, 2, 1), "P": (0, 2, 0), "Q": (0, 2, 0)}
    units |= {name: (-1, 3, 0) for name in "RST"} | {"U": (-1, 3, 1)}
    limits = {"V": -2, "G1": 2, "F": -2 / 3, "B": 2, "P": -1 / 3, "Q": -b / 9, "R": -(2 * b + 3 * w) / 9}
    limits |= {"S": w / 3, "T": 2 / 27 * b**2, "U": 1 / 2}
    approach = np.stack([np.ones(3), np.log(depths) / depths, 1 / depths], axis=1)
    for name, limit in limits.items():
        k, theta, power = units[name]
        layers = [theory.layer(l) for l in depths.tolist()]
        found = [
            l.arrays[name].item() / l.K.item() ** k / l.Theta.item() ** theta * l.index**power for l in layers
        ]
        assert np.linalg.solve(approach, found)[0] == pytest.approx(limit, rel=1e-3)


# --- every form of the theory ---------------------------------------------------------------------------

CASES = {
    "tanh, narrower than the inputs": ((4, 3, 5, 6, 3), "tanh", "orthogonal"),
    "gelu, a Gaussian readout": ((4, 8, 8, 5), "gelu", ("orthogonal", "orthogonal", "gaussian")),
    "tanh and Gaussian layers between": ((2, 7, 4, 9, 5), ("tanh", "erf", "tanh"), MIXED),
}


@functools.cache
def solved(case: str):
    widths, activation, weights = CASES[case]
    net = fw.MLP(widths, activation, 0.2, 1.3, 0.4, 1.7, weights=weights)
    X = np.random.default_rng(4).normal(size=(3, widths[0]))
    return net, X, fw.solve(net, X)


@pytest.mark.parametrize("case", CASES)
def test_unrolled_tensors_are_those_of_the_recursion(case):
    net, X, theory = solved(case)
    unrolled, vectors = fw.unroll(net, X), np.random.default_rng(5).normal(size=(4, 3))
    contracted = unrolled.contract_all(dict.fromkeys(TENSORS, vectors))
    for name in TENSORS:
        tensor = theory.output.arrays[name]
        same(unrolled.tensor(name), tensor)
        same(contracted[name], np.einsum("abcd,a,b,c,d", tensor, *vectors))


def test_the_first_layer_has_a_vertex_in_every_form():
    net = fw.MLP((3, 5, 2), "tanh", weights="orthogonal", C_b=0.3)
    X = RANDOM.normal(size=(2, 3))
    k = X @ X.T / 3
    exact = -(3 / 5) * (np.einsum("ac,bd->abcd", k, k) + np.einsum("ad,bc->abcd", k, k))
    same(fw.solve(net, X).layer(1).V, exact, EXACT)
    same(fw.unroll(net, X, layer=1).tensor("V"), exact, EXACT)
    assert not fw.solve(net, X).layer(1).D.any()


def test_sampled_contractions_have_the_exact_mean():
    net, X, theory = solved("tanh, narrower than the inputs")
    vectors = np.random.default_rng(6).normal(size=(4, 3))
    for name in ("V", "D", "F", "B", "T"):
        found = fw.unroll(net, X).sample_contraction(name, vectors, samples=4000, key=1)
        exact = np.einsum("abcd,a,b,c,d", theory.output.arrays[name], *vectors)
        assert abs(found.value - exact) < 4 * found.stderr


@pytest.mark.parametrize("case", CASES)
def test_pairs_alone_have_the_corrections_of_all(case):
    net, X, theory = solved(case)
    pairs = pair_corrections(net, X)
    same(pairs.G1, theory.output.G1)
    same(pairs.H1, theory.output.H1)


@pytest.mark.parametrize("case", CASES)
def test_the_vertex_contracts_alike_from_slices_and_whole(case):
    net, X, theory = solved(case)
    P = np.random.default_rng(7).normal(size=(2, 3, 3))
    P = P + P.transpose(0, 2, 1)
    for preactivations in (fields(net, X), fields(net, X).with_averages()):
        found = preactivations.vertex(net.depth).contract(P, P[:1])
        same(found.straight, np.einsum("abcd,mcd->mab", theory.output.V, P))
        same(found.crossed, np.einsum("acbd,qcd->qab", theory.output.V, P[:1]))
        same(found.G1, theory.output.G1)


@pytest.mark.parametrize("case", CASES)
def test_one_input_agrees_with_many(case):
    net, X, theory = solved(case)
    one = fw.solve(net, X[:1])
    for l in range(1, net.depth + 1):
        for name, value in one.layer(l).arrays.items():
            whole = theory.layer(l).arrays[name]
            same(value.item(), whole[(0,) * whole.ndim])


def test_gaussian_weights_in_words_are_the_default():
    assert fw.MLP((2, 4, 1), "tanh") == fw.MLP((2, 4, 1), "tanh", weights="gaussian")


# --- weights as drawn -----------------------------------------------------------------------------------


def test_blocks_of_columns_are_orthogonal_to_each_other():
    W = np.asarray(orthogonal(jax.random.normal(jax.random.key(1), (70, 70)))) / math.sqrt(70)
    same(W @ W.T, np.eye(70), 1e-13)


@pytest.mark.parametrize("width, fan_in", [(3, 5), (5, 3), (4, 4)])
def test_weights_are_a_corner_of_a_haar_matrix(width, fan_in):
    """Isometries to rounding, with the fourth moments of Haar matrices, m(m+1) : -m over (m-1)(m+2)."""
    normals = jax.random.normal(jax.random.key(0), (20000, width, fan_in))
    W = np.asarray(jax.vmap(orthogonal)(normals))
    m = max(width, fan_in)
    square = W @ W.transpose(0, 2, 1) if width <= fan_in else W.transpose(0, 2, 1) @ W
    same(square, np.broadcast_to(m * np.eye(min(width, fan_in)), square.shape), 1e-12)
    alike, apart = m * (m + 1) / ((m - 1) * (m + 2)), -m / ((m - 1) * (m + 2))
    moments = {
        alike + 2 * apart: W[:, 0, 0] ** 2 * W[:, 0, 1] ** 2,
        alike: W[:, 0, 0] ** 2 * W[:, 1, 1] ** 2,
        apart: W[:, 0, 0] * W[:, 0, 1] * W[:, 1, 0] * W[:, 1, 1],
        3 * (alike + 2 * apart): W[:, 0, 0] ** 4,
        0.0: W[:, 0, 0],  # the sign is fixed
    }
    for exact, values in moments.items():
        assert abs(values.mean() - exact) < 4 * values.std() / math.sqrt(len(values))


def test_members_keep_their_weights_in_any_batch():
    net, X, Y = (
        fw.MLP((2, 6, 6, 1), "tanh", weights="orthogonal"),
        RANDOM.normal(size=(2, 2)),
        np.ones((2, 1)),
    )
    options = dict(algorithm=fw.GradientDescent(0.1, steps=3), members=6, key=0)
    one, other = (
        fw.train_ensemble(net, X, Y, X, **options, run=fw.Run(batch_size=size)).mean.value for size in (6, 2)
    )
    np.testing.assert_allclose(one, other, rtol=1e-13)


@pytest.mark.long
def test_sampled_networks_have_these_tensors():
    """Two inputs, tanh, three layers of 48 neurons: what is left behind order 1/n is a few percent."""
    net = fw.MLP((3, 48, 48, 3), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5, weights="orthogonal")
    X = np.array([[0.9, -0.4, 0.6], [0.3, 1.0, -0.7]])
    sampled = fw.sample_statistics(net, X, members=8000, key=2, tensors=("V", "F", "B"))
    out, gaussian = fw.solve(net, X).output, fw.solve(net.replace(weights="gaussian"), X).output
    for name in ("V", "F", "B"):
        estimate, exact = getattr(sampled, name), out.arrays[name]
        slack = 0.1 * np.abs(exact).max()  # a few times 1/n
        assert np.all(np.abs(estimate.value - exact) < 4 * estimate.stderr + slack)
        assert np.max(np.abs(estimate.value - gaussian.arrays[name]) / estimate.stderr) > 10


def test_the_width_of_an_orthogonal_layer_counts_only_beyond_its_inputs():
    wide, narrow = (fw.Dense(width, weights="orthogonal") for width in (12, 1))
    assert wide.with_fewer_outputs(8, (6,)) is wide
    assert narrow.with_fewer_outputs(8, (6,)).width == 6
    assert fw.Dense(12).with_fewer_outputs(8, (6,)).width == 8


# --- training and Bayes' rule ----------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "linear"])
def test_replays_are_those_of_eigenmodes(activation):
    """A and B are covariances still; those of linear networks vanish, and G1 and V alone are left."""
    net = fw.MLP((2, 10**7, 10**7, 2), activation, C_b=0.2, C_W=1.1, weights="orthogonal")
    X, Y, X_test = RANDOM.normal(size=(2, 2)), RANDOM.normal(size=(2, 2)), np.array([[0.3, 0.9]])
    known = fw.predict(net, X, Y, X_test, algorithm=fw.GradientDescent(0.05, 5))
    found = fw.predict(net, X, Y, X_test, algorithm=fw.GradientDescent([0.05] * 5))
    largest = max(np.abs(part).max() for part in known.contributions.values())
    for name, part in known.contributions.items():
        np.testing.assert_allclose(found.contributions[name], part, rtol=0, atol=1e-7 * largest)


def test_hidden_layers_given_data_follow_networks_of_the_prior():
    net = fw.MLP((2, 32, 32, 1), "tanh", C_W=1.3, weights=("orthogonal", "orthogonal", "gaussian"))
    X, Y = np.array([[1.0, 0.3], [-0.4, 0.8]]), np.array([[1.5], [-1.2]])
    posterior = fw.bayes.posterior(net, X, Y, noise=0.2, order=1)
    sampled = fw.bayes.sample(net, X, Y, members=8000, key=1, noise=0.2, layers=True)
    assert np.all(np.abs(sampled.mean.value - posterior.mean) < 4 * sampled.mean.stderr + 5e-3)
    for l in (1, 2):
        known, found = posterior.layer(l), sampled.layers[l]
        assert np.all(np.abs(found.kernel.value - known.kernel) < 4 * found.kernel.stderr + 5e-3)
        moment = found.second_moment
        assert np.all(np.abs(moment.value - known.second_moment) < 4 * moment.stderr + 5e-3)
    same(posterior.layer(1).shift, 0.0, 1e-14)  # inputs fix it


# --- refusals -------------------------------------------------------------------------------------------


def test_what_is_not_known_is_refused_by_name():
    orthogonal = fw.Dense(4, weights="orthogonal")
    with refused("weights must be 'gaussian' or 'orthogonal', got 'unitary'"):
        fw.Dense(4, weights="unitary")
    with refused("weights has 2 entries for 3 layers"):
        fw.MLP((2, 4, 4, 1), "tanh", weights=("orthogonal", "gaussian"))
    residual = fw.Network(2, orthogonal, fw.Residual("tanh", orthogonal), "tanh", fw.Dense(1))
    with refused("not beside the Residual of this network; use weights='gaussian'"):
        fw.solve(residual, np.eye(2))
    assert fw.solve(residual, np.eye(2), order=0).output.K.shape == (2, 2)
    with refused("weights='gaussian', the hidden layers may stay orthogonal"):
        fw.bayes.sample(
            fw.Network(2, fw.Dense(4), "tanh", fw.Dense(1, weights="orthogonal")),
            np.eye(2), np.ones((2, 1)), members=10, key=0, noise=0.1,
        )  # fmt: skip
    prepared = fw.prepare(fw.MLP((4, 8, 8, 2), "tanh", weights="orthogonal"), np.eye(4)[:2], np.ones((2, 2)))
    assert prepared.with_width(64).n == 64
    with refused("do not share tensors"):
        prepared.with_width(3)


def test_weights_survive_every_form_of_a_network():
    net = fw.MLP((2, 4, 4, 1), "tanh", weights=("orthogonal", "gaussian", "orthogonal"))
    assert fw.MLP.from_toml(net.to_toml()) == net
    assert fw.Network.from_toml(fw.Network(2, *net.layers).to_toml()) == net
    assert net.with_widths((2, 5, 5, 1)).weights == net.weights
    assert "weights" not in fw.MLP((2, 4, 1), "tanh").to_dict()
    assert jnp.all(jnp.isfinite(fw.predict(net, np.eye(2), np.ones((2, 1)), order=0).mean))
