"""The theory of a network on a data set: its statistics at every layer."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

import numpy as np

from finitewidth.core import methods
from finitewidth.core.checkpoint import digest
from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.inputs import ArrayLike, as_inputs, merge_inputs
from finitewidth.core.memory import require_memory
from finitewidth.core.methods import Tensors, as_method
from finitewidth.core.precision import require_double_precision
from finitewidth.core.run import QUIET, Run, as_run, runner
from finitewidth.core.tasks import Runner
from finitewidth.gaussian import array_pool
from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.network import Network
from finitewidth.theory import one_input, one_input_with_skips
from finitewidth.theory.architectures import solution as architectures
from finitewidth.theory.architectures.requests import Legs, Request, Solved, arrays_of, averaged, averages_of
from finitewidth.theory.checks import accuracy_or_error, check_layer, check_memory, is_local
from finitewidth.theory.feature_products import FourLegs
from finitewidth.theory.layers.isometry import Isometry
from finitewidth.theory.pairs.propagation import Propagation
from finitewidth.theory.records import Layer, Theory
from finitewidth.theory.recursion import State, next_layer
from finitewidth.theory.steps import Step, first_layer, steps
from finitewidth.theory.streams import Streams, pair_averages
from finitewidth.theory.tensors import MATRICES, TENSORS, existing, why_missing
from finitewidth.theory.truncated_memory import TruncatedStreams, memory_size


@takes_models
def solve(
    net: Network,
    X: ArrayLike,
    *,
    order: int = 1,
    layers: Iterable[int] | None = None,
    tensors: Iterable[str] | None = None,
    method: Tensors | None = None,
    run: Run | None = None,
) -> Theory:
    """Statistics at initialization, for all inputs, at infinite width or through order 1/n.

    Order 1 knows dense layers, convolutions, pools, norms, activations and residual blocks. A neuron of a
    residual network remembers its past through skip connections, so that every two layers of a stream are
    correlated; the method says how much of that is kept. Blocks that begin with a norm and weights have no
    such memory. With norms, convolutions or pools there are V, D, A, F, B with G1 and H1, with attention K,
    G1 and V, its heads drawn with their number and width: `layer.stderr("V")` is the standard error, and
    Theta that of infinite width. Layers with positions have means over them, as if they were flattened.

    Most of the time at order 1 goes into the four-leg averages of the layers, which are independent tasks.
    Single precision and integers are promoted to float64.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X: Inputs (N, n_0).
        order: 0 is infinite width, 1 is through order 1/n.
        layers: The layers to keep; all by default.
        tensors: The tensors to keep at order 1, by letter; all by default.
        method: The accuracy of averages and what neurons remember, an `fw.Tensors`.
        run: Store, cluster and progress of order 1, an `fw.Run`; without one no bar is shown.

    Returns:
        A record whose `layer(l)` and `output` have the statistics under the letters of the book.

    ```python
    theory = fw.solve(net, X)
    theory.layer(2).K, theory.output.Theta, theory.output.V
    ```
    """
    X = as_inputs(X, net.input_shape)
    layers = None if layers is None else tuple(layers)
    method = as_method(method, (Tensors,), where="in fw.solve") or Tensors()
    run = QUIET if run is None else run
    if order == 0:
        _check_infinite_width(tensors, method, run)
    elif net.unknown_layer is not None or not net.ladder.has_skips:
        acting = ("tolerance", "kernel_tolerance")
        methods.only(method, acting, "for a network without skip connections", "leave it out")

    def configuration() -> dict:
        asked = {"order": order, "layers": layers, "method": asdict(method)}
        return {"network": net.to_dict(), "X": digest(X), **asked}

    with runner(run, kind="solution", configuration=configuration) as running:
        return solve_with(
            running,
            net,
            X,
            order=order,
            tolerance=method.kernel_tolerance,
            four_leg_tolerance=method.tolerance,
            layers=layers,
            tensors=tensors,
            remember=method.remember,
        )


def _check_infinite_width(tensors: Iterable[str] | None, method: Tensors, run: Run) -> None:
    """Refuse what nothing at order 0 looks at."""
    if tensors is not None:
        raise ValueError(f"tensors={tensors!r} are of order 1/n, and order is 0; use order=1.")
    methods.only(method, ("kernel_tolerance",), "at order 0", "use order=1")
    as_run(run, tasks=False)


def solve_with(
    running: Runner,
    net: Network,
    X: np.ndarray,
    *,
    order: int = 1,
    tolerance: float = ACCURACY,
    four_leg_tolerance: float | None = None,
    layers: Iterable[int] | None = None,
    tensors: Iterable[str] | None = None,
    remember: bool | int = True,
    remedy: str = "keep fewer layers (layers=), fewer tensors (tensors=), or contract them in fw.unroll",
) -> Theory:
    """The theory that `solve` returns, for inputs already checked, its tasks run by a runner.

    `remedy` is named where memory cannot hold the statistics.
    """
    require_double_precision()
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    on_sites = order == 1 and net.unknown_layer is not None  # by `architectures`, which refuses by name
    has_skips = order == 1 and not on_sites and net.ladder.has_skips
    kept = _kept_layers(layers, net.depth)
    names = _kept_tensors(tensors, net, max(kept)) if order == 1 else ()
    if has_skips:
        check_memory(remember, net)
        _require_for_skips(X.shape[0], max(kept), len(kept) * len(names), remedy, remember)
    elif not on_sites:
        _check_memory(X.shape[0], order, len(kept), names, remedy)
    distinct, places = merge_inputs(X)
    if order == 0:
        solved = _infinite_width(net, distinct, kept, tolerance)
    else:
        accuracy = (1e-8 if net.is_smooth else 1e-5) if four_leg_tolerance is None else four_leg_tolerance
        request = Request(kept, names, tolerance, accuracy, remember)
        if on_sites:
            solved = architectures.solved(net, distinct, request, running, remedy)
        else:
            solved = _finite_width(net, distinct, request, running)
    accuracy_or_error(solved.error, tolerance, net.activation_name, asked="kernel_tolerance")
    whole = {l: Layer(net, l, _expanded(part, places)) for l, part in solved.layers.items()}
    return Theory(net, X, order, solved.error, solved.four_leg_error, whole, solved.memory_error)


def _infinite_width(net: Network, X: np.ndarray, kept: set[int], tolerance: float) -> Solved:
    layers, error = Propagation(net, X, None, tolerance, tuple(kept), distinct=True).matrices()
    solved = {
        layer: {"K": K} if Theta is None else {"K": K, "Theta": Theta} for layer, (K, Theta) in layers.items()
    }
    return Solved(solved, error)


@array_pool.recycling()
def _finite_width(net: Network, X: np.ndarray, request: Request, running: Runner) -> Solved:
    if net.discontinuous is not None:
        raise ValueError(
            f"activation {net.discontinuous.name!r} has no NTK, since its derivative is a delta function; "
            "use order=0 for its kernel, or a continuous activation."
        )
    if net.ladder.has_skips:
        return _with_skips(net, X, request, running)
    if X.shape[0] == 1 and one_input.applies(net):
        return _one_input(net, X, request)
    bare = request.is_bare(net)
    first = first_layer(net, X)
    state = State.first_layer(first, Isometry.first(net.ladder, first), bare=bare)
    arrays = {1: arrays_of(state, request.at(net, 1))} if 1 in request.kept else {}
    walked = list(steps(net, first, max(request.kept), request.tolerance, bare=bare))
    error = max((step.moments.error for step in walked), default=0.0)
    four_leg_error = max((step.moments.derivative_error for step in walked), default=0.0)
    work = functools.partial(averages_of, [Legs.of(step) for step in walked], request.accuracy)
    results = averaged(running, work, len(walked), "averaging over layers")
    layer, spare = 1, None
    for averages in results:  # neither zip nor enumerate, which hold on to the last while the next is made
        above = next_layer(state, walked[layer - 1], averages, spare)
        state, spare = above, None if layer in request.kept else state.blocks
        four_leg_error, layer = max(four_leg_error, averages.error), layer + 1
        if layer in request.kept:
            arrays[layer] = arrays_of(state, request.at(net, layer))
        for values in averages.values.values():
            array_pool.give_back(values)
        del averages
    return Solved(arrays, error, four_leg_error)


def _with_skips(net: Network, X: np.ndarray, request: Request, running: Runner) -> Solved:
    """The same where skips correlate layers: a task for each pair of layers of one stream."""
    if X.shape[0] == 1 and request.remember and one_input_with_skips.applies(net):
        solved = _one_input(net, X, request)
        if solved.four_leg_error <= request.accuracy or not request.is_bare(net):
            return _accurate(solved, request.accuracy)
    bare = request.is_bare(net)
    first, last = first_layer(net, X), max(request.kept)
    if last == 1:
        return Solved({1: arrays_of(State.first_layer(first, bare=bare), request.at(net, 1))}, 0.0)
    walked = list(steps(net, first, last, request.tolerance, bare=bare))
    if is_local(request.remember):
        return _with_local_memory(net, walked, request, running)
    streams = Streams(net.ladder, walked, memory=bool(request.remember))
    pairs, four_leg_error = streams.pairs, max(step.moments.derivative_error for step in walked)
    asked = [(streams.legs(pair), streams.averaged(pair)) for pair in pairs]
    work = functools.partial(_pair_averages, asked, request.accuracy)
    results = averaged(running, work, len(pairs), "averaging over pairs of layers")
    for number, averages in enumerate(results):
        streams.add(pairs[number], averages.values)
        four_leg_error = max(four_leg_error, averages.error)
    arrays = {
        layer: arrays_of(state, request.at(net, layer))
        for layer, state in enumerate(streams.states(), start=1)
        if layer in request.kept
    }
    largest = max(1.0, *(step.K.max() for step in walked))  # averages of four legs grow as its square
    error, left_out = max(step.moments.error for step in walked), 0.0 if request.remember else None
    solved = Solved(arrays, error, four_leg_error, left_out)
    return _accurate(solved, largest**2 * request.accuracy)


def _with_local_memory(net: Network, walked: list[Step], request: Request, running: Runner) -> Solved:
    """The same with what neurons remember carried from layer to layer: a task for each layer."""
    work = functools.partial(averages_of, [Legs.of(step) for step in walked], request.accuracy)
    results = averaged(running, work, len(walked), "averaging over layers")
    streams, four_leg_error, arrays = TruncatedStreams(net.ladder, walked, request.remember), [0.0], {}

    def averages() -> Iterator[FourLegs]:
        for of_layer in results:
            four_leg_error.append(of_layer.error)
            yield of_layer

    with SingleThreadedProducts():  # the same bits for any number of cores
        for layer, state in enumerate(streams.states(averages()), start=1):
            if layer in request.kept:
                arrays[layer] = arrays_of(state, request.at(net, layer))
    error, left_out = max(step.moments.error for step in walked), (streams.left_out[l] for l in request.kept)
    return Solved(arrays, error, max(*four_leg_error, streams.error), max(left_out))


def _accurate(solved: Solved, accuracy: float) -> Solved:
    """Refuse averages with kinks that are much worse than was asked for, by the reason."""
    if solved.four_leg_error > 100 * accuracy:
        raise ValueError(
            "the weights of a residual block add little to its skip connection, where averages with kinks "
            f"reach an accuracy of {solved.four_leg_error:.0e} only; raise C_W or C_b of the block, ask for "
            f"method=fw.Tensors(tolerance={2 * solved.four_leg_error:.0e}), keep tensors=('V', 'F', 'B') "
            "only, or use a smooth activation."
        )
    return solved


def _pair_averages(asked: Sequence[tuple], accuracy: float, task: int) -> FourLegs:
    """Four-leg averages of one layer, or of two layers of one stream."""
    legs, families = asked[task]
    return FourLegs.of(pair_averages(legs, families, accuracy))


def _one_input(net: Network, X: np.ndarray, request: Request) -> Solved:
    solve_one = one_input_with_skips.single_stream if net.ladder.has_skips else one_input.single_input
    with SingleThreadedProducts():  # of small matrices, which would wait for the threads of a BLAS
        scan = solve_one(net, float(np.mean(X**2)), request.tolerance)
    layers = {}
    for layer in request.kept:
        matrices = {name: scan.layers[name][layer - 1].reshape(1, 1) for name in MATRICES}
        tensors = {name: scan.layers[name][layer - 1].reshape(1, 1, 1, 1) for name in request.at(net, layer)}
        layers[layer] = matrices | tensors
    return Solved(layers, scan.error, max(scan.error, scan.rest))


def _expanded(arrays: dict[str, np.ndarray], places: np.ndarray) -> dict[str, np.ndarray]:
    """Rows of repeated inputs put back; the same input twice gives the same entries to the last bit."""
    if np.array_equal(places, np.arange(places.size)):
        return arrays
    return {name: value[np.ix_(*[places] * value.ndim)] for name, value in arrays.items()}


def _kept_layers(layers: Iterable[int] | None, depth: int) -> set[int]:
    kept = set(range(1, depth + 1)) if layers is None else set(layers)
    for index in kept:
        check_layer(index, depth)
    if not kept:
        raise ValueError("layers must name at least one layer to keep, got none.")
    return kept


def _kept_tensors(names: Iterable[str] | None, net: Network, last: int) -> tuple[str, ...]:
    """The tensors asked for, or all that exist in some layer."""
    if names is None:
        return existing(net, 1)
    names = tuple(names)
    for name in names:
        if name not in TENSORS:
            raise ValueError(f"tensors must be among {', '.join(TENSORS)}, got {name!r}.")
        if name not in existing(net, last):
            raise ValueError(why_missing(net, last, name))
    return names


def _check_memory(count: int, order: int, layers: int, names: tuple[str, ...], remedy: str) -> None:
    if order == 0:
        needed = 8 * count**2 * (2 * layers + 3)
        what, remedy = "K and Theta", "use fw.kernels for one layer, or at most {fit} inputs"
    else:
        working = 11 + 6 + 4  # blocks of one layer, averages, and what a step holds on the way
        needed = 8 * count**4 * (working + len(names) * max(layers - 1, 0))
        what = "statistics at order 1/n"
    power = 2 if order == 0 else 4
    what = f"{what} of {_counted(layers, 'layer')} for {_counted(count, 'input')}"
    require_memory(needed, what, remedy, count=count, power=power)


def _require_for_skips(count: int, last: int, kept: int, remedy: str, remember: bool | int) -> None:
    working = 11 * (last - 1) + 17 + 8  # blocks of all layers, averages of two layers, and what a pair holds
    if is_local(remember):
        working = 11 * 16 + memory_size(remember)  # blocks of one layer, three times, and where a skip starts
    needed = 8 * count**4 * (working + kept)
    what = f"statistics at order 1/n of {_counted(last, 'layer')} for {_counted(count, 'input')}"
    require_memory(needed, what, remedy, count=count, power=4)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
