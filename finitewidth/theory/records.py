"""The records of the theory: statistics of one layer, and of a network on a data set."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import over_samples, shown
from finitewidth.network.network import Network
from finitewidth.theory import xarray_form
from finitewidth.theory.checks import check_layer
from finitewidth.theory.ratios import Report, ratios, uncertainty_of
from finitewidth.theory.tensors import MATRICES, TENSORS, stderr_name, why_missing

if TYPE_CHECKING:
    import xarray


@shown("index", "n", "arrays", "net", dimensions=over_samples((*MATRICES, "G", "H"), TENSORS))
@dataclass(frozen=True, eq=False)
class Layer:
    """Statistics of the preactivations and the NTK of one layer, 1/n of the previous layer stripped.

    `K`, `Theta` at infinite width; at order 1 also their corrections `G1`, `H1` and the tensors `V, D, A, F,
    B, P, Q, R, S, T, U`, axes in the order of their printed subscripts. A result of `fw.solve` has one for
    each layer.

    ```python
    layer = fw.solve(net, X).layer(2)
    layer.K, layer.V, layer.G, layer.uncertainty("G")
    ```
    """

    net: Network
    index: int  # l, from 1
    arrays: dict[str, np.ndarray] = field(repr=False)  # the same statistics by letter

    @property
    def n(self) -> int:
        """The width of the previous layer, which every stripped 1/n refers to."""
        return self.net.channels_in_front[self.index - 1]

    @property
    def G(self) -> Float[np.ndarray, "N N"]:
        """K + G1/n, the mean kernel of networks of this width."""
        return self.K + self.G1 / self.n

    @property
    def H(self) -> Float[np.ndarray, "N N"]:
        """Theta + H1/n, the mean NTK of networks of this width."""
        return self.Theta + self.H1 / self.n

    def stderr(self, name: str) -> np.ndarray:
        """The standard error of a statistic, of its shape: zero where nothing was drawn.

        Heads of attention are drawn; V of such a network has one.
        """
        value, known = getattr(self, name), stderr_name(name)
        return self.arrays[known] if known in self.arrays else np.zeros_like(value)

    def uncertainty(self, name: str) -> np.ndarray:
        """What order 1/n neglects in "G", "H" or a tensor, of its shape: one standard deviation.

        That of a tensor has 1/n stripped, as the tensor has.
        """
        return uncertainty_of(self, name)

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in (*MATRICES, *TENSORS):
            raise AttributeError(
                f"Layer has no attribute {name!r}; it has {', '.join((*MATRICES, *TENSORS))}."
            )
        if name not in self.arrays:
            raise ValueError(why_missing(self.net, self.index, name))
        return self.arrays[name]


@shown("order", "depth", "X", "error", "four_leg_error", "memory_error", "net", figure="kernels_over_depth")
@dataclass(frozen=True, eq=False)
class Theory:
    """The statistics of a network at initialization on a data set, as `fw.solve` computes them.

    ```python
    theory = fw.solve(net, X)
    theory.output.V, theory.report(), theory.to_xarray()
    ```
    """

    net: Network
    X: Float[np.ndarray, "N ..."]  # inputs
    order: int  # 0 is infinite width
    error: float  # largest error of a two-leg average, in units of the scale it lives on
    four_leg_error: float  # largest absolute error of a four-leg average; 0 at infinite width
    layers: dict[int, Layer] = field(repr=False)  # those that were kept, by index
    memory_error: float | None = 0.0  # of a truncated memory, relative to the largest entry; None if unknown

    @property
    def depth(self) -> int:
        return self.net.depth

    def layer(self, index: int) -> Layer:
        """Layer `index`, counted from 1 to L."""
        check_layer(index, self.depth)
        if index not in self.layers:
            raise ValueError(
                f"layer {index} was not kept; solve again with layers=None or with it among layers."
            )
        return self.layers[index]

    @property
    def output(self) -> Layer:
        """Layer L."""
        return self.layer(self.depth)

    def report(self) -> Report:
        """Dimensionless ratios of the output layer and whether the 1/n expansion can be trusted."""
        if self.order < 1:
            raise ValueError("report needs the 1/n tensors; use fw.solve(net, X, order=1).")
        return ratios(self.output)

    def to_xarray(self) -> "xarray.Dataset":
        """All statistics as a labelled data set; `fw.load` reads back the store that `save` writes."""
        return xarray_form.to_xarray(self._contents())

    def save(self, path: str | Path) -> None:
        """Write everything to a Zarr store with named dimensions and the network inside."""
        xarray_form.save(self._contents(), path)

    def _contents(self) -> xarray_form.Contents:
        arrays = {index: layer.arrays for index, layer in self.layers.items()}
        errors = self.error, self.four_leg_error, self.memory_error
        return xarray_form.Contents(self.net, self.X, self.order, *errors, arrays)


def load(path: str | Path) -> Theory:
    """The theory that `Theory.save` wrote.

    Args:
        path: The store, which ends in .zarr.

    Returns:
        The same theory, to the last bit.

    ```python
    fw.solve(net, X).save("theory.zarr")
    fw.load("theory.zarr").output.K
    ```
    """
    contents = xarray_form.load(path)
    layers = {index: Layer(contents.net, index, arrays) for index, arrays in contents.layers.items()}
    return Theory(*contents[:5], layers, contents.memory_error)
