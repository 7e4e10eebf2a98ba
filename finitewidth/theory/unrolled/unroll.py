r"""The 1/n tensors of one layer in unrolled form, with nothing of size N^4 on the way.

The four-leg averages of a source layer may be dense, streamed one leg at a time, or replaced by samples.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.core.memory import require_memory
from finitewidth.core.precision import require_double_precision
from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.network import Network
from finitewidth.theory.checks import check_layer
from finitewidth.theory.sources import Source, sources_of_last
from finitewidth.theory.steps import first_layer, steps
from finitewidth.theory.streams import Streams
from finitewidth.theory.tensors import SHAPES, Shape
from finitewidth.theory.unrolled.leg_by_leg import LegSlices, Request, contract_slots
from finitewidth.theory.unrolled.sampled import Group, sampled
from finitewidth.theory.unrolled.whole import stream_groups, whole, whole_with_skips

Vectors = Sequence[np.ndarray] | np.ndarray  # one vector for each of the four slots


@shown("layer", "count", "net")
@dataclass(frozen=True)
class Unrolled:
    """The 1/n tensors of one layer in unrolled form.

    `fw.unroll` makes it.

    ```python
    unrolled = fw.unroll(net, X)
    unrolled.contract("V", [np.ones(3)] * 4)
    ```
    """

    net: Network
    layer: int  # counted from 1
    count: int  # N, the number of inputs
    sources: tuple[Source, ...]  # layers that create non-Gaussianity, with the way from there
    streams: Streams | None = None  # where skips correlate source layers

    def tensor(self, name: str, *, tolerance: float = 1e-8) -> np.ndarray:
        """The dense tensor, slots in printed order."""
        require_memory(
            8 * 10 * self.count**4, f"tensor {name} for {self.count} inputs", "contract it instead"
        )
        if self.streams is not None:
            return whole_with_skips(self.streams, self.layer, _shape(name), self.count, tolerance)
        return whole(self.sources, _shape(name), self.count, tolerance)

    def contract(self, name: str, vectors: Vectors, *, tolerance: float = 1e-8) -> float:
        """The tensor summed with one vector on each slot (printed order), streamed one leg at a time.

        With skip connections, the tensor is made whole first.
        """
        return self.contract_all({name: vectors}, tolerance=tolerance)[name]

    def contract_all(self, vectors: Mapping[str, Vectors], *, tolerance: float = 1e-8) -> dict[str, float]:
        """Several tensors with four vectors each, in one pass over the four-leg averages."""
        checked = {name: self._checked(name, four) for name, four in vectors.items()}
        if self.streams is not None:
            return {
                name: float(np.einsum("abcd,a,b,c,d", self.tensor(name, tolerance=tolerance), *four))
                for name, four in checked.items()
            }
        requests = [
            Request(name, 0, np.einsum("b,c,d->bcd", *four[1:])[None]) for name, four in checked.items()
        ]
        totals = contract_slots(LegSlices(self, lambda: requests, tolerance))
        return {name: float(total[0] @ checked[name][0]) for name, total in zip(checked, totals, strict=True)}

    def sample_contraction(
        self, name: str, vectors: Vectors, *, samples: int = 10_000, key: int = 0
    ) -> Estimate:
        """The same with the four-leg averages replaced by Gaussian samples, and its standard error."""
        if samples < 2:
            raise ValueError(f"samples must be at least 2, got {samples}; a standard error needs more.")
        groups = [Group.of(source) for source in self.sources]
        if self.streams is not None:
            groups = stream_groups(self.streams, self.layer)
        labelled = dict(zip(_shape(name).printed, self._checked(name, vectors), strict=True))
        return sampled(groups, _shape(name), labelled, samples, key)

    def _checked(self, name: str, vectors: Vectors) -> list[np.ndarray]:
        """Four vectors for a tensor that exists."""
        _shape(name)
        arrays = [np.asarray(v, dtype=float) for v in vectors]
        count = self.count
        if len(arrays) != 4 or any(v.shape != (count,) for v in arrays):
            shapes = [v.shape for v in arrays]
            raise ValueError(
                f"vectors must be four arrays of shape ({count},), got {shapes}; one for each slot."
            )
        return arrays


def _shape(name: str) -> Shape:
    if name not in SHAPES:
        raise ValueError(f"name must be one of {', '.join(SHAPES)}, got {name!r}.")
    return SHAPES[name]


def unroll(net: Network, X: ArrayLike, *, layer: int | None = None, tolerance: float = ACCURACY) -> Unrolled:
    """The 1/n tensors of a layer as sums over source layers.

    Costs two-leg averages only: time and memory grow as N^2 times depth squared.

    Args:
        net: The network.
        X: Inputs (N, n_0).
        layer: The layer, counted from 1; the output by default.
        tolerance: The accuracy of two-leg averages, as in `solve`.

    Returns:
        A record that gives tensors whole or contracted with vectors.

    ```python
    fw.unroll(net, X)
    ```
    """
    require_double_precision()
    X = as_inputs(X, net.ladder.inputs)
    layer = net.depth if layer is None else layer
    check_layer(layer, net.depth)
    if net.kinked is not None and net.kinked_layer < layer:
        raise ValueError(
            f"activation {net.kinked.name!r} has a kink, which the unrolled form cannot treat; use "
            "fw.solve for V, D, A, F and B, or a smooth activation."
        )
    first = first_layer(net, X)
    walked = steps(net, first, layer, tolerance)
    if net.ladder.has_skips and layer > 1:
        streams = Streams(net.ladder, list(walked))
        return Unrolled(net, layer, X.shape[0], streams.seen[layer], streams)
    return Unrolled(net, layer, X.shape[0], sources_of_last(net.ladder, first, walked))
