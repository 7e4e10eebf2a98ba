"""The infinite-width kernel and NTK of one layer, between two sets of inputs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.core.memory import require_memory
from finitewidth.core.precision import require_double_precision
from finitewidth.core.run import QUIET, Run, runner
from finitewidth.core.storage.files import read_arrays, write_arrays
from finitewidth.core.tasks import Runner
from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.mlp import network_from_dict
from finitewidth.network.network import Network
from finitewidth.theory.checks import accuracy_or_error, check_layer, check_tolerance
from finitewidth.theory.pairs.panels import Request, assembled
from finitewidth.theory.pairs.propagation import Matrices, Propagation


@shown(
    "K",
    "Theta",
    "layer",
    "error",
    "sampling_error",
    "net",
    dimensions={"K": "sample other_sample", "Theta": "sample other_sample"},
)
@dataclass(frozen=True, eq=False)
class Kernels:
    """Kernel and NTK between two sets of inputs at one layer, at infinite width.

    `fw.kernels` makes it.

    ```python
    kernels = fw.kernels(net, X)
    kernels.save("kernels.npz")
    fw.records.Kernels.load("kernels.npz").Theta
    ```
    """

    net: Network
    layer: int  # counted from 1
    K: Float[np.ndarray, "N M"]  # kernel
    Theta: Float[np.ndarray, "N M"] | None  # None where the activation has no derivative
    error: float  # largest error of an average, in units of the scale it lives on
    sampling_error: float = 0.0  # largest standard error of random attention, in units of its largest entry

    def save(self, path: str | Path) -> None:
        """Write the kernels and the network to one npz file."""
        arrays = {"K": self.K} if self.Theta is None else {"K": self.K, "Theta": self.Theta}
        about = {"network": self.net.to_dict(), "layer": self.layer, "error": self.error}
        errors = {"sampling_error": self.sampling_error}
        write_arrays(path, arrays, {"kind": "kernels", **about, **errors})

    @classmethod
    def load(cls, path: str | Path) -> "Kernels":
        """The kernels that `save` wrote."""
        arrays, about = read_arrays(path, kind="kernels")
        try:
            net = network_from_dict(about["network"])
            errors = about["error"], about.get("sampling_error", 0.0)
            return cls(net, about["layer"], arrays["K"], arrays.get("Theta"), *errors)
        except KeyError as missing:
            raise ValueError(
                f"{str(path)!r} has no {missing} and is no file of kernels; write it again with save."
            ) from None


@takes_models
def kernels(
    net: Network,
    X: ArrayLike,
    X_other: ArrayLike | None = None,
    *,
    layer: int | None = None,
    tolerance: float = ACCURACY,
    run: Run | None = None,
) -> Kernels:
    """Kernel and NTK between two sets of inputs at one layer, at infinite width.

    Nothing but the two matrices of that layer is stored: memory is bounded by them and a few blocks. At a
    layer with positions they are means over pairs of a position with itself, as if the layer were flattened.

    Args:
        net: The network.
        X: Inputs (N, n_0).
        X_other: Inputs (M, n_0); X itself by default.
        layer: The layer, counted from 1; the output by default.
        tolerance: The accuracy of averages relative to their scale.
        run: Store and cluster, for which panels of the matrices are tasks, and progress; without one no bar
            is shown.

    Returns:
        `K` and `Theta`, (N, M) each.

    ```python
    kernels = fw.kernels(net, X, X_test)
    kernels.K, kernels.Theta
    ```
    """
    require_double_precision()
    check_tolerance("tolerance", tolerance)
    X = as_inputs(X, net.input_shape)
    other = None if X_other is None else as_inputs(X_other, net.input_shape, name="X_other")
    layer = net.depth if layer is None else layer
    check_layer(layer, net.depth)
    columns = X.shape[0] if other is None else other.shape[0]
    require_memory(
        5 * 8 * X.shape[0] * columns,
        f"a kernel of {X.shape[0]} x {columns} pairs",
        "pass fewer inputs at a time, or use fw.fit(..., run=fw.Run(store=...)), which keeps it on disk",
    )
    request = Request(net, X, other, layer, tolerance)
    with runner(QUIET if run is None else run, kind="kernel", configuration=request.configuration) as running:
        in_panels = running.client is not None or running.store is not None
        matrices, error, sampling_error = (assembled if in_panels else _whole)(running, request)
    accuracy_or_error(error, tolerance, net.activation_name)
    return Kernels(net, layer, *matrices, error, sampling_error)


def _whole(running: Runner, request: Request) -> tuple[Matrices, float, float]:
    """K and Theta in one piece, the largest error and the largest standard error of draws."""
    net, X, other, layer, tolerance = request
    with SingleThreadedProducts():
        through = Propagation(net, X, other, tolerance, (layer,))
        layers, error = through.matrices(running.progress)
    return layers[layer], error, through.sampling_error
