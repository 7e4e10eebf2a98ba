"""The theory of a network on a data set: its statistics at every layer."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from finitewidth.inputs import as_inputs
from finitewidth.memory import require_memory
from finitewidth.network import MLP
from finitewidth.precision import require_double_precision
from finitewidth.storage import read_arrays, write_arrays
from finitewidth.theory.expectation import TOLERANCE, Automatic
from finitewidth.theory.means import Propagation, accuracy_or_error, check_layer


@dataclass(frozen=True, eq=False)
class Layer:
    """Statistics of the preactivations and the NTK of one layer."""

    net: MLP
    index: int  # l, from 1
    K: Float[np.ndarray, "N N"]
    _Theta: Float[np.ndarray, "N N"] | None

    @property
    def Theta(self) -> Float[np.ndarray, "N N"]:
        """The infinite-width NTK."""
        if self._Theta is None:
            raise ValueError(
                f"activation {self.net.activation.name!r} has a kernel but no NTK, since its derivative is a "
                "delta function; use a continuous activation."
            )
        return self._Theta


@dataclass(frozen=True, eq=False)
class Theory:
    """What `solve` found: the network, the inputs and the statistics of every layer."""

    net: MLP
    X: Float[np.ndarray, "N n0"]
    order: int
    error: float  # largest error of a two-leg average, in units of the scale it lives on
    _layers: tuple[Layer, ...]

    @property
    def depth(self) -> int:
        return self.net.depth

    def layer(self, index: int) -> Layer:
        """Layer `index`, counted from 1 to L."""
        check_layer(index, self.depth)
        return self._layers[index - 1]

    @property
    def output(self) -> Layer:
        """Layer L."""
        return self._layers[-1]

    def __repr__(self) -> str:
        return f"Theory({self.net!r}, {self.X.shape[0]} inputs, order={self.order})"

    def save(self, path: str | Path) -> None:
        """Write everything to one npz file, with the network inside."""
        arrays = {"X": self.X, "K": np.stack([layer.K for layer in self._layers])}
        if self._layers[0]._Theta is not None:
            arrays["Theta"] = np.stack([layer.Theta for layer in self._layers])
        about = {"kind": "theory", "network": self.net.to_dict(), "order": self.order, "error": self.error}
        write_arrays(path, arrays, about)


def load(path: str | Path) -> Theory:
    """The theory that `Theory.save` wrote."""
    arrays, about = read_arrays(path, kind="theory")
    net = MLP.from_dict(about["network"])
    Theta = arrays.get("Theta", [None] * net.depth)
    layers = [Layer(net, l + 1, arrays["K"][l], Theta[l]) for l in range(net.depth)]
    return Theory(net, arrays["X"], about["order"], about["error"], tuple(layers))


def solve(net: MLP, X, *, order: int = 0, tolerance: float = TOLERANCE) -> Theory:
    """Statistics at initialization of every layer, for all pairs of inputs.

    `order` 0 is infinite width. `tolerance` is the accuracy of the Gaussian averages relative to the scale
    that each lives on. Inputs in single precision or integers are promoted to float64.
    """
    require_double_precision()
    if order not in (0,):
        raise ValueError(f"order must be 0 (infinite width), got {order!r}.")
    X = as_inputs(X, net.widths[0])
    count = X.shape[0]
    require_memory(
        8 * count**2 * (2 * net.depth + 3),
        f"K and Theta of {net.depth} layers for {count} inputs",
        "use fw.kernels for one layer, or fewer inputs",
    )
    distinct, inverse = np.unique(X, axis=0, return_inverse=True)
    repeated = distinct.shape[0] < count  # the same input twice gives the same rows to the last bit
    state = Propagation(net, distinct if repeated else X, None, Automatic(tolerance))
    layers = []
    for index in range(1, net.depth + 1):
        if index > 1:
            state.advance()
        pair = [
            matrix if matrix is None else _expanded(matrix, inverse, repeated) for matrix in state.matrices()
        ]
        layers.append(Layer(net, index, *pair))  # type: ignore[arg-type]
    accuracy_or_error(state.error, tolerance, net.activation.name)
    return Theory(net, X, order, state.error, tuple(layers))


def _expanded(matrix: np.ndarray, inverse: np.ndarray, repeated: bool) -> np.ndarray:
    return matrix[np.ix_(inverse.ravel(), inverse.ravel())] if repeated else matrix.copy()
