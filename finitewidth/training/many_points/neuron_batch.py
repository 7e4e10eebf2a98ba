r"""A batch of neurons of one source layer, and the products that all contractions are made of.

Arrays over samples have the shape (N, k, B): rows, columns such as outputs, and the neurons of the batch, so
that a matrix times all of them is one product. An effect on the sample d ends in $\sigma'_d g_d \Theta F$, in
$y_{ad}$ or in $r_{ad}$; what stands before these ends is added up first, and `close` makes them once.
"""

from collections import defaultdict

import numpy as np

from finitewidth.gaussian.tower import Tower
from finitewidth.training.many_points.hadamard import weighted
from finitewidth.training.many_points.sampled_training import PROBES, Scene

Rows = int | None  # the first rows; None for all


def times(matrix: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Matrix (R, A) times v (A, ...)."""
    return (matrix @ v.reshape(v.shape[0], -1)).reshape(matrix.shape[0], *v.shape[1:])


def spread(v: np.ndarray) -> np.ndarray:
    """(N, B) with room for columns."""
    return v[:, None, :]


def spread_over(v: np.ndarray) -> np.ndarray:
    """Columns (N, k) with room for neurons, where they lack it."""
    return v if v.ndim == 3 else v[:, :, None]


def probes(root: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Columns whose mean product is root root^T: all of them, or random orthogonal directions."""
    rank = root.shape[1]
    if rank <= PROBES:
        return root
    directions, _ = np.linalg.qr(generator.standard_normal((rank, PROBES)))
    return root @ (directions * np.sqrt(rank / PROBES)).astype(root.dtype)


class Matrices:
    """Pair matrices of a source layer between all samples and training samples, in working precision."""

    def __init__(self, scene: Scene, index: int):
        self.layer = scene.layers[index]
        count, real = scene.count, scene.real
        self.columns = {
            name: np.ascontiguousarray(matrix[:, :count], dtype=real)
            for name, matrix in self.layer.pairs.items()
        }
        self.transposed = {
            name: np.ascontiguousarray(self.layer.pairs[name][:count].T, dtype=real)
            for name in ("x2", "y3", "r3", "r4")
        }


class Batch:
    """Neurons drawn from one source layer; effects are summed by the name of a contribution."""

    def __init__(self, scene: Scene, matrices: Matrices, generator: np.random.Generator, size: int):
        layer, count, real = matrices.layer, scene.count, scene.real
        self.scene, self.matrices, self.count, self.lower = scene, matrices, count, layer.lower
        noise = generator.standard_normal((layer.root.shape[1], size)).astype(real)
        self.s = Tower(layer.activation, 3)(layer.root @ noise).astype(real)
        self.g, self.g2 = (layer.fields.draw(generator, size)[0] for _ in range(2))
        self.mixed = None if layer.mixed is None else layer.mixed.draw(generator, size)
        zeta, self.eta = (probes(root, generator) for root in scene.roots)
        wires = scene.wired(np.ones(count)).astype(real)
        self.zeta, self.wires = np.concatenate([zeta, wires], axis=1), wires.shape[1]
        self.phi, self.phi2 = self.on_training(self.g * self.s[1]), self.on_training(self.g2 * self.s[1])
        self.direct: dict[str, np.ndarray] = defaultdict(float)  # type: ignore[arg-type]
        self.ends: dict[tuple[str, str], np.ndarray] = defaultdict(float)  # type: ignore[arg-type]

    def on_training(self, v: np.ndarray) -> np.ndarray:
        return v[: self.count]

    # --- features applied to vectors on training samples ---------------------------------------------

    def apply(self, name: str, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """A pair matrix times v."""
        return times(self.matrices.columns[name][:rows], v)

    def leg(self, order: int, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """A derivative of the activation on some rows, shaped to multiply v."""
        s = self.s[order][:rows]
        return s if v.ndim == 2 else spread(s)

    def halves(self, v: np.ndarray, rows: Rows = None) -> tuple[np.ndarray, np.ndarray]:
        """Lam (sigma v) and Om (sigma' v), which x, y and r have in common."""
        first, second = (self.leg(order, v, self.count) * v for order in (0, 1))
        return self.apply("Lam", first, rows), self.apply("Om", second, rows)

    def y_of(self, halves, v, rows: Rows = None) -> np.ndarray:
        """y v."""
        result = self.leg(1, halves[0], rows) * halves[0] + self.leg(2, halves[1], rows) * halves[1]
        if self.lower:
            alone = self.s[1][:rows] * self.s[0][:rows]
            result += _beside(alone, result) * self.apply("y3", v, rows)
        return result

    def r_of(self, halves, v, rows: Rows = None) -> np.ndarray:
        """r v."""
        result = self.leg(2, halves[0], rows) * halves[0] + self.leg(3, halves[1], rows) * halves[1]
        return result + self._r_on_one_sample(v, rows) if self.lower else result

    def _r_on_one_sample(self, v, rows: Rows) -> np.ndarray:
        s0, s1, s2 = (self.s[order][:rows] for order in (0, 1, 2))
        first, second = (self.apply(name, v, rows) for name in ("r3", "r4"))
        return _beside(s2 * s0, first) * first + _beside(s1 * s1, second) * second

    def y_on(self, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        return self.y_of(self.halves(v, rows), v, rows)

    def s_on(self, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """The feature s times v."""
        first, second = (self.leg(order, v, self.count) * v for order in (1, 2))
        result = self.leg(1, v, rows) * self.apply("Lam", first, rows)
        return result + self.leg(2, v, rows) * self.apply("Om", second, rows)

    def tied(self, v: np.ndarray, rows: Rows = None) -> np.ndarray:
        """Theta v."""
        return self.apply("Th", v, rows)

    # --- pairs of modes that the kernel of residuals joins: K by probes, and the wire of each column ----

    def joined(self, v: np.ndarray) -> np.ndarray:
        """Products (N, p + wires, B) summed over probes, (N, 1, B), or one sum for each wire."""
        shared = v[:, : v.shape[1] - self.wires].sum(axis=1, keepdims=True)
        return shared + v[:, v.shape[1] - self.wires :] if self.wires else shared

    def r_of_probes(self, halves, zeta: np.ndarray, rows: Rows = None) -> np.ndarray:
        """r zeta; parts of r on one sample are left out of probes, since they are added exactly."""
        result = self.leg(2, halves[0], rows) * halves[0] + self.leg(3, halves[1], rows) * halves[1]
        if self.lower and self.wires:
            result[:, -self.wires :] += self._r_on_one_sample(zeta[:, -self.wires :], rows)
        return result

    def weighted_by_kernel(self, weights, left, right, vectors) -> list[np.ndarray]:
        """(M o L R^T) v for each M with its own v, as `weighted`, where L and R have probes and wires."""
        count = left.shape[1] - self.wires
        results = weighted(weights, left[:, :count], right[:, :count], vectors)
        if not self.wires:
            return results
        left, right = (spread_over(v[:, count:]) for v in (left, right))
        return [
            result + left * times(M, right * v)
            for result, M, v in zip(results, weights, vectors, strict=True)
        ]

    # --- effects --------------------------------------------------------------------------------------

    def end(self, place: str, name: str, v: np.ndarray) -> None:
        """Add what stands before an end: "g", "g2" or "h" (sigma' g Theta ...), "y" or "r" (transposed)."""
        self.ends[place, name] = self.ends[place, name] + v

    def add(self, name: str, v: np.ndarray) -> None:
        """Add an effect on all samples, (N, n_L, B)."""
        self.direct[name] = self.direct[name] + v.sum(axis=2, dtype=np.float64)

    def close(self) -> dict[str, np.ndarray]:
        """Effects summed over the batch, (N, n_L) by contribution, without the weight of the layer."""
        s = self.s
        starts = {"g": self.g * s[1], "g2": self.g2 * s[1]}
        if self.mixed is not None:
            starts["h"] = self.mixed[0] * s[1] * s[0]
        for (place, name), v in self.ends.items():
            if place in starts:
                self.add(name, spread(starts[place]) * self.tied(v))
            else:
                self.add(name, self._transposed(v, *((1, 2) if place == "y" else (2, 3))))
        return dict(self.direct)

    def _transposed(self, v: np.ndarray, first: int, second: int) -> np.ndarray:
        """y^T v (derivatives 1 and 2 in front), or r^T v (2 and 3)."""
        s, count = self.s, self.count
        result = spread(s[0]) * self.apply("Lam", spread(s[first][:count]) * v)
        result += spread(s[1]) * self.apply("Om", spread(s[second][:count]) * v)
        if self.lower:
            fixed = self.matrices.transposed
            if first == 1:
                result += times(fixed["y3"], spread((s[1] * s[0])[:count]) * v)
            else:
                result += times(fixed["r3"], spread((s[2] * s[0])[:count]) * v)
                result += times(fixed["r4"], spread((s[1] * s[1])[:count]) * v)
        return result


def _beside(alone: np.ndarray, v: np.ndarray) -> np.ndarray:
    return alone if v.ndim == 2 else spread(alone)
