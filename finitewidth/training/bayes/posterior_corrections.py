r"""Posterior and evidence at order 1/n from K, G1 and V alone (PDLT section 6.4).

With $\bar G_{12} = G^{\{1\}}_{12} + \frac12 V_{(12)(34)} \Psi_{34} - V_{(13)(24)} M_{34}$

$$\mathrm{E}[z_{iB}|y] = K_{BA} a_i + \tfrac1n T^T \bar G a_i, \qquad
  \mathrm{Cov} = \delta_{ij} (K_{BB} - K_{BA} M K_{AB} + \tfrac1n T^T \bar G T)
  + \tfrac1n V_{(12)(34)} T_{1b} a_{i2} T_{3c} a_{j4},$$
$$\log p(y) = \log p_0(y) + \tfrac1n Q, \qquad Q = \tfrac12 G^{\{1\}}_{12} \Psi_{12} + \tfrac18 [
  V_{(12)(34)} \Psi_{12} \Psi_{34} - 4 V_{(12)(34)} M_{13} \Phi_{24} + 2 n_L V_{(12)(34)} M_{13} M_{24} ].$$

Nothing is resummed: K alone is inverted, never K + G1/n. Factors 1/n are left off in this file.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.tasks import HERE, Runner
from finitewidth.theory.vertex.interface import AbstractVertex
from finitewidth.training.bayes.conditioned_prior import ConditionedPrior


@dataclass(frozen=True, eq=False)
class Cumulants:
    """Third and fourth cumulants of the posterior, which are of order 1/n."""

    third: Float[np.ndarray, "N_B N_B N_B n_L"]  # t_{bc,d;k}
    fourth: Float[np.ndarray, "N_B N_B N_B N_B"]  # V contracted with T on all four samples


@dataclass(frozen=True, eq=False)
class Corrections:
    """n times the corrections to the posterior and to the log evidence."""

    mean: dict[str, Float[np.ndarray, "N_B n_L"]]  # by contribution
    own: dict[str, Float[np.ndarray, "N_B N_B"]]  # to the covariance of each output by itself
    coupling: Float[np.ndarray, "N_B n_L N_B n_L"] = field(repr=False)  # the rest, also between outputs
    log_density: float  # Q
    change: float  # of the training kernel, relative, root mean square
    cumulants: Cumulants | None = None


@dataclass(frozen=True, eq=False)
class Derivatives:
    """n times the derivatives of Q that are known in closed form."""

    by_kernel: Float[np.ndarray, "N_A N_A"]  # P, between training samples
    by_shift: float  # G1 . dQ/dG1
    by_vertex: float  # V . dQ/dV


def corrections(
    given: ConditionedPrior, vertex: AbstractVertex, *, cumulants: bool = False, running: Runner = HERE
) -> Corrections:
    """All corrections of order 1/n in one pass over the vertex."""
    T, a, M, Psi = given.T, given.a, given.M, given.Psi
    matrices = {"bi": _pairs(T, a)} | ({"bc": _pairs(T, T)} if cumulants else {})
    stacked = np.concatenate([Psi[None], *(part.reshape(-1, *Psi.shape) for part in matrices.values())])
    contracted = vertex.contract(stacked, M[None], running)
    dressing = {
        "kernel_shift": contracted.G1,
        "vertex_with_data": contracted.straight[0] / 2,
        "vertex_without_data": -contracted.crossed[0],
    }
    V_pairs = contracted.straight[1:]
    coupling = _between(matrices["bi"], V_pairs[: T.shape[1] * a.shape[1]])
    return Corrections(
        {name: T.T @ part @ a for name, part in dressing.items()},
        {name: _symmetric(T.T @ part @ T) for name, part in dressing.items()},
        _symmetric_pairs(coupling),
        float(_parts(given, contracted.G1, contracted.straight[0], contracted.crossed[0]).sum()),
        _change(given, dressing.values()),
        _cumulants(matrices, V_pairs) if cumulants else None,
    )


@dataclass(frozen=True, eq=False)
class EvidenceCorrection:
    """n times the correction to the log evidence."""

    parts: np.ndarray  # that add up to Q
    change: float  # of the training kernel, relative, root mean square
    derivatives: Derivatives

    @property
    def Q(self) -> float:
        return float(self.parts.sum())


def evidence_correction(
    given: ConditionedPrior, vertex: AbstractVertex, *, running: Runner = HERE
) -> EvidenceCorrection:
    """Q and its derivatives."""
    contracted = vertex.contract(given.Psi[None], np.stack([given.M, given.Phi]), running)
    straight, (with_M, with_Phi) = contracted.straight[0], contracted.crossed
    parts = _parts(given, contracted.G1, straight, with_M)
    change = _change(given, (contracted.G1, straight / 2, with_M))
    dressed = contracted.G1 + straight / 2 - with_M
    samples = np.ix_(given.train, given.train)
    G, crossed, M = dressed[samples], with_Phi[samples], given.precision
    Phi = given.weights @ given.weights.T
    half = -M @ G @ Phi / 2
    by_kernel = half + half.T + M @ (given.outputs * G + crossed) @ M / 2
    by_shift = float((contracted.G1 * given.Psi).sum()) / 2
    return EvidenceCorrection(parts, change, Derivatives(by_kernel, by_shift, float(parts.sum()) - by_shift))


def _parts(given: ConditionedPrior, G1: np.ndarray, straight: np.ndarray, crossed: np.ndarray) -> np.ndarray:
    """The parts of Q, from V Psi and V_(13)(24) M."""
    M, Phi, Psi = given.M, given.Phi, given.Psi
    sums = (G1 * Psi).sum(), (straight * Psi).sum(), (crossed * Phi).sum(), (crossed * M).sum()
    return np.array([1 / 2, 1 / 8, -1 / 2, given.outputs / 4]) * sums


def _change(given: ConditionedPrior, parts: Iterable[np.ndarray]) -> float:
    """How much the parts of a changed kernel move the training kernel with its noise, as a share of it."""
    relative = [given.M @ part for part in parts]
    squares = sum(float((one * one.T).sum()) for one in relative)
    return float(np.sqrt(max(squares, 0.0) / len(given.Y)))


def _pairs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Symmetric matrices of every column of the left with every column of the right, (l, r, N, N)."""
    outer = np.einsum("al,br->lrab", left, right) / 2
    return outer + outer.swapaxes(2, 3)


def _between(matrices: np.ndarray, V_pairs: np.ndarray) -> np.ndarray:
    """V contracted with every two of the matrices, (l, r, l', r'), from V contracted with one."""
    l, r = matrices.shape[:2]
    flat = matrices.reshape(l * r, -1)
    return (flat @ V_pairs.reshape(l * r, -1).T).reshape(l, r, l, r)


def _cumulants(matrices: dict[str, np.ndarray], V_pairs: np.ndarray) -> Cumulants:
    tests, outputs = matrices["bi"].shape[:2]
    both = V_pairs[tests * outputs :]
    flat = both.reshape(tests * tests, -1)
    third = flat @ matrices["bi"].reshape(tests * outputs, -1).T
    fourth = flat @ matrices["bc"].reshape(tests * tests, -1).T
    return Cumulants(third.reshape(tests, tests, tests, outputs), fourth.reshape((tests,) * 4))


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _symmetric_pairs(coupling: np.ndarray) -> np.ndarray:
    return (coupling + coupling.transpose(2, 3, 0, 1)) / 2
