r"""A batch of neurons of one source layer, and the products that all contractions are made of.

Arrays over samples have the shape (N, k, B): rows, columns such as outputs, and the neurons of the batch, so
that a matrix times all of them is one product. An effect on the sample d often ends in the same last factor:
$\sigma'_d g_d \Theta F$, $y_{ad}$ or $r_{ad}$. Vectors that such a factor multiplies are accumulated first,
and `effects` multiplies them once.
"""

from collections import defaultdict

import numpy as np

from finitewidth.gaussian.tower import Tower
from finitewidth.training.many_points.hadamard import hadamard_product
from finitewidth.training.many_points.sampled_training import PROBES, SampledTraining

Rows = int | None  # the first rows; None for all


def matmul(matrix: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Matrix (R, A) times v (A, ...)."""
    return (matrix @ v.reshape(v.shape[0], -1)).reshape(matrix.shape[0], *v.shape[1:])


def probes(root: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Columns whose mean product is root root^T: all of them, or random orthogonal directions."""
    rank = root.shape[1]
    if rank <= PROBES:
        return root
    directions, _ = np.linalg.qr(generator.standard_normal((rank, PROBES)))
    return root @ (directions * np.sqrt(rank / PROBES)).astype(root.dtype)


class PairMatrices:
    """Pair matrices of a source layer between all samples and training samples, in working precision."""

    def __init__(self, training: SampledTraining, index: int):
        self.layer = training.layers[index]
        count, dtype = training.count, training.dtype
        self.columns = {
            name: np.ascontiguousarray(matrix[:, :count], dtype=dtype)
            for name, matrix in self.layer.pairs.items()
        }
        self.transposed = {
            name: np.ascontiguousarray(self.layer.pairs[name][:count].T, dtype=dtype)
            for name in ("x2", "y3", "r3", "r4")
        }


class NeuronBatch:
    """Neurons drawn from one source layer; effects are summed by the name of a contribution.

    `s` holds sigma and its derivatives; `g` and `g2` are two draws of fields with <g g^T> = E, and
    `alpha_fields` one of h, k with <h k^T> = alpha; `phi` is g sigma' on training samples. `zeta` and `eta`
    are probes of the residual kernels K and Y Y^T + n_L K. Behind the probes of K, `zeta` has the targets of
    the output that each column is about, if the training has such columns.
    """

    def __init__(
        self, training: SampledTraining, matrices: PairMatrices, generator: np.random.Generator, size: int
    ):
        layer, count, dtype = matrices.layer, training.count, training.dtype
        self.matrices, self.count, self.has_same_sample = matrices, count, layer.has_same_sample
        noise = generator.standard_normal((layer.root.shape[1], size)).astype(dtype)
        self.s = Tower(layer.activation, 3)(layer.root @ noise).astype(dtype)
        self.g, self.g2 = (layer.E_fields.draw(generator, size)[0] for _ in range(2))
        self.alpha_fields = None if layer.alpha_fields is None else layer.alpha_fields.draw(generator, size)
        zeta, self.eta = (probes(root, generator) for root in training.kernel_roots)
        own_targets = training.own_targets(np.ones(count)).astype(dtype)
        self.zeta, self.own_columns = np.concatenate([zeta, own_targets], axis=1), own_targets.shape[1]
        self.phi, self.phi2 = ((field * self.s[1])[:count] for field in (self.g, self.g2))
        self._direct: dict[str, np.ndarray] = defaultdict(float)  # type: ignore[arg-type]
        self._accumulated: dict[tuple[str, str], np.ndarray] = defaultdict(float)  # type: ignore[arg-type]

    # --- features applied to vectors on training samples ---------------------------------------------

    def apply(self, name: str, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """A pair matrix times v."""
        return matmul(self.matrices.columns[name][:rows], v)

    def apply_ntk(self, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """Theta v."""
        return self.apply("Th", v, rows)

    def lam_and_om(self, v: np.ndarray, rows: Rows = None, order: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Lam (sigma v) and Om (sigma' v), which x, y and r share; for s sigma has a derivative more."""
        first, second = (_shaped(self.s[k][: self.count], v) * v for k in (order, order + 1))
        return self.apply("Lam", first, rows), self.apply("Om", second, rows)

    def _with_derivatives(self, order: int, products, rows: Rows) -> np.ndarray:
        """Derivatives `order` and the next of sigma times the two products."""
        first, second = products
        result = _shaped(self.s[order][:rows], first) * first
        return result + _shaped(self.s[order + 1][:rows], second) * second

    def y_from(self, products, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """The feature y times v."""
        result = self._with_derivatives(1, products, rows)
        if self.has_same_sample:
            result += _shaped(self.s[1][:rows] * self.s[0][:rows], result) * self.apply("y3", v, rows)
        return result

    def r_from(self, products, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """The feature r times v."""
        result = self._with_derivatives(2, products, rows)
        return result + self._r_on_one_sample(v, rows) if self.has_same_sample else result

    def _r_on_one_sample(self, v: np.ndarray, rows: Rows) -> np.ndarray:
        s0, s1, s2 = (self.s[order][:rows] for order in (0, 1, 2))
        first, second = (self.apply(name, v, rows) for name in ("r3", "r4"))
        return _shaped(s2 * s0, first) * first + _shaped(s1 * s1, second) * second

    def apply_y(self, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """The feature y times v."""
        return self.y_from(self.lam_and_om(v, rows), v, rows)

    def apply_s(self, v: np.ndarray) -> np.ndarray:
        """The feature s times v."""
        return self._with_derivatives(1, self.lam_and_om(v, order=1), None)

    # --- two modes joined by the residual kernel: K by probes, and the targets of each column ---------

    def sum_probes(self, v: np.ndarray) -> np.ndarray:
        """Products (N, p + own, B) summed over the p probes, (N, 1, B), and added to those of own targets."""
        count = v.shape[1] - self.own_columns
        shared = v[:, :count].sum(axis=1, keepdims=True)
        return shared + v[:, count:] if self.own_columns else shared

    def r_from_probes(self, products, zeta: np.ndarray, rows: Rows = None) -> np.ndarray:
        """r zeta; parts of r on one sample are left out of probes, since they are added exactly."""
        result = self._with_derivatives(2, products, rows)
        if self.has_same_sample and self.own_columns:
            result[:, -self.own_columns :] += self._r_on_one_sample(zeta[:, -self.own_columns :], rows)
        return result

    def hadamard(self, weights, left, right, vectors) -> list[np.ndarray]:
        """(M o L R^T) v for each M with its own v, as `hadamard_product`, where L and R are probes."""
        count = left.shape[1] - self.own_columns
        results = hadamard_product(weights, left[:, :count], right[:, :count], vectors)
        if not self.own_columns:
            return results
        left, right = (v[:, count:] if v.ndim == 3 else v[:, count:, None] for v in (left, right))
        return [
            result + left * matmul(M, right * v)
            for result, M, v in zip(results, weights, vectors, strict=True)
        ]

    # --- effects --------------------------------------------------------------------------------------

    def accumulate(self, factor: str, name: str, v: np.ndarray) -> None:
        """Add v before a last factor: "g", "g2" or "h" (sigma' g Theta ...), "y" or "r" (transposed)."""
        self._accumulated[factor, name] = self._accumulated[factor, name] + v

    def add(self, name: str, v: np.ndarray) -> None:
        """Add an effect on all samples, (N, n_L, B)."""
        self._direct[name] = self._direct[name] + v.sum(axis=2, dtype=np.float64)

    def effects(self) -> dict[str, np.ndarray]:
        """Effects summed over the batch, (N, n_L) by contribution, without the weight of the layer."""
        s = self.s
        fields = {"g": self.g * s[1], "g2": self.g2 * s[1]}
        if self.alpha_fields is not None:
            fields["h"] = self.alpha_fields[0] * s[1] * s[0]
        for (factor, name), v in self._accumulated.items():
            if factor in fields:
                self.add(name, fields[factor][:, None] * self.apply_ntk(v))
            else:
                self.add(name, self._transposed(v, 1 if factor == "y" else 2))
        return dict(self._direct)

    def _transposed(self, v: np.ndarray, order: int) -> np.ndarray:
        """y^T v (order 1), or r^T v (order 2)."""
        s, t = self.s, self.s[:, : self.count]
        result = s[0][:, None] * self.apply("Lam", t[order][:, None] * v)
        result += s[1][:, None] * self.apply("Om", t[order + 1][:, None] * v)
        if self.has_same_sample:
            same = {"y3": t[1] * t[0]} if order == 1 else {"r3": t[2] * t[0], "r4": t[1] * t[1]}
            for name, factor in same.items():
                result += matmul(self.matrices.transposed[name], factor[:, None] * v)
        return result


def _shaped(s: np.ndarray, v: np.ndarray) -> np.ndarray:
    """(N, B) in the shape that multiplies v, with or without columns."""
    return s if v.ndim == 2 else s[:, None]
