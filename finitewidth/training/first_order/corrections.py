r"""Trained mean and covariance at order 1/n (PDLT section inf.2.4), in eigenmodes of the training NTK.

Samples are the training ones, rotated to modes a, b, c, e, followed by the test ones. Everything that
happens to a prediction has one of two shapes: a linear form in the targets, $\lambda_{d;a} y_{ia}$, from NTK
fluctuations (A, B) and the dNTK (P, Q), and a cubic form $M_{d;abc}$ from the ddNTKs (R, S, T, U), averaged
over outputs at initialization. The covariance is made of the same forms and of how z moves together with the
NTK (D, F) and the dNTK. Its components are $\delta_{ij} S_{12}$ plus what the targets wire together.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from finitewidth.training.first_order.modes import dressed, rotate, rotate_axis
from finitewidth.training.first_order.symbols import Symbols


@dataclass(frozen=True)
class Modes:
    """Statistics at initialization with training samples first and rotated to modes of the training NTK."""

    l: np.ndarray  # eigenvalues of the training NTK, (N_A,)
    vectors: np.ndarray  # of samples and modes, (N_A, N_A)
    H: np.ndarray  # mean NTK Theta + H1/n, (N, N)
    K: np.ndarray  # kernel at infinite width, (N, N)
    G: np.ndarray  # mean kernel K + G1/n, (N, N)
    y: np.ndarray  # targets, (n_L, N_A)
    samples: Callable[[str], np.ndarray]  # a tensor by name, (N, N, N, N) in samples

    @classmethod
    def of(cls, K, G, H, Y, samples: Callable[[str], np.ndarray]) -> "Modes":
        """From matrices and tensors in samples, and targets (N_A, n_L)."""
        count = Y.shape[0]
        l, vectors = np.linalg.eigh(H[:count, :count])
        in_modes = rotate(H, vectors)
        in_modes[:count, :count] = np.diag(l)
        return cls(l, vectors, in_modes, rotate(K, vectors), rotate(G, vectors), Y.T @ vectors, samples)

    def tensor(self, name: str) -> np.ndarray:
        """A tensor in modes."""
        return rotate(self.samples(name), self.vectors)

    def back(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """From modes to samples on one axis."""
        return rotate_axis(rows, self.vectors.T, axis)

    @property
    def count(self) -> int:
        """N_A."""
        return self.l.size

    @property
    def outputs(self) -> int:
        """n_L."""
        return self.y.shape[0]

    @property
    def training_kernel(self) -> np.ndarray:
        return self.K[: self.count, : self.count]

    @property
    def pair(self) -> np.ndarray:
        """sum over outputs of E[eps_a eps_b]."""
        return self.y.T @ self.y + self.outputs * self.training_kernel


@dataclass
class _Covariance:
    """Corrections to the covariance on the way; the part with samples exchanged is added at the end."""

    own: np.ndarray  # (N, N)
    wired: np.ndarray  # (n_L, N, n_L, N)


@dataclass(frozen=True)
class Corrections:
    """Order 1/n on all samples, training ones first; the factor 1/n is not in it."""

    mean: dict[str, np.ndarray]  # by contribution, (N, n_L)
    own: np.ndarray | None  # covariance of each output by itself, the same for all, (N, N)
    wired: np.ndarray | None  # what the targets add to it, also between outputs, (N, n_L, N, n_L)


def corrections(modes: Modes, symbols: Symbols, *, covariance: bool) -> Corrections:
    """The four contributions to the mean and, where it is wanted, the whole covariance, times n."""
    size, outputs = modes.H.shape[0], modes.outputs
    extra = None
    if covariance:
        extra = _Covariance(np.zeros((size, size)), np.zeros((outputs, size, outputs, size)))
    linear = {
        "ntk_fluctuation": _ntk_fluctuation(modes, symbols, extra),
        "dntk": _dntk(modes, symbols, extra),
        "ddntk_1": _ddntk(modes, _first_ddntk(modes, symbols), symbols, extra),
        "ddntk_2": _ddntk(modes, _second_ddntk(modes, symbols), symbols, extra),
    }
    mean = {name: modes.back(form @ modes.y.T) for name, form in linear.items()}
    if extra is None:
        return Corrections(mean, None, None)
    _output_with_ntk(modes, symbols, extra)
    # by Stein's lemma, a linear form meets the initial output through its kernel with the training modes
    extra.own -= trained_kernel(modes, symbols) @ np.sum(list(linear.values()), axis=0).T
    own = modes.back(modes.back(extra.own + extra.own.T, 0), 1)
    wired = (extra.wired + extra.wired.transpose(2, 3, 0, 1)).transpose(1, 0, 3, 2)
    return Corrections(mean, own, modes.back(modes.back(wired, 0), 2))


def leap(modes: Modes, symbols: Symbols) -> np.ndarray:
    """L: the infinite-width prediction is L z + (1 - L) y with y on training samples, (N, N)."""
    matrix = np.eye(modes.H.shape[0])
    matrix[:, : modes.count] -= modes.H[:, : modes.count] * symbols.f
    return matrix


def trained_kernel(modes: Modes, symbols: Symbols) -> np.ndarray:
    """E[(L z)_d z_a], (N, N_A)."""
    return leap(modes, symbols) @ modes.K[:, : modes.count]


def _dressed_leg(modes: Modes, symbols: Symbols, X: np.ndarray) -> np.ndarray:
    """f_a X_da + sum_e H_de f[e, a] X_ea for the NTK between samples d and a fluctuating, (N, N_A, ...)."""
    wide = (..., *[None] * (X.ndim - 2))
    inner = symbols.f_2[wide] * X[: modes.count]
    return symbols.f[wide] * X + np.tensordot(modes.H[:, : modes.count], inner, 1)


# --- contributions -----------------------------------------------------------------------------------


def _ntk_fluctuation(modes: Modes, symbols: Symbols, extra: _Covariance | None) -> np.ndarray:
    """The squared fluctuation of the NTK as a linear form, (N, N_A); A, B."""
    A, B = modes.tensor("A"), modes.tensor("B")
    t = slice(modes.count)  # training modes
    pairs = np.einsum("daab->dab", A[:, t, t, t]) + np.einsum("daab->dab", B[:, t, t, t])
    pairs += modes.outputs * np.einsum("dbaa->dab", B[:, t, t, t])
    through = np.einsum("de,eab,eab->db", modes.H[:, t], symbols.f_3, pairs[t])
    if extra is not None:
        kernel, y = modes.training_kernel, modes.y
        straight = _both_legs(modes, symbols, A[:, t, :, t])
        crossed = _both_legs(modes, symbols, B[:, t, t, :].transpose(0, 2, 3, 1))  # B_1ba2 at 1 a 2 b
        side = _both_legs(modes, symbols, B[:, :, t, t].transpose(0, 2, 1, 3))  # B_12ab at 1 a 2 b
        # each of these is symmetric under exchange of samples already: half now, half when it is added
        extra.own += np.einsum("daeb,ab->de", straight + crossed, kernel) / 2
        extra.own += np.einsum("daeb,ab->de", side, modes.pair) / 2
        extra.wired += np.einsum("daeb,ia,jb->idje", straight, y, y, optimize=True) / 2
        extra.wired += np.einsum("daeb,ib,ja->idje", crossed, y, y, optimize=True) / 2
    return np.einsum("dab,ab->db", pairs, symbols.f_2) + through


def _both_legs(modes: Modes, symbols: Symbols, X: np.ndarray) -> np.ndarray:
    """Dressed on the legs (d a) and (e b) of X_daeb."""
    once = _dressed_leg(modes, symbols, X)
    return _dressed_leg(modes, symbols, once.transpose(2, 3, 0, 1)).transpose(2, 3, 0, 1)


def _output_with_ntk(modes: Modes, symbols: Symbols, extra: _Covariance) -> None:
    """How the initial output moves together with the NTK; D, F."""
    D, F = modes.tensor("D"), modes.tensor("F")
    t = slice(modes.count)
    source = np.einsum("dama->dam", D[:, t, :, t]) + modes.outputs * np.einsum("dmaa->dam", F[:, :, t, t])
    source += np.einsum("daam->dam", F[:, t, t, :])
    met = _dressed_leg(modes, symbols, source).sum(axis=1)  # (2, 1')
    extra.own -= leap(modes, symbols) @ met.T


def _dntk(modes: Modes, symbols: Symbols, extra: _Covariance | None) -> np.ndarray:
    """The dNTK as a linear form, (N, N_A); P, Q."""
    P, Q = modes.tensor("P"), modes.tensor("Q")
    t, outputs = slice(modes.count), modes.outputs
    dress_A = lambda X: dressed(modes.l, modes.H, symbols, "A", X)  # noqa: E731
    P_B, Q_B = (dressed(modes.l, modes.H, symbols, "B", X[:, t, t, :]) for X in (P, Q))
    P_A, Q_A = (dress_A(X[t, :, t, :].transpose(1, 0, 2, 3)) for X in (P, Q))  # X_adb. at d a b .
    Q_C = dress_A(Q[t, t, :, :].transpose(2, 0, 1, 3))  # Q_abd. at d a b .
    form = -2 * np.einsum("daba->db", (P_B + Q_B)[..., t]) - 2 * outputs * np.einsum("dbaa->db", Q_B[..., t])
    form -= np.einsum("daba->db", (outputs * P_A + Q_A + Q_C)[..., t])
    form -= np.einsum("dabb->da", (P_A + outputs * Q_A + Q_C)[..., t])
    if extra is not None:
        kernel, y, L = modes.training_kernel, modes.y, leap(modes, symbols)
        met = np.einsum("dabm,ab->dm", P_B + Q_C, modes.pair)
        met += np.einsum("dabm,ab->dm", 2 * Q_B + P_A + Q_A, kernel)
        extra.own += L @ met.T
        wired = np.einsum("dabm,ja,ib->jdim", 2 * Q_B + Q_A, y, y, optimize=True)
        wired += np.einsum("dabm,ia,jb->jdim", P_A, y, y, optimize=True)
        extra.wired += np.einsum("jdim,em->iejd", wired, L)
    return form


def _first_ddntk(modes: Modes, symbols: Symbols) -> np.ndarray:
    """The cubic form M_dabc that meets y_a (Y_bc + n_L K_bc) + K_ab y_c + K_ac y_b; R."""
    R, t = modes.tensor("R"), slice(modes.count)
    M = 3 * dressed(modes.l, modes.H, symbols, "IB", R[:, t, t, t])
    M += dressed(modes.l, modes.H, symbols, "IA", R[t, :, t, t].transpose(1, 0, 2, 3))  # R_adbc
    # R_abcd meets the pair (ab), R_acdb the pair (ca): slots are renamed
    M += dressed(modes.l, modes.H, symbols, "IA", R[t, t, t, :].transpose(3, 0, 1, 2)).transpose(0, 3, 1, 2)
    M += dressed(modes.l, modes.H, symbols, "IA", R[t, t, :, t].transpose(2, 0, 3, 1)).transpose(0, 2, 3, 1)
    return M


def _second_ddntk(modes: Modes, symbols: Symbols) -> np.ndarray:
    """The same of the second ddNTK; S, T, U."""
    t = slice(modes.count)
    S = modes.tensor("S")
    M = dressed(modes.l, modes.H, symbols, "IIB", S[:, t, t, t])  # S_dabc
    M += dressed(modes.l, modes.H, symbols, "IIA", S[t, t, :, t].transpose(2, 0, 1, 3)).transpose(
        0, 3, 1, 2
    )  # S_abdc
    T = modes.tensor("T")
    M += dressed(modes.l, modes.H, symbols, "IIB", T[:, t, t, t].transpose(0, 3, 1, 2)).transpose(
        0, 2, 3, 1
    )  # T_dbca
    M += dressed(modes.l, modes.H, symbols, "IIA", T[t, :, t, t].transpose(1, 0, 3, 2))  # T_adcb
    U = modes.tensor("U")
    M += dressed(modes.l, modes.H, symbols, "IIB", U[:, t, t, t].transpose(0, 2, 3, 1)).transpose(
        0, 3, 1, 2
    )  # U_dcab
    M += dressed(modes.l, modes.H, symbols, "IIA", U[t, t, t, :].transpose(3, 0, 2, 1)).transpose(
        0, 2, 3, 1
    )  # U_acbd
    return M


def _ddntk(modes: Modes, M: np.ndarray, symbols: Symbols, extra: _Covariance | None) -> np.ndarray:
    """A cubic form averaged over initial outputs: the linear form (N, N_A) that is left of it."""
    M = (M + M.transpose(0, 1, 3, 2)) / 2
    form = np.einsum("dabc,bc->da", M, modes.pair) + 2 * np.einsum("dabc,ab->dc", M, modes.training_kernel)
    if extra is not None:
        met = np.einsum("dabc,ja,ic->jdib", M, modes.y, modes.y, optimize=True)
        extra.wired += 2 * np.einsum("jdib,eb->iejd", met, trained_kernel(modes, symbols))
    return -form
