r"""What an ensemble knows at initialization, given its outputs: everything of order 1/n that training needs.

Outputs are $z_0 = K^{1/2}\xi$. Given them, networks differ from infinitely wide ones by

* fluctuations of the NTK of order $n^{-1/2}$, independent of $z_0$, with the second moments A and B;
* a mean NTK of order 1/n that is quadratic in $y = K^{-1} z_0$ (H1, D, F), and a mean dNTK that is linear in
  it (P, Q);
* the density of $z_0$ itself, by the factor $1 + \omega(z_0)/n$ (G1, V).
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

NEEDED = ("V", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
PAIRS = ("K", "Theta", "G1", "H1")
Numbers = Array | np.ndarray
_MOST_CONDITION = 1e12  # of the kernel, which is inverted
_NEGATIVE = 1e-4  # relative eigenvalues of A and B that errors of averages explain
_RANK = 1e-12  # relative eigenvalues that are rounding


class Given(NamedTuple):
    """Averages over networks with given initial outputs; the last axis is that of the output of y."""

    H: Float[Array, "S 2 N n_L N_A n_L"]  # of the NTK, times n: H1, and the part of D and F
    P: Float[Array, "S N N_A N_A n_L"]  # P_dabc y_c
    Q: Float[Array, "S N N_A N_A n_L"]
    P_second: Float[Array, "S N_A N N_A n_L"]  # P_adbc y_c: the second slot is open
    Q_second: Float[Array, "S N_A N N_A n_L"]
    Q_third: Float[Array, "S N_A N_A N n_L"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("tensors", "root", "half_inverse", "common", "separate"),
    meta_fields=("count", "outputs"),
)
@dataclass(frozen=True, eq=False)
class InitialNetworks:
    """Statistics of the output layer on all samples, the training ones first."""

    tensors: Mapping[str, Any]  # by letter
    count: int  # of training samples
    outputs: int  # n_L
    root: Float[Numbers, "N N"]  # K = root root^T
    half_inverse: Float[Numbers, "N N"]  # y = half_inverse xi
    common: Float[Numbers, "NN r_A"]  # root of A: fluctuations that all outputs share
    separate: Float[Numbers, "NN r_B"]  # root of B: those of each ordered pair of outputs

    @classmethod
    def of(cls, tensors: Mapping[str, np.ndarray], count: int, outputs: int) -> "InitialNetworks":
        """From the tensors of the output layer, with axes as their subscripts are printed."""
        tensors = {name: np.asarray(tensors[name], dtype=np.float64) for name in (*PAIRS, *NEEDED)}
        l, vectors = np.linalg.eigh(tensors["K"])
        if not l[0] * _MOST_CONDITION > l[-1]:
            raise ValueError(
                f"the kernel of training and test inputs has condition number "
                f"{l[-1] / max(l[0], 1e-300):.1e}, above {_MOST_CONDITION:.0e}, and order 1/n of this "
                "training inverts it; drop inputs that are equal, parallel or too similar."
            )
        size = len(l) ** 2
        rounding = _RANK * float(np.max(tensors["Theta"])) ** 2  # deep linear networks may have none
        common = _root(tensors["A"].reshape(size, size), "A", rounding)
        separate = _root(tensors["B"].transpose(0, 2, 1, 3).reshape(size, size), "B", rounding)
        root = vectors * np.sqrt(l)
        return cls(tensors, count, outputs, root, vectors / np.sqrt(l), common, separate)

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self.root)

    def z(self, xi: Float[Array, "S N n_L"]) -> Float[Array, "S N n_L"]:
        """Initial outputs."""
        return jnp.einsum("dk,ski->sdi", self.root, xi)

    def fluctuation(
        self, common: Float[Array, "S r_A"], separate: Float[Array, "S n_L n_L r_B"]
    ) -> Float[Array, "S N n_L N_A n_L"]:
        """Fluctuations of the NTK, times the root of n, from independent normal numbers."""
        N, n = self.size, self.outputs
        a = (common @ self.common.T).reshape(-1, N, N)
        a = (a + a.transpose(0, 2, 1)) / 2
        b = jnp.einsum("sijr,pr->sijp", separate, self.separate).reshape(-1, n, n, N, N)
        b = (b + b.transpose(0, 2, 1, 4, 3)) / np.sqrt(2)
        whole = b.transpose(0, 3, 1, 4, 2) + jnp.einsum("sde,ij->sdiej", a, jnp.eye(n))
        return whole[:, :, :, : self.count]

    def given(self, xi: Float[Array, "S N n_L"]) -> Given:
        """Averages over networks with these initial outputs."""
        t, n, half = self.count, self.outputs, self.half_inverse
        y = jnp.einsum("dk,ski->sdi", half, xi)
        inverse = half @ half.T
        D, F, P, Q = (self.tensors[name] for name in "DFPQ")
        excess = jnp.einsum("sdi,sei->sde", y, y) - n * inverse
        same = 0.5 * jnp.einsum("dacf,scf->sda", D[:, :t], excess)
        same = same - jnp.einsum("dcaf,cf->da", F[:, :, :t], inverse)
        with_y = jnp.einsum("dcaf,sci->sdaif", F[:, :, :t], y)
        between = jnp.einsum("sdaif,sfj->sdiaj", with_y, y) + jnp.einsum("sda,ij->sdiaj", same, jnp.eye(n))
        mean = jnp.einsum("da,ij->diaj", self.tensors["H1"][:, :t], jnp.eye(n))
        H = jnp.stack([jnp.broadcast_to(mean, between.shape), between], axis=1)
        return Given(
            H,
            jnp.einsum("dabc,sci->sdabi", P[:, :t, :t], y),
            jnp.einsum("dabc,sci->sdabi", Q[:, :t, :t], y),
            jnp.einsum("adbc,sci->sadbi", P[:t, :, :t], y),
            jnp.einsum("adbc,sci->sadbi", Q[:t, :, :t], y),
            jnp.einsum("abdc,sci->sabdi", Q[:t, :t, :], y),
        )

    def density(self, xi: Float[Array, "S N n_L"]) -> Float[Array, " S"]:
        r"""$\omega$: n times the relative change of the density of initial outputs."""
        y = jnp.einsum("dk,ski->sdi", self.half_inverse, xi)
        q = jnp.einsum("sdi,sei->sde", y, y)
        n, G1, V = self.outputs, self.tensors["G1"], self.tensors["V"]
        inverse = self.half_inverse @ self.half_inverse.T
        straight = jnp.einsum("abcd,ab->cd", V, inverse)
        crossed = jnp.einsum("abcd,ac->bd", V, inverse)
        omega = 0.5 * jnp.einsum("de,sde->s", G1, q - n * inverse)
        fourth = jnp.einsum("scd,scd->s", jnp.einsum("abcd,sab->scd", V, q), q)
        fourth = fourth - 2 * n * jnp.einsum("cd,scd->s", straight, q)
        fourth = fourth - 4 * jnp.einsum("bd,sbd->s", crossed, q)
        constant = n**2 * jnp.sum(straight * inverse) + 2 * n * jnp.sum(crossed * inverse)
        return omega + (fourth + constant) / 8

    @property
    def white_G1(self) -> Float[np.ndarray, "N N"]:
        r"""$K^{-1/2} G_1 K^{-1/2}$: the change of the covariance of $\xi$, times n."""
        return self.half_inverse.T @ self.tensors["G1"] @ self.half_inverse


def _root(M: np.ndarray, name: str, rounding: float) -> np.ndarray:
    """R with M = R R^T for a positive semidefinite matrix that is known up to the error of averages."""
    l, vectors = np.linalg.eigh((M + M.T) / 2)
    largest = max(l[-1], rounding / _NEGATIVE)
    if l[0] < -_NEGATIVE * largest:
        raise ValueError(
            f"the covariance {name} of NTK fluctuations has a relative eigenvalue of {l[0] / largest:.1e}, "
            "below zero by more than rounding; lower the tolerance of the four-leg averages."
        )
    kept = l > max(_RANK * largest, rounding)
    return vectors[:, kept] * np.sqrt(l[kept])
