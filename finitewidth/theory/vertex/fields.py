r"""Preactivations alone through order 1/n: K, G1 and V, with nothing of the NTK.

V needs one family of four-leg averages, $\langle\sigma\sigma\sigma\sigma\rangle$, where all statistics need
six. Up to `DENSE` samples these averages are computed once and kept for any number of contractions; beyond,
each contraction computes them slice by slice and stores nothing of size N^4.
"""

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float

from finitewidth.core.memory import require_memory
from finitewidth.core.tasks import HERE, Runner
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.ladder import Ladder
from finitewidth.network.network import Network
from finitewidth.theory.checks import accuracy_or_error, check_tolerance
from finitewidth.theory.kernels import kernels
from finitewidth.theory.solve import solve_with
from finitewidth.theory.sources import sources_of_last
from finitewidth.theory.steps import Step, first_layer, steps
from finitewidth.theory.vertex.corners import corrections
from finitewidth.theory.vertex.four_sigmas import FAMILY, from_slice, from_whole, of_linear_neurons
from finitewidth.theory.vertex.interface import AbstractVertex, Contracted, WholeVertex
from finitewidth.theory.vertex.sources import Averages, VertexSource

DENSE = 64  # samples; beyond, nothing of size N^4 is stored


@dataclass(frozen=True, eq=False)
class Fields:
    """Preactivations of a network on distinct inputs: kernels of all layers, and vertices to contract."""

    net: Network
    X: Float[np.ndarray, "N n0"]
    error: float  # of two-leg averages, in units of the scale they live on
    tolerance: float  # of four-leg averages
    K: tuple[Float[np.ndarray, "N N"], ...] = field(repr=False)  # of layers 1 ... L
    steps: tuple[Step, ...] = field(repr=False)  # none where skips correlate layers
    stored: tuple[Float[np.ndarray, "N N N N"], ...] | None = field(default=None, repr=False)
    whole: AbstractVertex | None = field(default=None, repr=False)  # of the output, where skips are

    def with_averages(self, running: Runner = HERE) -> "Fields":
        """The same with all averages that are kept, computed as tasks of a runner."""
        if self.net.ladder.has_skips:
            return replace(self, whole=_with_skips(self.net, self.X, self.tolerance, running))
        if len(self.X) > DENSE:
            return self
        return replace(self, stored=_stored(self.steps, len(self.X), self.tolerance, running))

    def vertex(self, layer: int) -> AbstractVertex:
        """The vertex of a layer; of the output alone where skips correlate layers."""
        if self.net.ladder.has_skips:
            assert self.whole is not None and layer == self.net.depth
            return self.whole
        ladder, below = self.net.ladder, self.steps[: layer - 1]
        stored = None if self.stored is None else self.stored[: layer - 1]
        seen = sources_of_last(ladder, first_layer(self.net, self.X), below)
        sources = tuple(VertexSource.of(source) for source in seen)
        return SummedVertex(ladder, below, sources, self.tolerance, stored)


@dataclass(frozen=True, eq=False)
class SummedVertex(AbstractVertex):
    """V as a sum over source layers, whose averages of four sigmas are stored or made slice by slice."""

    ladder: Ladder
    steps: tuple[Step, ...] = field(repr=False)  # up to the layer
    sources: tuple[VertexSource, ...] = field(repr=False)
    tolerance: float
    stored: tuple[Float[np.ndarray, "N N N N"], ...] | None = field(default=None, repr=False)

    def contract(self, straight: np.ndarray, crossed: np.ndarray, running: Runner = HERE) -> Contracted:
        totals = np.zeros_like(straight), np.zeros_like(crossed)
        layers = tuple(source for source in self.sources if not source.is_isometry)
        pulled = [source.pulled(straight) for source in layers]
        of_layers, twice = self._averages(layers, pulled, crossed, running), []
        for source in self.sources:
            g = source.pulled(straight)
            averages = of_linear_neurons(source, g, crossed) if source.is_isometry else next(of_layers)
            for total, part in zip(totals, source.contracted(g, crossed, averages), strict=True):
                total += part
            if not source.is_isometry:
                twice.append(averages.twice)
        G1 = corrections(self.ladder, self.steps, twice)[-1] if self.steps else np.zeros(straight.shape[1:])
        return Contracted(*totals, G1)

    def _averages(
        self, layers: tuple[VertexSource, ...], pulled: list[np.ndarray], M: np.ndarray, running: Runner
    ) -> Iterator[Averages]:
        if self.stored is not None:
            for source, g, values in zip(layers, pulled, self.stored, strict=True):
                yield from_whole(values, source, g, M)
            return
        if not layers:
            return
        N = M.shape[1]
        work = functools.partial(_slice, layers, pulled, M, self.tolerance)
        count = len(layers) * N
        slices = running.results(work, count, name="slices", what="contracting the vertex", at_once=2)
        for g in pulled:
            total = Averages(np.zeros_like(g), np.zeros_like(M), np.zeros((N, N, N)))
            for d in range(N):
                _add(total, d, next(slices))
            yield total


def _slice(
    sources: tuple[VertexSource, ...], pulled: list[np.ndarray], M: np.ndarray, tolerance: float, task: int
) -> dict[str, np.ndarray]:
    """One task: the averages of one source layer whose last sample is d."""
    N = M.shape[1]
    layer, d = divmod(task, N)
    averages = from_slice(sources[layer], d, pulled[layer], M, tolerance)
    pad = ((0, N - d - 1), (0, N - d - 1))
    own, others = averages.twice[d], averages.twice[:, :, d]
    return {
        "straight": averages.straight,
        "crossed": averages.crossed,
        "own": np.pad(own, pad),
        "others": np.pad(others, pad),
    }


def _add(total: Averages, d: int, part: dict[str, np.ndarray]) -> None:
    total.straight[...] += part["straight"]
    total.crossed[...] += part["crossed"]
    until = slice(d + 1)
    total.twice[until, until, d] = total.twice[until, d, until] = part["others"][until, until]
    total.twice[d, until, until] = part["own"][until, until]


def fields(net: Network, X: Float[np.ndarray, "N n0"], *, tolerance: float | None = None) -> Fields:
    """Kernels of preactivations on distinct inputs that have been checked; no four-leg averages yet."""
    if tolerance is None:
        smooth = 1e-8 if len(X) <= DENSE else 1e-6  # slices are computed for every contraction
        tolerance = smooth if net.is_smooth else 1e-5
    check_tolerance("four_leg_tolerance", tolerance)
    if net.ladder.has_skips:
        pair = kernels(net, X)
        return Fields(net, X, pair.error, tolerance, (pair.K,), ())
    first = first_layer(net, X)
    walked = tuple(steps(net, first, net.depth, ACCURACY))
    error = max((step.moments.error for step in walked), default=0.0)
    accuracy_or_error(error, ACCURACY, net.activation_name)
    K = (first[0], *(step.above.K for step in walked))
    return Fields(net, X, error, tolerance, K, walked)


def _stored(
    walked: tuple[Step, ...], count: int, tolerance: float, running: Runner
) -> tuple[np.ndarray, ...]:
    needed = 8 * count**4 * (len(walked) + 3)
    require_memory(needed, f"averages of four sigmas for {count} inputs", "pass fewer inputs")
    work = functools.partial(_whole, [(step.activation, step.K) for step in walked], tolerance)
    results = running.results(work, len(walked), name="layers", what="averaging over layers")
    return tuple(result["values"] for result in results)


def _whole(legs: list[tuple], tolerance: float, task: int) -> dict[str, np.ndarray]:
    activation, K = legs[task]
    return {"values": np.asarray(four_legs(activation, K, (FAMILY,), tolerance=tolerance)[FAMILY].value)}


def _with_skips(net: Network, X: np.ndarray, tolerance: float, running: Runner) -> AbstractVertex:
    """The vertex of the output of a network with skips, whose statistics are always computed together."""
    theory = solve_with(
        running,
        net,
        X,
        four_leg_tolerance=tolerance,
        tensors=("V",),
        layers=(net.depth,),
        remedy="pass fewer inputs: networks with skip connections store all statistics",
    )
    return WholeVertex(theory.output.G1, theory.output.V)
