"""PDLT section inf.2.3: means and covariances of trained networks at order 1/n."""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import (
    Comparison,
    agree,
    differ,
    extrapolated,
    mean_of,
    pull,
    significant,
)
from finitewidth.comparison.statements.linear_models import stochastic_metric
from finitewidth.comparison.statements.problems import (
    DATA,
    PDLT,
    TRAINING,
    X,
    Y,
    derivatives,
    mlp,
    networks,
    of_members,
    predicted,
    trained,
)
from finitewidth.comparison.statements.projectors import printed_projectors, symmetrized
from finitewidth.core.estimate import Estimate
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.algorithms.newton import TwoStep
from finitewidth.theory.records import Layer
from finitewidth.theory.solve import solve
from finitewidth.training.first_order.eigenmodes import Modes
from finitewidth.training.first_order.mean_and_covariance import corrections
from finitewidth.training.first_order.prepared import Prepared, prepare
from finitewidth.training.infinite.bayes import rates as bayesian_rates

WIDTH, RATE = 32, 0.2
QUICK, MANY, WIDE = 6000, 40_000, 64
STOPPED = GradientDescent(0.12, 12)
WIRED, WIRED_WIDTHS = 200_000, (16, 32)
t = slice(TRAINING)


@functools.cache
def prepared() -> Prepared:
    """The library's predictor at order 1/n."""
    return prepare(mlp(WIDTH, outputs=2), *DATA)


@functools.cache
def statistics() -> Layer:
    """All tensors of the output layer."""
    return solve(mlp(WIDTH, outputs=2), X).output


def universal() -> dict[str, np.ndarray]:
    """Projectors of the two-step solution."""
    h = np.linalg.inv(statistics().H[t, t])
    zero = np.zeros((TRAINING,) * 6)
    two = {"A": np.zeros((TRAINING,) * 4), "B": np.einsum("ac,bd->abcd", h, h) / 2}
    return two | {"IB": -np.einsum("ad,be,cf->abcdef", h, h, h) / 6, "IA": zero, "IIA": zero, "IIB": zero}


def algorithms() -> dict[str, tuple[AbstractAlgorithm, dict[str, np.ndarray]]]:
    """Three algorithms that train fully, with their projectors in sample space."""
    H = statistics().H[t, t]
    return {
        "flow": (GradientFlow(), symmetrized(printed_projectors(H, 0.0))),
        "descent": (GradientDescent(RATE), symmetrized(printed_projectors(H, RATE))),
        "two steps": (TwoStep(), universal()),
    }


def fluctuation() -> np.ndarray:
    """(inf.162) as printed, (N, n_L)."""
    s = statistics()
    h, e, n_L = np.linalg.inv(s.H[t, t]), np.einsum, 2
    source = e("dabc,ab->dc", s.A[:, t, t, t], h) + e("dbac,ab->dc", s.B[:, t, t, t], h)
    source = source + n_L * e("dcab,ab->dc", s.B[:, t, t, t], h)
    return source @ h @ Y


def dntk(Z: dict[str, np.ndarray]) -> np.ndarray:
    """(inf.163), its last line with the last two indices of the projector exchanged."""
    s, e, n_L = statistics(), np.einsum, 2
    P, Q = s.P, s.Q
    first = 2 * (P[:, t, t, t] + Q[:, t, t, t] + n_L * e("dbac->dabc", Q[:, t, t, t]))
    second = e("adbc->dabc", n_L * P[t, :, t, t] + Q[t, :, t, t]) + e("abdc->dabc", Q[t, t, :, t])
    third = e("adbc->dabc", P[t, :, t, t] + n_L * Q[t, :, t, t]) + e("abdc->dabc", Q[t, t, :, t])
    form = (
        e("dabc,abcf->df", first, Z["B"])
        + e("dabc,abcf->df", second, Z["A"])
        + e("dabc,abfc->df", third, Z["A"])
    )
    return -form @ Y


def cubic(source: np.ndarray) -> np.ndarray:
    """The common last line of (inf.164) and (inf.165)."""
    K, e = statistics().K[t, t], np.einsum
    pairs = Y @ Y.T + 2 * K
    direct = e("xabc,ai,bc->xi", source, Y, pairs)
    return direct + e("xabc,bi,ca->xi", source, Y, K) + e("xabc,ci,ab->xi", source, Y, K)


def ddntk_1(Z: dict[str, np.ndarray]) -> np.ndarray:
    """(inf.164) as printed."""
    R, e = statistics().R, np.einsum
    legs = R[:, t, t, t]
    first = sum(e(f"xabc,{order}->xdef", legs, Z["IB"]) for order in ("abcdef", "bcaefd", "cabfde"))
    second = e("axbc,abcdef->xdef", R[t, :, t, t], Z["IA"]) + e("abcx,abcefd->xdef", R[t, t, t, :], Z["IA"])
    return -cubic(first + second + e("acxb,abcfde->xdef", R[t, t, :, t], Z["IA"]))


def ddntk_2(Z: dict[str, np.ndarray]) -> np.ndarray:
    """(inf.165) with the projectors of T and U in its first line exchanged."""
    s, e = statistics(), np.einsum
    first = e("xabc,abcdef->xdef", s.S[:, t, t, t], Z["IIB"])
    first = (
        first
        + e("xabc,cabfde->xdef", s.T[:, t, t, t], Z["IIB"])
        + e("xabc,bcaefd->xdef", s.U[:, t, t, t], Z["IIB"])
    )
    second = e("abxc,abcefd->xdef", s.S[t, t, :, t], Z["IIA"]) + e(
        "axcb,abcdef->xdef", s.T[t, :, t, t], Z["IIA"]
    )
    return -cubic(first + second + e("acbx,abcfde->xdef", s.U[t, t, t, :], Z["IIA"]))


def projected(source: np.ndarray) -> np.ndarray:
    """(inf.160): a source on test inputs minus the part that the training inputs already explain, over n."""
    H = statistics().H
    return (source - H[:, t] @ np.linalg.solve(H[t, t], source[t]))[TRAINING:] / WIDTH


@claim(
    "inf.160-165",
    f"{PDLT} (inf.160)-(inf.165)",
    "The mean of trained networks is corrected by the fluctuation of the NTK, the dNTK and both ddNTKs, "
    "with the printed contractions.",
    "closed form: printed contractions over samples with printed projectors, against eigenmodes; flow, "
    "descent, two steps",
    corrected="(inf.162): opposite sign; (inf.163): Z_B symmetrized, and Z_A with its last two indices "
    "exchanged in the last line; (inf.165): the projectors of T and U in the first line exchanged",
)
def mean_prediction() -> Iterator[Comparison]:
    H = statistics().H
    for label, (algorithm, Z) in algorithms().items():
        prediction = prepared().predict(algorithm)
        parts = {
            "ntk_fluctuation": -fluctuation(),
            "dntk": dntk(Z),
            "ddntk_1": ddntk_1(Z),
            "ddntk_2": ddntk_2(Z),
        }
        for name, source in parts.items():
            yield agree(f"{name}, {label}", projected(source), prediction.contributions[name], 1e-6)
        as_printed = projected(fluctuation())
        yield differ(
            f"(inf.162) as printed, {label}", as_printed, prediction.contributions["ntk_fluctuation"], 0.1
        )
        free = H[TRAINING:, t] @ np.linalg.solve(H[t, t], Y)  # (inf.161)
        by_kernel = prediction.infinite_width.mean + prediction.contributions["ntk_mean"]
        yield agree(f"kernel prediction, {label}", free, by_kernel, 1e-8)


@claim(
    "inf.160-165.networks",
    f"{PDLT} (inf.160)-(inf.166)",
    "The mean of trained networks of finite width agrees with order 1/n, and not with infinite width.",
    f"trained networks: {QUICK} of width {WIDE}, 12 steps, two outputs",
)
def trained_mean() -> Iterator[Comparison]:
    net = mlp(WIDE, outputs=2)
    theory, infinite = (predicted(net, *DATA, algorithm=STOPPED, order=order) for order in (1, 0))
    mean, ensemble = trained(net, DATA, STOPPED, QUICK, 11)
    yield pull("mean", theory.mean, mean)
    yield pull("covariance", theory.covariance, ensemble.covariance)
    gap = Estimate(mean.value - infinite.mean, mean.stderr)
    yield significant("mean minus the mean at infinite width", gap)


@claim(
    "inf.160-165.many-networks",
    f"{PDLT} (inf.160)-(inf.166)",
    "The mean and covariance of trained networks agree with order 1/n, for tanh and for gelu.",
    f"trained networks: {MANY} of width 128, tanh and gelu, 12 steps, two outputs",
    long=True,
)
def trained_many() -> Iterator[Comparison]:
    for activation in ("tanh", "gelu"):
        net = mlp(128, outputs=2, activation=activation)
        theory = predicted(net, *DATA, algorithm=STOPPED)
        mean, ensemble = trained(net, DATA, STOPPED, MANY, 12)
        yield pull(f"mean of {activation}", theory.mean, mean)
        yield pull(f"covariance of {activation}", theory.covariance, ensemble.covariance)


# --- covariance --------------------------------------------------------------------------------------


@claim(
    "inf.166-167",
    f"{PDLT} (inf.166), (inf.167)",
    "Outputs are wired together: the dNTK causes a covariance between different outputs if their targets do "
    "not vanish.",
    "closed form: the printed term and its Gaussian contractions over all outputs and samples, two-step "
    "projectors",
    corrected="(inf.167), last line: Q with both index orders, one for each order of the targets",
)
def dntk_covariance() -> Iterator[Comparison]:
    covariance, library = printed_covariance(), dntk_covariance_of_the_library()
    B = slice(TRAINING, None)
    yield agree("covariance", covariance[:, B, :, B], library[:, B, :, B] / WIDTH, 1e-8)
    wired = covariance[0, B, 1, B]
    yield differ("between different outputs", 0.0, wired, 1e-6, scale=1.0)


def dntk_with_outputs(n_L: int) -> np.ndarray:
    """E[dH_{i0 i1 i2; 012} z_{i3; 3}] with axes i0 i1 i2 i3 and samples 0 1 2 3."""
    s, e, I = statistics(), np.einsum, np.eye(n_L)
    return (
        e("im,jk,abcd->ijkmabcd", I, I, s.P)
        + e("ij,km,abcd->ijkmabcd", I, I, s.Q)
        + e("ik,jm,acbd->ijkmabcd", I, I, s.Q)
    )


def printed_covariance() -> np.ndarray:
    """The printed dNTK term of the covariance and its Gaussian contractions, (output, sample) twice."""
    s, e, n_L = statistics(), np.einsum, 2
    K, H, I = s.K, s.H, np.eye(n_L)
    inverse = np.linalg.inv(H[t, t])
    L = np.eye(len(X))
    L[:, t] -= H[:, t] @ inverse
    step = e("ac,bd->abcd", inverse, inverse) / 2  # Z_B
    errors = e("jk,ab->jkab", I, K[t, t]) + e("aj,bk->jkab", Y, Y)  # E[eps eps]
    overlap = (L @ K)[:, t]  # E[(L z) z] with training samples
    legs = dntk_with_outputs(n_L)[..., t, t, :]  # i0 i1 i2 i3 ; 0 a b 3
    direct = e("ijkmxabd,wd,abcf,jkcf->mwix", legs, L, step, errors)
    # dH meets the residual of one training sample, (L z) that of the other
    pair = e("ijkjxabc,abcf,wf->kwix", legs[..., t], step, overlap) + e(
        "ijkkxabf,abcf,wc->jwix", legs[..., t], step, overlap
    )
    source = direct + pair  # (output, sample) of L z, (output, sample) of the dNTK term
    on = source - e("xy,jwiy->jwix", H[:, t] @ inverse, source[..., t])
    return (on + on.transpose(2, 3, 0, 1)) / WIDTH


def dntk_covariance_of_the_library() -> np.ndarray:
    """The same with the library's eigenmodes, without the factor 1/n."""
    s = statistics()

    def only_dntk(name: str) -> np.ndarray:
        return getattr(s, name) if name in "PQ" else np.zeros((len(X),) * 4)

    modes = Modes.of(s.K, s.K, s.H, Y)
    corrected = corrections(modes, only_dntk, TwoStep().symbols(modes.l), covariance=True)
    assert corrected.own is not None and corrected.coupling is not None
    return np.einsum("xw,ij->jwix", corrected.own, np.eye(2)) + corrected.coupling.transpose(3, 2, 1, 0)


@claim(
    "inf.166-167.networks",
    f"{PDLT} (inf.166), (inf.167)",
    "Different outputs of trained networks are correlated as predicted at order 1/n; at infinite width they "
    "are independent.",
    f"trained networks: {WIRED} of one hidden layer of each of the widths {WIRED_WIDTHS}, 40 steps, "
    "extrapolated in 1/n",
    long=True,
)
def wiring() -> Iterator[Comparison]:
    algorithm, covariances = GradientDescent(0.12, 40), []
    for n in WIRED_WIDTHS:
        net = mlp(n, hidden=1, outputs=2)
        ensemble = networks(net, DATA, algorithm, WIRED, 13)
        between = Estimate(*(n * np.einsum("aa->a", part[:, 0, :, 1]) for part in ensemble.covariance))
        yield significant(f"n times the covariance between outputs at width {n}", between)
        covariances.append(between)
    wide = 10**6
    theory = predicted(mlp(wide, hidden=1, outputs=2), *DATA, algorithm=algorithm).covariance
    stated = wide * np.einsum("aa->a", theory[:, 0, :, 1])
    yield pull("n times the covariance between outputs", stated, extrapolated(WIRED_WIDTHS, covariances))


@claim(
    "inf.172",
    f"{PDLT} section inf.2.3, after (inf.172)",
    "The contribution of the NTK's variance to the mean is the same for every algorithm; the contributions "
    "of its differentials are not.",
    "closed form: (inf.162) with its sign corrected, flow, descent and two steps",
)
def irreducible() -> Iterator[Comparison]:
    stated = projected(-fluctuation())
    parts = {label: prepared().predict(one).contributions for label, (one, _) in algorithms().items()}
    for label, contributions in parts.items():
        yield agree(f"NTK variance, {label}", stated, contributions["ntk_fluctuation"], 1e-6)
    for name in ("dntk", "ddntk_2"):
        yield differ(f"{name} of flow and of two steps", parts["flow"][name], parts["two steps"][name], 0.01)


# --- Bayesian inference ------------------------------------------------------------------------------

BAYES_WIDTH, BAYES = 16, 40_000


def last_layer(net, one, X) -> tuple[jax.Array, jax.Array]:
    """Mean prediction of a last layer trained on fixed features, and the log evidence of the features."""
    G, y = stochastic_metric(net, one, X), jnp.asarray(Y[:, :1])
    solved = jnp.linalg.solve(G[t, t], y)
    evidence = -jnp.sum(y * solved) / 2 - jnp.linalg.slogdet(G[t, t])[1] / 2
    return (G[TRAINING:, t] @ solved)[:, 0], evidence


@claim(
    "inf.173",
    f"{PDLT} (inf.173)",
    "At finite width no choice of learning rates makes gradient descent Bayesian: with (10.46), (10.48) all "
    "differentials of the NTK vanish, and the posterior mean differs from the trained mean.",
    f"sampled networks: {BAYES} of width {BAYES_WIDTH}, last layers solved exactly; weighted by their "
    "evidence for the posterior",
)
def no_bayesian_place() -> Iterator[Comparison]:
    net = bayesian_rates(mlp(BAYES_WIDTH, hidden=1))
    theory = solve(net, X).output
    for name in ("B", "F", "P", "Q", "R", "S", "T", "U"):
        yield agree(f"{name} in theory", 0.0, getattr(theory, name), 1e-12, scale=1.0)
    pair = bayesian_rates(mlp(BAYES_WIDTH, hidden=1, outputs=2))
    each = of_members(pair, X[:2], 8, 14, derivatives)
    yield agree("NTK between outputs, of networks", 0.0, each.H[:, 0, :, 1], 1e-12, scale=1.0)
    for name in ("dH", "ddI", "ddII"):
        yield agree(f"{name} of networks", 0.0, getattr(each, name), 1e-12, scale=1.0)
    means, evidence = of_members(net, X, BAYES, 15, last_layer)
    weight = np.exp(evidence - evidence.max())[:, None]
    weight = weight / weight.mean()
    trained, inferred = means.mean(axis=0), (weight * means).mean(axis=0)
    # the posterior mean is a ratio of two averages; its error follows from each network's influence on it
    influence = weight * (means - inferred) - (means - trained)
    gap = Estimate(inferred - trained, mean_of(influence).stderr)
    yield significant("posterior mean minus mean after descent", gap)
