"""Statistics at order 1/n of networks with norms, convolutions, pools and blocks that begin with a norm."""

import functools
import itertools
import math

import numpy as np

from finitewidth.core.memory import require_memory
from finitewidth.core.tasks import Runner
from finitewidth.network.network import Network
from finitewidth.theory.architectures.requests import Legs, Request, Solved, arrays_of, averaged, averages_of
from finitewidth.theory.architectures.walk import Walk
from finitewidth.theory.recursion import State

_WORKING = 32  # blocks that a layer holds on the way, with its averages and what a norm or a filter copies


def solved(net: Network, X: np.ndarray, request: Request, running: Runner, remedy: str) -> Solved:
    """The statistics of the layers asked for, for distinct inputs."""
    if net.has_orthogonal_weights:
        raise ValueError(
            "order 1/n knows orthogonal weights in networks of dense layers and activations, not beside the "
            f"{net.not_dense} of this network; use weights='gaussian', or order=0."
        )
    _require(net, len(X), len(request.kept) * len(request.names), remedy)
    bare = request.is_bare(net)
    first = Walk(net, X, request.tolerance, bare=bare)
    first.run()
    arrays: dict[int, dict[str, np.ndarray]] = {}

    def keep(layer: int, state: State) -> None:
        if layer in request.kept:
            arrays[layer] = arrays_of(state, request.at(net, layer))

    steps, errors = first.steps, [0.0]
    work = functools.partial(averages_of, [Legs.of(step) for step in steps], request.accuracy)
    results = averaged(running, work, len(steps), "averaging over layers")

    def averages():
        for one in results:
            errors.append(one.error)
            yield one

    Walk(net, X, request.tolerance, bare=bare, steps=steps, averages=averages(), keep=keep).run()
    error = max((step.moments.error for step in steps), default=0.0)
    return Solved(arrays, error, max(*errors, *(step.moments.derivative_error for step in steps), 0.0))


def _require(net: Network, count: int, kept: int, remedy: str) -> None:
    """Refuse more sites than memory holds blocks of."""
    shapes = itertools.accumulate(
        net.layers, lambda shape, layer: layer.output_shape(shape), initial=net.input_shape
    )
    sites = count * max(math.prod(shape[:-1]) for shape in itertools.islice(shapes, 1, None))
    needed = 8.0 * (_WORKING * sites**4 + kept * count**4)
    what = f"order 1/n of {count} inputs with {sites} sites"
    require_memory(needed, what, remedy, count=count, power=4)
