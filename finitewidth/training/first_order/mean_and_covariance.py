r"""Trained mean and covariance at order 1/n (PDLT section inf.2.4) from stored tensors, in eigenmodes.

Samples are the training ones, rotated to modes a, b, c, e of the training NTK, followed by the test ones. The
terms of `mean_terms.py` are summed to forms: a linear form in the targets, $\lambda_{d;a} y_{ia}$, from NTK
fluctuations and the dNTK, and a cubic form $M_{d;abc}$ from the ddNTKs, averaged over outputs at
initialization. The covariance consists of the same forms and of the correlation of z with the NTK (D, F) and
with the dNTK. Its components are $\delta_{ij} S_{12}$ plus a part that is quadratic in the targets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.training.first_order.eigenmodes import (
    Modes,
    dressed,
    rotate,
    single_source,
    with_free_symbols,
)
from finitewidth.training.first_order.mean_terms import (
    CUBIC,
    LINEAR,
    TENSORS,
    TERMS,
    Source,
    average_over_outputs,
)
from finitewidth.training.many_points.estimation import SampledEstimate

WITH_OUTPUT = "output_with_ntk"  # the contribution of D and F to the covariance; it has no mean

TensorOf = Callable[[str], np.ndarray]  # by name, (N, N, N, N) in samples
Tensors = dict[str, np.ndarray]  # some of them by name, in modes


@dataclass(frozen=True)
class Corrections:
    """Order 1/n on some samples, at first on all, training ones first; the factor 1/n is left off."""

    mean: dict[str, np.ndarray]  # by contribution, (N, n_L)
    own: np.ndarray | None = None  # covariance of each output by itself, the same for all, (N, N)
    coupling: np.ndarray | None = None  # the part made by the targets, also between outputs, (N, n_L, N, n_L)
    variance: dict[str, np.ndarray] | None = None  # the variance by contribution, (N, n_L)
    sampled: SampledEstimate | None = None  # where neurons were drawn
    sampled_variance: SampledEstimate | None = None  # the variance, where neurons were drawn for it

    def at(self, rows: np.ndarray) -> "Corrections":
        """The same on some of the samples."""
        mean = {name: part[rows] for name, part in self.mean.items()}
        own = None if self.own is None else self.own[np.ix_(rows, rows)]
        coupling = None if self.coupling is None else self.coupling[rows][:, :, rows]
        variance = None if self.variance is None else {k: part[rows] for k, part in self.variance.items()}
        return Corrections(mean, own, coupling, variance, self.sampled, self.sampled_variance)


def corrections(modes: Modes, tensor_of: TensorOf, symbols: Symbols, *, covariance: bool) -> Corrections:
    """The four contributions to the mean and, if wanted, the whole covariance, times n."""
    symbols = with_free_symbols(symbols, modes.l)
    forms: dict[str, np.ndarray] = {}
    halves: dict[str, _Covariance] = {}
    kernel = trained_kernel(modes, symbols)
    for name in TERMS:
        tensors = {tensor: rotate(tensor_of(tensor), modes.vectors) for tensor in sorted(TENSORS[name])}
        M = _cubic_form(modes, tensors, symbols, name) if name in CUBIC else None
        forms[name] = _linear_form(modes, tensors, symbols, name) if M is None else _averaged(modes, M)
        if covariance:
            # by Stein's lemma, the initial output enters a linear form by its kernel with training modes
            with_mean = _Covariance(-kernel @ forms[name].T)
            halves[name] = with_mean + _covariance_of(name, modes, tensors, symbols, M)
    mean = {name: modes.back(form @ modes.y.T) for name, form in forms.items()}
    if not covariance:
        return Corrections(mean)
    tensors = {name: rotate(tensor_of(name), modes.vectors) for name in "DF"}
    halves[WITH_OUTPUT] = _output_with_ntk(modes, tensors, symbols)
    own, coupling, variance = 0.0, 0.0, {}
    for name, half in halves.items():
        whole = (_Covariance.none(modes) + half).symmetrized(modes)
        own, coupling = own + whole[0], coupling + whole[1]
        variance[name] = np.diag(whole[0])[:, None] + np.einsum("aiai->ai", whole[1])
    return Corrections(mean, np.asarray(own), np.asarray(coupling), variance)


def initial_output_map(modes: Modes, f: np.ndarray) -> np.ndarray:
    """L of the infinite-width prediction L z + (1 - L) y, with y on training samples, (N, N)."""
    matrix = np.eye(modes.H.shape[0])
    matrix[:, : modes.count] -= modes.H[:, : modes.count] * f
    return matrix


class Free(NamedTuple):
    """The prediction of a frozen NTK on all samples."""

    mean: np.ndarray  # (N, n_L)
    covariance: np.ndarray  # covariance of each output, (N, N)


def free_prediction(modes: Modes, f: np.ndarray) -> Free:
    """Mean and covariance after training with a frozen NTK, whose response at the modes is f."""
    L = initial_output_map(modes, f)
    mean = modes.back((modes.H[:, : modes.count] * f) @ modes.y.T)
    covariance = modes.back(modes.back(L @ modes.G @ L.T, 0), 1)
    return Free(mean, (covariance + covariance.T) / 2)


def trained_kernel(modes: Modes, symbols: Symbols) -> np.ndarray:
    """E[(L z)_d z_a], (N, N_A)."""
    return initial_output_map(modes, symbols.f) @ modes.K[:, : modes.count]


# --- forms in the targets ----------------------------------------------------------------------------


def _linear_form(modes: Modes, tensors: Tensors, symbols: Symbols, name: str) -> np.ndarray:
    """The contribution of NTK fluctuations or of the dNTK to the mean, per target, (N, N_A)."""
    source = Source.of(LINEAR[name], tensors, modes.count, modes.outputs)
    return -dressed(modes.l, modes.H, symbols, source).sum(axis=2)


def _cubic_form(modes: Modes, tensors: Tensors, symbols: Symbols, name: str) -> np.ndarray:
    """M_dabc of a ddNTK, symmetric in b and c; the mean is -M contracted with T(a|bc)."""
    source = Source.of(CUBIC[name], tensors, modes.count, modes.outputs)
    M = dressed(modes.l, modes.H, symbols, source)
    return (M + M.transpose(0, 1, 3, 2)) / 2


def _averaged(modes: Modes, M: np.ndarray) -> np.ndarray:
    """The contribution of a ddNTK to the mean, per target, (N, N_A)."""
    return -average_over_outputs(M, modes.training_kernel, modes.summed_kernel)


# --- covariance --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Covariance:
    """Half of a correction to the covariance; the other half has the two outputs exchanged."""

    own: np.ndarray | float = 0.0  # (N, N)
    coupling: np.ndarray | float = 0.0  # (n_L, N, n_L, N)

    @classmethod
    def none(cls, modes: Modes) -> "_Covariance":
        size, outputs = modes.H.shape[0], modes.outputs
        return cls(np.zeros((size, size)), np.zeros((outputs, size, outputs, size)))

    def __add__(self, other: "_Covariance") -> "_Covariance":
        return _Covariance(self.own + other.own, self.coupling + other.coupling)

    def symmetrized(self, modes: Modes) -> tuple[np.ndarray, np.ndarray]:
        """The whole correction in samples: own (N, N) and coupling (N, n_L, N, n_L)."""
        half, coupling = np.asarray(self.own), np.asarray(self.coupling)
        own = modes.back(modes.back(half + half.T, 0), 1)
        whole = (coupling + coupling.transpose(2, 3, 0, 1)).transpose(1, 0, 3, 2)
        return own, modes.back(modes.back(whole, 0), 2)


def _covariance_of(
    name: str, modes: Modes, tensors: Tensors, symbols: Symbols, M: np.ndarray | None
) -> _Covariance:
    """The part of a contribution that is no derivative of its mean by the targets of one output."""
    if M is not None:
        return _coupling_by_ddntk(modes, M, symbols)
    parts = {"ntk_fluctuation": _ntk_fluctuation_twice, "dntk": _output_with_dntk}
    return parts[name](modes, tensors, symbols)


def _dress_leg(modes: Modes, symbols: Symbols, X: np.ndarray) -> np.ndarray:
    """f_a X_da + sum_e H_de f[e, a] X_ea for the NTK between samples d and a fluctuating, (N, N_A, ...)."""
    return dressed(modes.l, modes.H, symbols, single_source("f", X))


def _dress_both_legs(modes: Modes, symbols: Symbols, X: np.ndarray) -> np.ndarray:
    """The legs (d a) and (e b) of X_daeb dressed."""
    once = _dress_leg(modes, symbols, X)
    return _dress_leg(modes, symbols, once.transpose(2, 3, 0, 1)).transpose(2, 3, 0, 1)


def _ntk_fluctuation_twice(modes: Modes, tensors: Tensors, symbols: Symbols) -> _Covariance:
    """The NTK fluctuating in both outputs; A, B."""
    A, B = tensors["A"], tensors["B"]
    t, kernel, y = slice(modes.count), modes.training_kernel, modes.y
    direct = _dress_both_legs(modes, symbols, A[:, t, :, t])
    crossed = _dress_both_legs(modes, symbols, B[:, t, t, :].transpose(0, 2, 3, 1))  # B_1ba2 at 1 a 2 b
    loop = _dress_both_legs(modes, symbols, B[:, :, t, t].transpose(0, 2, 1, 3))  # B_12ab at 1 a 2 b
    own = np.einsum("daeb,ab->de", direct + crossed, kernel)
    own += np.einsum("daeb,ab->de", loop, modes.summed_kernel)
    coupling = np.einsum("daeb,ia,jb->idje", direct, y, y, optimize=True)
    coupling += np.einsum("daeb,ib,ja->idje", crossed, y, y, optimize=True)
    return _Covariance(own / 2, coupling / 2)  # symmetric under exchange of the outputs already


def _output_with_ntk(modes: Modes, tensors: Tensors, symbols: Symbols) -> _Covariance:
    """The correlation of the initial output with the NTK; D, F."""
    D, F = tensors["D"], tensors["F"]
    t = slice(modes.count)
    source = np.einsum("dama->dam", D[:, t, :, t]) + modes.outputs * np.einsum("dmaa->dam", F[:, :, t, t])
    source += np.einsum("daam->dam", F[:, t, t, :])
    correlation = _dress_leg(modes, symbols, source).sum(axis=1)  # (2, 1')
    return _Covariance(-initial_output_map(modes, symbols.f) @ correlation.T)


def _output_with_dntk(modes: Modes, tensors: Tensors, symbols: Symbols) -> _Covariance:
    """The correlation of the initial output with the dNTK; P, Q."""
    P, Q, t = tensors["P"], tensors["Q"], slice(modes.count)

    def dress(kind: str, X: np.ndarray) -> np.ndarray:
        return dressed(modes.l, modes.H, symbols, single_source(kind, X))

    P_B, Q_B = (dress("B", X[:, t, t, :]) for X in (P, Q))
    P_A, Q_A = (dress("A", X[t, :, t, :].transpose(1, 0, 2, 3)) for X in (P, Q))  # X_adb. at d a b .
    Q_C = dress("A", Q[t, t, :, :].transpose(2, 0, 1, 3))  # Q_abd. at d a b .
    kernel, y, L = modes.training_kernel, modes.y, initial_output_map(modes, symbols.f)
    own = np.einsum("dabm,ab->dm", P_B + Q_C, modes.summed_kernel)
    own += np.einsum("dabm,ab->dm", 2 * Q_B + P_A + Q_A, kernel)
    coupling = np.einsum("dabm,ja,ib->jdim", 2 * Q_B + Q_A, y, y, optimize=True)
    coupling += np.einsum("dabm,ia,jb->jdim", P_A, y, y, optimize=True)
    return _Covariance(L @ own.T, np.einsum("jdim,em->iejd", coupling, L))


def _coupling_by_ddntk(modes: Modes, M: np.ndarray, symbols: Symbols) -> _Covariance:
    """The correlation of the initial output with a ddNTK term, through the residuals b and c; R, S, T, U."""
    half = np.einsum("dabc,ja,ic->jdib", M, modes.y, modes.y, optimize=True)
    return _Covariance(coupling=2 * np.einsum("jdib,eb->iejd", half, trained_kernel(modes, symbols)))
