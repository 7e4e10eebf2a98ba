"""The 1/n tensors of several inputs: closed forms, symmetries, independent routes, storage and messages.

Criteria: exact identities 1e-12 of a tensor's largest entry, two derivations of one number 1e-9, numerical
differentiation of a whole layer map 1e-7.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import FINE, VARIED, also_long, inputs, solved
from helpers.symmetries import SYMMETRIES, permuted
from hypothesis import given, settings
from hypothesis import strategies as st

import finitewidth as fw
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.four_legs.families import FAMILIES
from finitewidth.gaussian.two_legs.kernel_derivatives import _by_quadrature
from finitewidth.network.layers.activation import as_activation
from finitewidth.theory.feature_products import FourLegs
from finitewidth.theory.layers.activation import moments
from finitewidth.theory.layers.dense import Means, behind_weights
from finitewidth.theory.recursion import State, next_layer
from finitewidth.theory.steps import Step
from finitewidth.theory.tensors import MATRICES, SHAPES

EXACT, DERIVED = 1e-12, 1e-9


# --- deep linear networks ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
def test_deep_linear_networks_of_equal_widths_follow_polynomials_in_depth(count):
    lb, lW = 0.7, 0.4
    X = inputs(count)
    theory = fw.solve(fw.MLP((4, *[10] * 7), "linear", lambda_b=lb, lambda_W=lW), X)
    K = X[0] @ X[0] / 4
    mu = lb + lW * K
    for l in range(1, 8):
        exact = {
            "K": K,
            "Theta": l * mu,
            "V": 2 * (l - 1) * K**2,
            "D": lW * K**2 * l * (l - 1),
            "F": mu * K * l * (l - 1) / 2,
            "A": lW**2 * K**2 * (l - 1) * l * (2 * l - 1) / 3,
            "B": mu**2 * (l - 1) * l * (2 * l - 1) / 6,
            "Q": lW * mu * K * (l - 1) * l * (l + 1) / 6,
            "S": lW * mu**2 * l**2 * (l**2 - 1) / 12,
            "T": lW**2 * mu * K * l**2 * (l**2 - 1) / 12,
        } | dict.fromkeys(("G1", "H1", "P", "R", "U"), 0.0)
        for name, value in exact.items():
            assert theory.layer(l).arrays[name].flat[0] == pytest.approx(value, rel=EXACT, abs=EXACT)


def linear_tensors(net, X):
    """Tensors over n of a deep linear network with C_b = 0, C_W = 1, summed over the layers that create."""
    K = X @ X.T / net.widths[0]
    steps = [lb + lW * K for lb, lW in zip(net.lambda_b, net.lambda_W, strict=True)]
    tensors = dict.fromkeys("VDAFBQST", 0.0)
    outer = functools.partial(np.einsum, optimize=True)
    pairs = outer("ac,bd->abcd", K, K) + outer("ad,bc->abcd", K, K)
    for k in range(1, net.depth):
        Theta, later, weight = sum(steps[:k]), sum(net.lambda_W[k:]), 1 / net.widths[k]
        tied = weight * outer("ac,bd->abcd", Theta, K)
        both = weight * outer("ac,bd->abcd", Theta, Theta)
        for power, name in enumerate("VDA"):
            tensors[name] = tensors[name] + weight * later**power * pairs
        tensors["F"], tensors["Q"] = tensors["F"] + tied, tensors["Q"] + later * tied
        tensors["T"] = tensors["T"] + later**2 * tied.transpose(0, 1, 3, 2)
        tensors["B"], tensors["S"] = tensors["B"] + both, tensors["S"] + later * both
    return tensors


def test_deep_linear_networks_add_up_what_each_layer_creates_at_any_widths():
    net = fw.MLP(activation="linear", **{**VARIED, "C_b": 0.0, "C_W": 1.0})
    X = inputs(5)
    output = fw.solve(net, X).output
    for name, exact in linear_tensors(net, X).items():
        assert_close(getattr(output, name) / output.n, exact, EXACT)
    K = X @ X.T / 4
    pairs = np.einsum("ac,bd->abcd", K, K) + np.einsum("ad,bc->abcd", K, K)
    assert_close(output.V / output.n, sum(1 / n for n in net.widths[1:-1]) * pairs, EXACT)
    for name in ("G1", "H1", "P", "R", "U"):
        assert not getattr(output, name).any()


# --- symmetries and inputs -----------------------------------------------------------------------------


SMOOTH = ["tanh", "swish", "sin", "polynomial(0.2, 1, -0.3, 0.1)"]


@st.composite
def networks(draw):
    depth = draw(st.integers(2, 4))
    rates = st.floats(0.0, 2.0)
    per_layer = lambda values: tuple(draw(values) for _ in range(depth))  # noqa: E731
    return dict(
        widths=(3, *per_layer(st.integers(2, 90))),
        activation=draw(st.sampled_from(SMOOTH)),
        C_b=per_layer(st.floats(0.0, 0.5)),
        C_W=per_layer(st.floats(0.3, 1.5)),
        lambda_b=per_layer(rates),
        lambda_W=per_layer(rates),
    )


@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(fields=networks(), seed=st.integers(0, 10**6))
def test_every_tensor_has_its_symmetries(fields, seed):
    net = fw.MLP(**fields)
    output = fw.solve(net, 0.7 * inputs(3, 3, seed), layers=[net.depth]).output
    for name in MATRICES:
        assert_close(output.arrays[name], output.arrays[name].T, EXACT)
    for name, group in SYMMETRIES.items():
        for slots in group.split():
            assert_close(permuted(output.arrays[name], slots), output.arrays[name], EXACT)


def test_no_tensor_has_further_symmetries():
    for name, group in SYMMETRIES.items():
        tensor = getattr(solved("gelu").output, name)
        for slots in map("".join, itertools.permutations("abcd")):
            changed = np.abs(permuted(tensor, slots) - tensor).max() > 1e-6 * np.abs(tensor).max()
            assert changed == (slots not in group.split())


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_a_permutation_of_inputs_permutes_the_result(activation):
    order = np.array([2, 0, 1])
    net = fw.MLP(activation=activation, **VARIED)
    moved = fw.solve(net, inputs(3)[order], method=fw.Tensors(tolerance=FINE)).output
    for name, value in solved(activation).output.arrays.items():
        assert_close(moved.arrays[name], value[np.ix_(*[order] * value.ndim)], DERIVED)


def test_fewer_inputs_give_a_part_of_the_result():
    few = fw.solve(
        fw.MLP(activation="tanh", **VARIED), inputs(3)[:2], method=fw.Tensors(tolerance=FINE)
    ).output
    for name, value in solved().output.arrays.items():
        part = value[(slice(2),) * value.ndim]
        assert_close(few.arrays[name], part, DERIVED, scale=np.abs(value).max())


def test_repeated_inputs_give_repeated_blocks_bit_for_bit():
    X, twice = inputs(3), np.array([1, 0, 1, 2, 0])
    output = fw.solve(fw.MLP(activation="gelu", **VARIED), X[twice]).output
    first = np.array([0, 1, 0, 3, 1])  # where the same input stands for the first time
    for value in output.arrays.values():
        np.testing.assert_array_equal(value, value[np.ix_(*[first] * value.ndim)])


@pytest.mark.parametrize("activation", ["tanh", "gelu", "sin"])
def test_parallel_antiparallel_and_zero_inputs_are_limits_of_their_neighbours(activation):
    x, y = inputs(2)
    X = np.stack([x, 2 * x, -x, np.zeros(4), y])
    net = fw.MLP((4, 20, 30, 2), activation, C_W=1.2, C_b=0.0, lambda_b=0.3)
    exact = fw.solve(net, X, method=fw.Tensors(tolerance=1e-9)).output
    beside = fw.solve(net, X + 1e-7 * inputs(5, seed=1), method=fw.Tensors(tolerance=1e-9)).output
    for name, value in exact.arrays.items():
        assert np.isfinite(value).all()
        assert_close(beside.arrays[name], value, 1e-5)


def test_an_odd_network_flips_signs_with_its_input():
    x, y = inputs(2)
    net = fw.MLP((4, 20, 30, 2), "tanh", C_W=1.2, lambda_b=0.0)
    output = fw.solve(net, np.stack([x, y, -x]), method=fw.Tensors(tolerance=FINE)).output
    sign, same = np.array([1.0, 1.0, -1.0]), np.array([0, 1, 0])
    for value in output.arrays.values():
        signs = functools.reduce(np.multiply.outer, [sign] * value.ndim)
        assert_close(value, signs * value[np.ix_(*[same] * value.ndim)], DERIVED)


# --- independent routes --------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["tanh", "gelu", "swish"])
def test_derivatives_of_the_activation_and_of_the_kernel_agree(activation):
    x = inputs(3)
    K = x @ x.T / 4 + 0.1
    *by_kernel, _ = _by_quadrature(as_activation(activation), K)
    averages = moments(as_activation(activation), K, 1e-12)
    pairs = ~np.eye(3, dtype=bool)
    for response, d in zip((averages.sigma, averages.slope), by_kernel, strict=True):
        bend = (4 * d.first2, 2 * d.first_both, d.both2, 2 * d.first_both.T, 4 * d.first2.T)
        expected = (d.first, d.both, d.second, *bend)
        for average, exact in zip((*response.gradient, *response.curvature), expected, strict=True):
            assert_close(average[pairs], exact[pairs], DERIVED)


def kernel_map(function, K):
    """<u u> of two samples by the trapezoid rule in x, z = L x, as a function of the kernel alone."""
    x = np.arange(-9, 9.01, 0.25)
    weights = np.exp(-(x**2) / 2) * 0.25 / np.sqrt(2 * np.pi)
    first = jnp.sqrt(K[0, 0])
    slope = K[0, 1] / first
    z_1, z_2 = first * x[:, None], slope * x[:, None] + jnp.sqrt(K[1, 1] - slope**2) * x[None, :]
    return (function(z_1) * function(z_2) * np.multiply.outer(weights, weights)).sum()


@pytest.mark.parametrize("activation", ["tanh", *also_long("gelu")])
def test_mean_corrections_of_layer_three_are_derivatives_of_the_kernel_map(activation):
    net = fw.MLP(activation=activation, **VARIED)
    below, above = solved(activation, 2).layer(2), solved(activation, 2).layer(3)
    C, lW, r = net.C_W[2], net.lambda_W[2], net.widths[2] / net.widths[1]
    legs = [lambda z, order=order: net.activation.derivatives(z, 1)[order] for order in (0, 1)]
    maps = [lambda K, leg=leg: kernel_map(leg, (K + K.T) / 2) for leg in legs]
    curve, curve_of_slope = (np.asarray(jax.jit(jax.jacfwd(jax.jacfwd(f)))(below.K)) for f in maps)
    gradient_of_slope = np.asarray(jax.jit(jax.jacfwd(maps[1]))(below.K))
    corr, corr_of_slope = (np.einsum("abcd,abcd", c, below.V) / 2 for c in (curve, curve_of_slope))
    tied = below.D[0, 1] + below.F[0, :, 1, :] + below.F[0, :, 1, :].T
    H1 = lW * corr + C * (below.Theta[0, 1] * corr_of_slope + (gradient_of_slope * tied).sum())
    assert above.G1[0, 1] == pytest.approx(r * C * corr, rel=1e-7)
    assert above.H1[0, 1] == pytest.approx(r * H1, rel=1e-7)


class Recursions:
    """Statistics section 5 for two inputs, entry by entry; averages by a trapezoid rule over the plane.

    A function of two legs is a list of (coefficient, (order on leg 1, order on leg 2)).
    """

    def __init__(self, activation, K, Theta, hyperparameters, old):
        self.Th, self.old, (self.C, self.lW, self.r) = Theta, old, hyperparameters
        x = np.arange(-9, 9.01, 0.1)
        plane = np.stack([grid.reshape(-1) for grid in np.meshgrid(x, x, indexing="ij")])
        self.weights = np.exp(-(plane**2).sum(axis=0) / 2) * 0.01 / (2 * np.pi)
        z = np.linalg.cholesky(K) @ plane
        self.legs = np.asarray(activation.derivatives(jnp.asarray(z), 5))
        self.average = functools.cache(self.average)

    def average(self, *legs):
        """<product of legs>, each given as (order, sample)."""
        return functools.reduce(np.multiply, [self.legs[leg] for leg in legs], self.weights).sum()

    def mean(self, f, i, j):
        return sum(c * self.average((p, i), (q, j)) for c, (p, q) in f)

    def mean2(self, f, i, j, g, k, l):
        """<f_ij g_kl>."""
        return sum(c * d * self.average((p, i), (q, j), (s, k), (t, l)) for c, (p, q) in f for d, (s, t) in g)

    def d(self, f, leg):
        return [(c, (p + 1, q) if leg == 0 else (p, q + 1)) for c, (p, q) in f]

    def X(self, i, j):
        return [(self.lW, (0, 0)), (self.C * self.Th[i, j], (1, 1))]

    def Y(self, i, j):
        return [(self.lW, (1, 0)), (self.C * self.Th[i, j], (2, 1))]

    def Z(self, i, j):
        return [(self.lW, (1, 1)), (self.C * self.Th[i, j], (2, 2))]

    def one(self, f, i, j, tensor):
        """sum_a <d_a f_ij> tensor(a)."""
        return sum(self.mean(self.d(f, a), i, j) * tensor(s) for a, s in enumerate((i, j)))

    def two(self, f, i, j, tensor):
        """sum_ab <d_a d_b f_ij> tensor(a, b)."""
        legs = list(enumerate((i, j)))
        return sum(self.mean(self.d(self.d(f, a), b), i, j) * tensor(s, t) for a, s in legs for b, t in legs)

    def corr(self, f, i, j):
        G1, V = self.old["G1"], self.old["V"]
        fourth = 0.0
        for (a, s), (b, t) in itertools.product(enumerate((i, j)), repeat=2):
            twice = self.d(self.d(f, a), b)
            fourth += self.two(twice, i, j, lambda u, v, s=s, t=t: V[s, t, u, v])
        return self.two(f, i, j, lambda s, t: G1[s, t]) / 2 + fourth / 8

    def G1(self, i, j):
        return self.r * self.C * self.corr(SS, i, j)

    def H1(self, i, j):
        D, F = self.old["D"], self.old["F"]
        tied = self.two(DD, i, j, lambda a, b: D[i, j, a, b] + F[i, a, j, b] + F[i, b, j, a]) / 2
        slope = self.old["H1"][i, j] * self.mean(DD, i, j) + self.Th[i, j] * self.corr(DD, i, j) + tied
        return self.r * (self.lW * self.corr(SS, i, j) + self.C * slope)

    def V(self, i, j, k, l):
        moved = self.two(SS, i, j, lambda a, b: self.two(SS, k, l, lambda c, d: self.old["V"][a, b, c, d]))
        created = self.mean2(SS, i, j, SS, k, l) - self.mean(SS, i, j) * self.mean(SS, k, l)
        return self.C**2 * (created + self.r / 4 * moved)

    def D(self, i, j, k, l):
        X, V, D = self.X(i, j), self.old["V"], self.old["D"]
        created = self.mean2(X, i, j, SS, k, l) - self.mean(X, i, j) * self.mean(SS, k, l)
        moved = self.two(X, i, j, lambda a, b: self.two(SS, k, l, lambda c, d: V[a, b, c, d])) / 4
        moved += self.C / 2 * self.mean(DD, i, j) * self.two(SS, k, l, lambda c, d: D[i, j, c, d])
        return self.C * (created + self.r * moved)

    def A(self, i, j, k, l):
        X, W, V, D = self.X(i, j), self.X(k, l), self.old["V"], self.old["D"]
        first, second = self.C * self.mean(DD, i, j), self.C * self.mean(DD, k, l)
        moved = self.two(X, i, j, lambda a, b: self.two(W, k, l, lambda c, d: V[a, b, c, d])) / 4
        moved += first / 2 * self.two(W, k, l, lambda c, d: D[i, j, c, d])
        moved += second / 2 * self.two(X, i, j, lambda a, b: D[k, l, a, b])
        moved += first * second * self.old["A"][i, j, k, l]
        return self.mean2(X, i, j, W, k, l) - self.mean(X, i, j) * self.mean(W, k, l) + self.r * moved

    def F(self, i, k, j, l):  # F_1324
        moved = self.one(DS, i, k, lambda a: self.one(DS, j, l, lambda b: self.old["F"][i, a, j, b]))
        return self.C**2 * (self.mean2(DS, i, k, DS, j, l) * self.Th[i, j] + self.r * moved)

    def B(self, i, k, j, l):  # B_1324
        created = self.mean2(DD, i, k, DD, j, l) * self.Th[i, j] * self.Th[k, l]
        moved = self.mean(DD, i, k) * self.mean(DD, j, l) * self.old["B"][i, k, j, l]
        return self.C**2 * (created + self.r * moved)

    def P(self, o, i, j, k):  # P_0123
        B, P = self.old["B"], self.old["P"]
        created = self.average((2, o), (1, i), (1, j), (0, k)) * self.Th[o, i] * self.Th[o, j]
        bent = self.average((2, o), (0, k)) * (B[o, o, i, j] + P[o, i, j, o])
        straight = self.mean(DD, o, k) * P[o, i, j, k]
        return self.C**2 * (created + self.r * self.mean(DD, i, j) * (bent + straight))

    def Q(self, o, i, j, k):  # Q_0123
        Y, F, Q = self.Y(o, i), self.old["F"], self.old["Q"]
        moved = self.one(Y, o, i, lambda a: self.one(DS, j, k, lambda b: F[o, a, j, b]))
        moved += self.C * self.mean(DD, o, i) * self.one(DS, j, k, lambda b: Q[o, i, j, b])
        return self.C * (self.mean2(Y, o, i, DS, j, k) * self.Th[o, j] + self.r * moved)

    def R(self, o, i, j, k):  # R_0123
        Y, B, P, R = self.Y(o, i), self.old["B"], self.old["P"], self.old["R"]
        dY = self.d(Y, 0)
        created = self.mean2(dY, o, i, DD, j, k) * self.Th[o, j] * self.Th[o, k]
        moved = self.mean(dY, o, i) * B[o, o, j, k] + self.one(Y, o, i, lambda a: P[o, j, k, a])
        moved += self.C * self.mean(DD, o, i) * R[o, i, j, k]
        return self.C * (created + self.r * self.mean(DD, j, k) * moved)

    def S(self, i, j, k, l):  # S_1234
        Z = self.Z(i, j)
        created = self.mean2(Z, i, j, DD, k, l) * self.Th[i, k] * self.Th[j, l]
        moved = self.mean(Z, i, j) * self.old["B"][i, j, k, l]
        moved += self.C * self.mean(DD, i, j) * self.old["S"][i, j, k, l]
        return self.C * (created + self.r * self.mean(DD, k, l) * moved)

    def T(self, i, k, l, j):  # T_1342
        Y, W, F, Q = self.Y(i, k), self.Y(j, l), self.old["F"], self.old["Q"]
        first, second = self.C * self.mean(DD, i, k), self.C * self.mean(DD, j, l)
        moved = self.one(Y, i, k, lambda a: self.one(W, j, l, lambda b: F[i, a, j, b]))
        moved += second * self.one(Y, i, k, lambda a: Q[j, l, i, a])
        moved += first * self.one(W, j, l, lambda b: Q[i, k, j, b])
        moved += first * second * self.old["T"][i, k, l, j]
        return self.mean2(Y, i, k, W, j, l) * self.Th[i, j] + self.r * moved

    def U(self, i, l, j, k):  # U_1423
        created = self.average((2, i), (2, j), (1, k), (1, l)) * self.Th[i, j] * self.Th[i, k] * self.Th[j, l]
        moved = self.mean(DD, i, l) * self.mean(DD, j, k) * self.old["U"][i, l, j, k]
        return self.C**2 * (created + self.r * moved)


SS, DS, DD = [(1.0, (0, 0))], [(1.0, (1, 0))], [(1.0, (1, 1))]  # s s, s' s, s' s'


def random_statistics(seed):
    """Random G1, H1 and tensors of two inputs with the symmetries that they must have."""
    normal = np.random.default_rng(seed).standard_normal
    statistics = {name: (m := normal((2, 2))) + m.T for name in ("G1", "H1")}
    for name, group in SYMMETRIES.items():
        tensor = normal((2, 2, 2, 2))
        statistics[name] = sum(permuted(tensor, slots) for slots in group.split())
    return statistics


def as_state(K, Theta, old):
    blocks = {
        (shape.row, shape.column): np.einsum(f"{shape.printed}->abcd", old[name])
        for name, shape in SHAPES.items()
    }
    return State(K, Theta, old["G1"], old["H1"], blocks)


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
def test_a_step_of_blocks_is_the_recursion_of_every_entry(activation):
    function, old = as_activation(activation), random_statistics(5)
    K, Theta = np.array([[0.9, 0.35], [0.35, 0.6]]), np.array([[1.3, -0.4], [-0.4, 0.8]])
    pairs = moments(function, K, 1e-12)
    quadruples = FourLegs.of(four_legs(function, K, FAMILIES, tolerance=FINE))
    layer = fw.Dense(5, C_b=0.2, C_W=1.4, lambda_b=0.6, lambda_W=0.7)
    above = behind_weights(layer, pairs.sigma.value, Theta * pairs.slope.value)
    ratio = 1.25  # n_l / n_(l-1)
    step = Step(function, layer, ratio, Means(K, Theta), above, pairs, smooth=True, bare=False)
    state = next_layer(as_state(K, Theta, old), step, quadruples)
    statistics = state.tensors() | {"G1": state.G1, "H1": state.H1}
    slow = Recursions(function, K, Theta, (1.4, 0.7, 1.25), old)
    for name, value in statistics.items():
        labels = itertools.product((0, 1), repeat=value.ndim)
        exact = np.reshape([getattr(slow, name)(*label) for label in labels], value.shape)
        assert_close(value, exact, DERIVED)
