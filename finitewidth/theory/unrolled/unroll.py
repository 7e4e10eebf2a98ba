r"""Tensors at a layer as sums over the layers that created them, with nothing of size N^4 on the way.

Unrolling the recursions over depth, every tensor is

$$\sum_{\text{source layers}} w \times \text{ties of } \Theta \times \langle \text{row feature} \times
  \text{column feature} \rangle,$$

where a feature of a pair (a b) is a short sum of pair matrices times two legs, such as n0 s_a s_b +
n1 s_a s_a + n1^T s_b s_b. Only the pair matrices travel through depth.
The four-leg averages of a source layer may be dense, streamed one leg at a time, or replaced by samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import as_inputs
from finitewidth.core.memory import require_memory
from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.four_legs.averages import four_legs, four_legs_with_fixed_leg
from finitewidth.gaussian.two_legs.expectation import TOLERANCE, Automatic
from finitewidth.network.mlp import MLP
from finitewidth.theory.means import Propagation, check_layer
from finitewidth.theory.moments import moments
from finitewidth.theory.sources import Step

Vectors = Sequence[np.ndarray] | np.ndarray  # one vector for each of the four slots
Leg = tuple[int, int]  # (which sample of the pair, derivative order)
Term = tuple[np.ndarray, tuple[Leg, Leg]]  # pair matrix and two legs


@dataclass(frozen=True)
class Shape:
    """What distinguishes a tensor: its features, the ties of Theta and its printed order of slots."""

    row: str
    column: str
    ties: tuple[str, ...] = ()  # pairs of block labels a b | c d tied by a factor of Theta
    centred: bool = False
    printed: str = "abcd"  # block labels in the order in which the tensor's subscripts are printed


SHAPES = {
    "V": Shape("v", "v", centred=True),
    "D": Shape("x", "v", centred=True),
    "A": Shape("x", "x", centred=True),
    "F": Shape("f", "f", ("ac",)),
    "Q": Shape("y", "f", ("ac",)),
    "T": Shape("y", "y", ("ac",), printed="abdc"),
    "B": Shape("e", "e", ("ac", "bd")),
    "P": Shape("p", "e", ("ac", "ad"), printed="acdb"),
    "R": Shape("q", "e", ("ac", "ad")),
    "S": Shape("t", "e", ("ac", "bd")),
    "U": Shape("u", "u", ("ac", "ad", "cb")),
}


@dataclass(frozen=True)
class Source:
    """One source layer: its kernel and NTK, and the features it sends to the layer asked for."""

    K: np.ndarray
    Theta: np.ndarray
    weight: float  # product of width ratios on the way
    pairs: dict[str, np.ndarray]  # pair matrices by name

    @classmethod
    def at(cls, step: Step, K: np.ndarray) -> "Source":
        """What a layer sends to the next one."""
        ones, zeros = np.ones_like(K), np.zeros_like(K)
        C, lW, tied = step.C_W * ones, step.lambda_W * ones, step.C_W * step.Theta
        starts = {"n0 be p1 E": C, "x0 y1 r1 t1": lW, "x1 y2 r2 t2": tied, "n1 x2 al y3 p2 p3 r3 r4": zeros}
        pairs = {name: start for names, start in starts.items() for name in names.split()}
        own = {"<00>": step.moments.sigma.value, "<11>": step.moments.slope.value}
        return cls(K, step.Theta, 1.0, pairs | own)

    def lifted(self, step: Step) -> "Source":
        """The same source seen from one layer further up."""
        g = self.pairs
        e, b = step.E.both, step.Z
        assert step.moments.leading is not None
        a, c20 = step.dY, step.C_W * step.moments.leading

        def of_first(*names: str) -> np.ndarray:
            """The sum of pair matrices on the first label alone."""
            return sum(np.diag(g[name]) for name in names)[:, None]  # type: ignore[index]

        pairs = {
            "n0": e * g["n0"],
            "n1": c20 * (of_first("n0", "n1", "n1")) / 2 + e * g["n1"],
            "x0": b * g["n0"] + e * g["x0"],
            "x1": e * g["x1"],
            "x2": a * of_first("n0", "n1", "n1") / 2 + b * g["n1"] + e * g["x2"],
            "be": e * g["be"],
            "al": c20 * of_first("be", "al") + e * g["al"],
            "y1": b * g["be"] + e * g["y1"],
            "y2": e * g["y2"],
            "y3": a * of_first("be", "al") + b * g["al"] + e * g["y3"],
            "p1": e * g["p1"],
            "p2": c20 * of_first("p1", "p2") + e * g["p2"],
            "p3": c20 * of_first("p3", "E") + e * g["p3"],
            "E": e * g["E"],
            "t1": b * g["E"] + e * g["t1"],
            "t2": e * g["t2"],
            "r1": b * g["p1"] + e * g["r1"],
            "r2": e * g["r2"],
            "r3": a * of_first("p1", "p2") + b * g["p2"] + e * g["r3"],
            "r4": a * of_first("p3", "E") + b * g["p3"] + e * g["r4"],
        }
        own = {name: g[name] for name in ("<00>", "<11>")}  # averages of the source layer itself
        return Source(self.K, self.Theta, self.weight * step.width_ratio, pairs | own)

    def feature(self, name: str) -> list[Term]:
        """A feature as a sum of pair matrices times two legs."""
        g = self.pairs
        s_ab, d_ab = ((0, 0), (1, 0)), ((0, 1), (1, 1))  # s_a s_b and s'_a s'_b
        s_aa, s_bb = ((0, 0), (0, 0)), ((1, 0), (1, 0))
        features: dict[str, list[Term]] = {
            "v": [(g["n0"], s_ab), (g["n1"], s_aa), (g["n1"].T, s_bb)],
            "x": [(g["x0"], s_ab), (g["x1"], d_ab), (g["x2"], s_aa), (g["x2"].T, s_bb)],
            "f": [(g["be"], ((0, 1), (1, 0))), (g["al"], ((0, 1), (0, 0)))],
            "y": [(g["y1"], ((0, 1), (1, 0))), (g["y2"], ((0, 2), (1, 1))), (g["y3"], ((0, 1), (0, 0)))],
            "e": [(g["E"], d_ab)],
            "p": [(g["p1"], ((0, 2), (1, 0))), (g["p2"], ((0, 2), (0, 0))), (g["p3"], ((0, 1), (0, 1)))],
            "q": [
                (g["r1"], ((0, 2), (1, 0))),
                (g["r2"], ((0, 3), (1, 1))),
                (g["r3"], ((0, 2), (0, 0))),
                (g["r4"], ((0, 1), (0, 1))),
            ],
            "t": [(g["t1"], d_ab), (g["t2"], ((0, 2), (1, 2)))],
            "u": [(g["E"], ((0, 2), (1, 1)))],
        }
        return [term for term in features[name] if term[0].any()]


@dataclass(frozen=True)
class Unrolled:
    """The 1/n tensors of one layer in unrolled form."""

    net: MLP
    layer: int
    count: int  # N, the number of inputs
    sources: tuple[Source, ...]

    def tensor(self, name: str, *, tolerance: float = 1e-8) -> np.ndarray:
        """The dense tensor, slots in printed order."""
        from finitewidth.theory.unrolled.dense import dense

        require_memory(
            8 * 10 * self.count**4, f"tensor {name} for {self.count} inputs", "contract it instead"
        )
        return dense(self, _shape(name), tolerance)

    def contract(self, name: str, vectors: Vectors, *, tolerance: float = 1e-8) -> float:
        """The tensor summed with one vector on each slot (printed order), streamed one leg at a time."""
        return self.contract_all({name: vectors}, tolerance=tolerance)[name]

    def contract_all(self, vectors: Mapping[str, Vectors], *, tolerance: float = 1e-8) -> dict[str, float]:
        """Several tensors with four vectors each, in one pass over the four-leg averages."""
        from finitewidth.theory.unrolled.dense import streamed

        requests = {name: (_shape(name), self._block_vectors(name, four)) for name, four in vectors.items()}
        return streamed(self, requests, tolerance)

    def sample_contraction(
        self, name: str, vectors: Vectors, *, samples: int = 10_000, key: int = 0
    ) -> Estimate:
        """The same with the four-leg averages replaced by Gaussian samples, and its standard error."""
        from finitewidth.theory.unrolled.sampled import sampled

        if samples < 2:
            raise ValueError(f"samples must be at least 2, got {samples}; a standard error needs more.")
        return sampled(self, _shape(name), self._block_vectors(name, vectors), samples, key)

    def _block_vectors(self, name: str, vectors: Vectors) -> dict[str, np.ndarray]:
        arrays = [np.asarray(v, dtype=float) for v in vectors]
        count = self.count
        if len(arrays) != 4 or any(v.shape != (count,) for v in arrays):
            shapes = [v.shape for v in arrays]
            raise ValueError(
                f"vectors must be four arrays of shape ({count},), got {shapes}; one for each slot."
            )
        return dict(zip(_shape(name).printed, arrays, strict=True))


def _shape(name: str) -> Shape:
    if name not in SHAPES:
        raise ValueError(f"name must be one of {', '.join(SHAPES)}, got {name!r}.")
    return SHAPES[name]


def unroll(net: MLP, X, *, layer: int | None = None, tolerance: float = TOLERANCE) -> Unrolled:
    """The 1/n tensors of a layer (the output by default) as sums over source layers.

    Costs two-leg averages only: time and memory grow as N^2 times depth squared.
    """
    require_double_precision()
    X = as_inputs(X, net.widths[0])
    layer = net.depth if layer is None else layer
    check_layer(layer, net.depth)
    if not net.activation.is_smooth:
        raise ValueError(
            f"activation {net.activation.name!r} has a kink, which the unrolled form cannot treat; use "
            "fw.solve for V, D, A, F and B, or a smooth activation."
        )
    state = Propagation(net, X, None, Automatic(tolerance))
    sources: tuple[Source, ...] = ()
    for index in range(1, layer):
        K, Theta = (matrix.copy() for matrix in state.matrices())  # type: ignore[union-attr]
        step = Step.above(net, index, Theta, moments(net.activation, K, Automatic(tolerance)))
        sources = (*(source.lifted(step) for source in sources), Source.at(step, K))
        state.advance()
    return Unrolled(net, layer, X.shape[0], sources)


def averages_by_layer(unrolled: Unrolled, source: Source, families, tolerance: float):
    """Dense four-leg averages of a source layer."""
    return four_legs(unrolled.net.activation, source.K, families, tolerance=tolerance)


def averages_with_fixed_leg(unrolled: Unrolled, source: Source, fixed: int, families, tolerance: float):
    """Four-leg averages of a source layer with one sample fixed in each of the slots in turn."""
    return four_legs_with_fixed_leg(unrolled.net.activation, source.K, fixed, families, tolerance=tolerance)
