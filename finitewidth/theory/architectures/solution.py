"""Statistics at order 1/n of networks with norms, convolutions, pools, attention, and blocks with norms.

Random heads are drawn in eight repetitions of the whole network, whose spread gives the standard errors.
"""

import functools
import itertools
import math

import numpy as np

from finitewidth.core.memory import require_memory
from finitewidth.core.tasks import Runner
from finitewidth.network.network import Network
from finitewidth.theory.architectures.requests import Legs, Request, Solved, arrays_of, averaged, averages_of
from finitewidth.theory.architectures.walk import Walk
from finitewidth.theory.architectures.weights import Detail
from finitewidth.theory.pairs.propagation import Propagation
from finitewidth.theory.recursion import State
from finitewidth.theory.tensors import stderr_name

REPETITIONS = 8
_WORKING = 32  # blocks that a layer holds on the way, with its averages and what a norm or a filter copies

Arrays = dict[int, dict[str, np.ndarray]]


def solved(net: Network, X: np.ndarray, request: Request, running: Runner, remedy: str) -> Solved:
    """The statistics of the layers asked for, for distinct inputs."""
    if net.has_orthogonal_weights:
        raise ValueError(
            "order 1/n knows orthogonal weights in networks of dense layers and activations, not beside the "
            f"{net.not_dense} of this network; use weights='gaussian', or order=0."
        )
    _require(net, len(X), len(request.kept) * len(request.names), remedy)
    if not net.has_attention:
        arrays, *errors = _once(net, X, request, running, Detail(request.is_bare(net)))
        return Solved(arrays, *errors)
    detail = Detail(kernel_only=True)
    found = [_once(net, X, request, running, detail, repetition) for repetition in range(REPETITIONS)]
    wide, _ = Propagation(net, X, None, request.tolerance, tuple(request.kept), distinct=True).matrices()
    values = _over_repetitions([arrays for arrays, *_ in found])
    for layer, (_, Theta) in wide.items():
        assert Theta is not None
        values[layer] |= {"Theta": Theta}
        del values[layer][stderr_name("Theta")]
    return Solved(values, max(error for _, error, _ in found), max(error for _, _, error in found))


def _once(
    net: Network, X: np.ndarray, request: Request, running: Runner, detail: Detail, repetition: int = 0
) -> tuple[Arrays, float, float]:
    """The statistics by layer and name, and the errors of averages of two and of four legs."""
    first = Walk(net, X, request.tolerance, detail=detail, repetition=repetition)
    first.run()
    arrays: Arrays = {}

    def keep(layer: int, state: State) -> None:
        if layer in request.kept:
            arrays[layer] = arrays_of(state, request.at(net, layer))

    steps, errors = first.steps, [0.0]
    work = functools.partial(averages_of, [Legs.of(step) for step in steps], request.accuracy)
    name = f"layers_{repetition}" if repetition else "layers"
    results = averaged(running, work, len(steps), "averaging over layers", name)

    def averages():
        for one in results:
            errors.append(one.error)
            yield one

    again = {"detail": detail, "repetition": repetition, "steps": steps}
    Walk(net, X, request.tolerance, **again, averages=averages(), keep=keep).run()
    error = max((step.moments.error for step in steps), default=0.0)
    return arrays, error, max(*errors, *(step.moments.derivative_error for step in steps), 0.0)


def _over_repetitions(found: list[Arrays]) -> Arrays:
    """Means and, under names of their own, their standard errors."""
    means: Arrays = {}
    for layer, names in found[0].items():
        means[layer] = {}
        for name in names:
            values = np.stack([one[layer][name] for one in found])
            means[layer][name] = values.mean(axis=0)
            means[layer][stderr_name(name)] = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return means


def _require(net: Network, count: int, kept: int, remedy: str) -> None:
    """Refuse more sites than memory holds blocks of."""
    shapes = itertools.accumulate(
        net.layers, lambda shape, layer: layer.output_shape(shape), initial=net.input_shape
    )
    sites = count * max(math.prod(shape[:-1]) for shape in itertools.islice(shapes, 1, None))
    needed = 8.0 * (_WORKING * sites**4 + kept * count**4)
    what = f"order 1/n of {count} inputs with {sites} sites"
    require_memory(needed, what, remedy, count=count, power=4)
