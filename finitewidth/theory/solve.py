"""The theory of a network on a data set: its statistics at every layer."""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from finitewidth.core.checkpoint import digest
from finitewidth.core.inputs import as_inputs
from finitewidth.core.memory import require_memory
from finitewidth.core.precision import require_double_precision
from finitewidth.core.progress import Progress
from finitewidth.core.tasks import Runner, runner
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.two_legs.expectation import TOLERANCE, Automatic
from finitewidth.network.activation import Activation
from finitewidth.network.mlp import MLP
from finitewidth.theory import single
from finitewidth.theory.means import Propagation, accuracy_or_error, check_layer, check_tolerance
from finitewidth.theory.moments import moments
from finitewidth.theory.sources import FAMILIES, Averages, Step
from finitewidth.theory.step import State, next_layer, tensors

if TYPE_CHECKING:
    import xarray

MATRICES = ("K", "Theta", "G1", "H1")
TENSORS = ("V", "D", "A", "F", "B", "P", "Q", "R", "S", "T", "U")
BARE_TENSORS = ("V", "F", "B")  # what exists even between parallel inputs
KINKED_TENSORS = ("V", "D", "A", "F", "B")  # what exists where sigma'' is a delta function


@dataclass(frozen=True, eq=False)
class Layer:
    """Statistics of the preactivations and the NTK of one layer, 1/n of the previous layer stripped.

    `K`, `Theta` at infinite width; at order 1 also their corrections `G1`, `H1` and the tensors
    `V, D, A, F, B, P, Q, R, S, T, U`, axes in the order of their printed subscripts.
    """

    net: MLP
    index: int  # l, from 1
    arrays: dict[str, np.ndarray] = field(repr=False)

    @property
    def n(self) -> int:
        """The width of the previous layer, which every stripped 1/n refers to."""
        return self.net.widths[self.index - 1]

    @property
    def G(self) -> Float[np.ndarray, "N N"]:
        """K + G1/n, the mean kernel of networks of this width."""
        return self.K + self.G1 / self.n

    @property
    def H(self) -> Float[np.ndarray, "N N"]:
        """Theta + H1/n, the mean NTK of networks of this width."""
        return self.Theta + self.H1 / self.n

    def __getattr__(self, name: str) -> np.ndarray:
        if name not in (*MATRICES, *TENSORS):
            raise AttributeError(
                f"Layer has no attribute {name!r}; it has {', '.join((*MATRICES, *TENSORS))}."
            )
        if name not in self.arrays:
            raise ValueError(self._why_missing(name))
        return self.arrays[name]

    def _why_missing(self, name: str) -> str:
        activation = self.net.activation
        if activation.jump_order < 1 and name != "K":
            return (
                f"{name} does not exist: activation {activation.name!r} has a kernel but no NTK, since its "
                "derivative is a delta function; use a continuous activation."
            )
        if not activation.is_smooth and name in TENSORS and name not in KINKED_TENSORS:
            return (
                f"{name} does not exist: activation {activation.name!r} has a kink, where derivatives of "
                f"sigma are delta functions and {name} is infinite or depends on how the kink is smoothed; "
                "use a smooth activation such as gelu or swish."
            )
        return f"{name} was not computed; use fw.solve(net, X, order=1) without tensors=, or add to them."


@dataclass(frozen=True, eq=False)
class Theory:
    """What `solve` found: the network, the inputs and the statistics of the layers."""

    net: MLP
    X: Float[np.ndarray, "N n0"]
    order: int
    error: float  # largest error of a two-leg average, in units of the scale it lives on
    four_leg_error: float  # largest absolute error of a four-leg average; 0 at infinite width
    layers: dict[int, Layer] = field(repr=False)

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

    def __repr__(self) -> str:
        return f"Theory({self.net!r}, {self.X.shape[0]} inputs, order={self.order})"

    def report(self):
        """Dimensionless ratios of the output layer and whether the 1/n expansion can be trusted."""
        from finitewidth.theory.ratios import report

        return report(self)

    def to_xarray(self) -> "xarray.Dataset":
        """All statistics as a labelled data set; `fw.load` reads back what `save` writes of it."""
        from finitewidth.theory.labelled import to_xarray

        return to_xarray(self)

    def save(self, path: str | Path) -> None:
        """Write everything to a Zarr store with named dimensions and the network inside."""
        from finitewidth.theory.labelled import save

        save(self, path)


def load(path: str | Path) -> Theory:
    """The theory that `Theory.save` wrote."""
    from finitewidth.theory.labelled import load as load_labelled

    return load_labelled(path)


def solve(
    net: MLP,
    X,
    *,
    order: int = 1,
    tolerance: float = TOLERANCE,
    four_leg_tolerance: float | None = None,
    layers: Iterable[int] | None = None,
    tensors: Iterable[str] | None = None,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = False,
) -> Theory:
    """Statistics at initialization, for all inputs, at infinite width (order 0) or through order 1/n.

    `tolerance` is the accuracy of two-leg averages relative to the scale that each lives on;
    `four_leg_tolerance` the absolute accuracy of four-leg averages (1e-8, or 1e-5 with kinks). `layers` and
    `tensors` say which to keep, all by default. Single precision and integers are promoted to float64.

    At order 1 the layers' four-leg averages, which take the time, are independent tasks for the Dask
    `client`; a `store` (a path that ends in .zarr) keeps those that are finished, so that a run that was
    killed goes on where it was. `progress` as in `train_ensemble`, but no bar is shown by itself.
    """
    X = as_inputs(X, net.widths[0])
    layers = None if layers is None else tuple(layers)

    def configuration() -> dict:
        accuracies = {"tolerance": tolerance, "four_leg_tolerance": four_leg_tolerance}
        return {"network": net.to_dict(), "X": digest(X), "order": order, "layers": layers, **accuracies}

    with runner(client, store, progress, kind="solution", configuration=configuration) as running:
        return solve_with(
            running,
            net,
            X,
            order=order,
            tolerance=tolerance,
            four_leg_tolerance=four_leg_tolerance,
            layers=layers,
            tensors=tensors,
        )


def solve_with(
    running: Runner,
    net: MLP,
    X,
    *,
    order: int = 1,
    tolerance: float = TOLERANCE,
    four_leg_tolerance: float | None = None,
    layers: Iterable[int] | None = None,
    tensors: Iterable[str] | None = None,
    remedy: str = "keep fewer layers (layers=), fewer tensors (tensors=), or contract them in fw.unroll",
) -> Theory:
    """What `solve` finds, its tasks run by a runner; `remedy` is for statistics that memory cannot hold."""
    require_double_precision()
    for name, accuracy in (("tolerance", tolerance), ("four_leg_tolerance", four_leg_tolerance)):
        if accuracy is not None:
            check_tolerance(name, accuracy)
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    X = as_inputs(X, net.widths[0])
    kept = _kept_layers(layers, net.depth)
    names = _kept_tensors(tensors, net) if order == 1 else ()
    _check_memory(X.shape[0], order, len(kept), names, remedy)
    distinct, inverse = np.unique(X, axis=0, return_inverse=True)
    if distinct.shape[0] == X.shape[0]:
        distinct, inverse = X, np.arange(X.shape[0])  # keep the order in which inputs came
    if order == 0:
        found, error = _infinite_width(net, distinct, kept, tolerance), 0.0
    else:
        accuracy = four_leg_tolerance
        if accuracy is None:
            accuracy = 1e-8 if net.activation.is_smooth else 1e-5
        found, error = _finite_width(net, distinct, kept, tolerance, accuracy, names, running)
    arrays, two_leg_error = found
    accuracy_or_error(two_leg_error, tolerance, net.activation.name)
    whole = {index: Layer(net, index, _expanded(part, inverse.ravel())) for index, part in arrays.items()}
    return Theory(net, X, order, two_leg_error, error, whole)


Found = tuple[dict[int, dict[str, np.ndarray]], float]


def _infinite_width(net: MLP, X: np.ndarray, kept: set[int], tolerance: float) -> Found:
    state = Propagation(net, X, None, Automatic(tolerance))
    found = {}
    for index in range(1, max(kept) + 1):
        if index > 1:
            state.advance()
        if index in kept:
            pair = zip(("K", "Theta"), state.matrices(), strict=True)
            found[index] = {name: matrix.copy() for name, matrix in pair if matrix is not None}
    return found, state.error


def _finite_width(
    net: MLP,
    X: np.ndarray,
    kept: set[int],
    tolerance: float,
    accuracy: float,
    names: tuple[str, ...],
    running: Runner,
) -> tuple[Found, float]:
    activation = net.activation
    if activation.jump_order < 1:
        raise ValueError(
            f"activation {activation.name!r} has no NTK, since its derivative is a delta function; use "
            "order=0 for its kernel, or a continuous activation."
        )
    if X.shape[0] == 1 and single.applies(activation):
        found, error = _one_input(net, X, kept, tolerance, names)
        return (found, error), error
    first = Propagation(net, X, None, Automatic(tolerance)).matrices()
    bare = not activation.is_smooth and set(names) <= set(BARE_TENSORS)
    state = State(*first, None, None) if bare else State.first_layer(*first)  # type: ignore[arg-type]
    found = {1: _arrays(state, names, X.shape[0])} if 1 in kept else {}
    kernels, steps = _steps(net, state, max(kept), Automatic(tolerance), bare)
    error = max((step.moments.error for step in steps), default=0.0)
    four_leg_error = max((step.moments.derivative_error for step in steps), default=0.0)
    work = functools.partial(_averages, activation, kernels, accuracy)
    results = running.results(work, len(steps), name="layers", what="averaging over layers")
    index = 1
    for arrays in results:  # neither zip nor enumerate, which hold on to the last while the next is made
        averages = Averages.from_arrays(arrays)
        state = next_layer(state, steps[index - 1], averages)
        four_leg_error, index = max(four_leg_error, averages.error), index + 1
        if index in kept:
            found[index] = _arrays(state, names, X.shape[0])
        del arrays, averages
    return (found, error), four_leg_error


def _steps(
    net: MLP, state: State, last: int, rule: Automatic, bare: bool
) -> tuple[list[np.ndarray], list[Step]]:
    """The kernels and steps from layer to layer up to `last`; two-leg averages are all it takes."""
    K, Theta = state.K, state.Theta
    kernels, steps = [], []
    for layer in range(1, last):
        step = Step.above(net, layer, Theta, moments(net.activation, K, rule, bare=bare))
        kernels.append(K)
        steps.append(step)
        K, Theta = step.means_above
    return kernels, steps


def _averages(
    activation: Activation, kernels: Sequence[np.ndarray], accuracy: float, layer: int
) -> dict[str, np.ndarray]:
    """Four-leg averages of one layer: the task that takes the time, and needs the layer's kernel only."""
    families = [f for f in FAMILIES.values() if activation.is_smooth or max(f) <= 1]
    return Averages.of(four_legs(activation, kernels[layer], families, tolerance=accuracy)).to_arrays()


def _one_input(net: MLP, X: np.ndarray, kept: set[int], tolerance: float, names: tuple[str, ...]) -> Found:
    square = float(np.mean(X**2))
    found = single.single_input(net, square, tolerance)
    shapes = {name: (-1, 1, 1) if name in MATRICES else (-1, 1, 1, 1, 1) for name in (*MATRICES, *names)}
    stacked = {name: found.layers[name].reshape(shape) for name, shape in shapes.items()}
    return {index: {name: value[index - 1] for name, value in stacked.items()} for index in kept}, found.error


def _arrays(state: State, names: tuple[str, ...], count: int) -> dict[str, np.ndarray]:
    matrices = {name: getattr(state, name) for name in MATRICES if getattr(state, name) is not None}
    if not state.kernel:
        return matrices | {name: np.zeros((count,) * 4) for name in names}
    found = tensors(state)
    return matrices | {name: found[name] for name in names}


def _expanded(arrays: dict[str, np.ndarray], inverse: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of repeated inputs put back; the same input twice gives the same entries to the last bit."""
    if np.array_equal(inverse, np.arange(inverse.size)):
        return arrays
    return {name: value[np.ix_(*[inverse] * value.ndim)] for name, value in arrays.items()}


def _kept_layers(layers: Iterable[int] | None, depth: int) -> set[int]:
    kept = set(range(1, depth + 1)) if layers is None else set(layers)
    for index in kept:
        check_layer(index, depth)
    if not kept:
        raise ValueError("layers must name at least one layer to keep, got none.")
    return kept


def _kept_tensors(names: Iterable[str] | None, net: MLP) -> tuple[str, ...]:
    existing = TENSORS if net.activation.is_smooth else KINKED_TENSORS
    if names is None:
        return existing
    names = tuple(names)
    for name in names:
        if name not in TENSORS:
            raise ValueError(f"tensors must be among {', '.join(TENSORS)}, got {name!r}.")
        if name not in existing:
            raise ValueError(Layer(net, net.depth, {})._why_missing(name))
    return names


def _check_memory(count: int, order: int, layers: int, names: tuple[str, ...], remedy: str) -> None:
    if order == 0:
        needed = 8 * count**2 * (2 * layers + 3)
        what, remedy = "K and Theta", "use fw.kernels for one layer, or fewer inputs"
    else:
        working = 11 + 6 + 4  # blocks of one layer, averages, and what a step holds on the way
        needed = 8 * count**4 * (working + len(names) * max(layers - 1, 0))
        what = "statistics at order 1/n"
    require_memory(needed, f"{what} of {layers} layers for {count} inputs", remedy)
