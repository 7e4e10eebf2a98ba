"""Every tensor of the theory, measured: unbiased estimates from sampled networks, with standard errors."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.checkpoint import digest
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import as_inputs
from finitewidth.core.keys import as_key
from finitewidth.core.precision import require_double_precision
from finitewidth.core.progress import Progress
from finitewidth.core.tasks import Runner, runner
from finitewidth.experiment.correlators import (
    DIFFERENTIALS,
    FLUCTUATIONS,
    batch_estimates,
    correlators,
    means,
)
from finitewidth.experiment.directions import differentials, outputs_and_ntk
from finitewidth.experiment.layers.dense import DenseParameters
from finitewidth.experiment.partition import AT_ONCE, MEMORY_BUDGET, Partition, partition
from finitewidth.experiment.sampling import Parameters, draw_members, up_to
from finitewidth.experiment.streaming import Moments, merge
from finitewidth.network.network import Network

TENSORS = (*FLUCTUATIONS, *DIFFERENTIALS)
NEURONS = 8  # of the layer that is sampled: more of them average more, at the cost of larger NTKs
PAIR = 2  # neurons that differentials are computed of: they cost the fourth power
LEAST_BATCHES = 200  # the standard errors are then known to 5 %


@dataclass(frozen=True, eq=False)
class SampledStatistics:
    """Statistics of one layer, estimated from sampled networks.

    `G` and `H` are K + G1/n and Theta + H1/n; tensors `V` ... `U` have 1/n stripped and the index order of
    the theory.
    """

    net: Network
    layer: int
    members: int
    estimates: dict[str, Estimate] = field(repr=False)

    @property
    def n(self) -> int:
        """The width of the previous layer, whose inverse is stripped."""
        return self.net.widths[self.layer - 1]

    def __getattr__(self, name: str) -> Estimate:
        if name not in ("G", "H", *TENSORS):
            raise AttributeError(f"SampledStatistics has no attribute {name!r}; it has G, H and its tensors.")
        if name not in self.estimates:
            raise ValueError(_why_missing(up_to(self.net, self.layer), name))
        return self.estimates[name]

    def __getstate__(self) -> dict:
        return self.__dict__

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)


def sample_statistics(
    net: Network,
    X,
    members: int,
    key,
    *,
    layer: int | None = None,
    tensors: Sequence[str] | None = None,
    neurons: int = NEURONS,
    batch_size: int | None = None,
    memory: float = MEMORY_BUDGET,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
) -> SampledStatistics:
    """Estimate G, H and `tensors` (default: all that exist) of `layer` (default: the output).

    The estimates come from `members` networks. The layer is sampled with `neurons` neurons whatever its
    width, on which no statistic of the layer depends: averages over neurons tell the delta structures apart.
    Standard errors come from the spread of at least 200 batches, or as many as there are pairs of members.
    `memory` bounds the memory of a batch, in bytes. `client`, `store` and `progress` are as in
    `train_ensemble`.
    """
    require_double_precision()
    X = as_inputs(X, net.widths[0])
    layer = net.depth if layer is None else layer
    sampled = up_to(net, layer, _checked_neurons(neurons))
    names = _as_tensors(sampled, tensors)
    parts = _partition(members, batch_size, memory, _bytes_of_one(sampled, len(X), names))
    key_data = np.asarray(jax.random.key_data(as_key(key)))
    work = functools.partial(_work, sampled, X, names, parts, key_data)
    configuration = functools.partial(_configuration, sampled, X, names, parts, key_data)
    with runner(client, store, progress, kind="sample", configuration=configuration) as running:
        total = _total(work, parts, running)
    estimates = {name: _of_batches(value, parts.batches) for name, value in total.items()}
    return SampledStatistics(net, layer, parts.members, estimates)


def _configuration(net: Network, X: np.ndarray, names, parts: Partition, key_data: np.ndarray) -> dict:
    """Everything that the result depends on, as plain values."""
    return {
        "network": net.to_dict(),
        "X": digest(X),
        "tensors": names,
        "key": key_data.tolist(),
        "members": parts.members,
        "batch_size": parts.batch_size,
    }


def _total(work, parts: Partition, running: Runner) -> dict[str, Moments]:
    """The moments of the batches' estimates, each weighted by the size of its batch."""
    results = running.results(
        work, parts.batches, name="batches", what="sampling networks", at_once=AT_ONCE, size=parts.size
    )
    total: dict[str, Moments] = {}
    for batch, estimates in enumerate(results):
        size = np.asarray(float(parts.size(batch)))
        new = {name: Moments(size, value, np.zeros_like(value)) for name, value in estimates.items()}
        total = {name: merge(total[name], new[name]) if total else new[name] for name in new}
    return total


def _of_batches(total: Moments, batches: int) -> Estimate:
    """The variance of a batch's estimate is inverse to its size."""
    return Estimate(np.asarray(total.mean), np.sqrt(total.M2 / (batches - 1) / total.count))


def _work(
    net: Network, X: np.ndarray, names: tuple[str, ...], parts: Partition, key_data: np.ndarray, batch: int
) -> dict[str, np.ndarray]:
    numbers, weight = parts.numbers(batch)
    estimates = _estimates_of_batch(net, names, jnp.asarray(X), jnp.asarray(key_data), numbers, weight)
    return jax.tree.map(np.asarray, estimates)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _estimates_of_batch(
    net: Network, names: tuple[str, ...], X: Array, key_data: Array, numbers: Array, weight: Array
) -> dict[str, Array]:
    parameters = draw_members(net, jax.random.wrap_key_data(key_data), numbers)
    each = jax.vmap(lambda one: _correlators_of_one(net, names, X, one))(parameters)
    return batch_estimates(each, weight, net.widths[-2])


def _correlators_of_one(
    net: Network, names: tuple[str, ...], X: Float[Array, "N n0"], parameters: Parameters
) -> dict[str, Array]:
    first = outputs_and_ntk(net, parameters, X)
    values = means(first) | correlators(first, tuple(name for name in names if name in FLUCTUATIONS))
    higher = tuple(name for name in names if name in DIFFERENTIALS)
    if higher:
        *hidden, (b, W) = parameters
        pair = (*hidden, DenseParameters(b[:PAIR], W[:PAIR]))
        values |= correlators(differentials(up_to(net, net.depth, PAIR), pair, X), higher)
    return values


def _partition(members: int, batch_size: int | None, memory: float, of_one: float) -> Partition:
    try:
        enough = members >= 4
    except TypeError:
        enough = False
    if not enough:
        raise ValueError(f"members must be a whole number of at least 4, got {members!r}.")
    least = min(LEAST_BATCHES, max(2, int(members) // 2))
    parts = partition(members, batch_size, memory=memory, of_one=of_one, least_batches=least, lowest=2)
    while batch_size is None and parts.members % parts.batch_size == 1:  # one network makes no pair
        parts = Partition(parts.members, parts.batch_size + 1)
    if parts.members % parts.batch_size == 1:
        raise ValueError(
            f"batch_size {batch_size} leaves a last batch of one network, and the estimates need pairs of "
            "them; change it by one."
        )
    if parts.batches < 2:
        raise ValueError(
            f"batch_size {parts.batch_size} puts all {members} members into one batch, which leaves no "
            "spread to take standard errors from; make it smaller."
        )
    return parts


def _bytes_of_one(net: Network, count: int, names: tuple[str, ...]) -> float:
    """An upper bound for one network: its parameters, its legs and their derivatives, a few times over."""
    widest, legs = max(net.widths), net.widths[-1] * count
    first = 4 * net.parameter_count + 4 * legs * widest * net.depth + 6 * legs**2 + 6 * count**4
    pairs = PAIR * count
    third = 8 * count * pairs**3 * widest + 8 * pairs**4 if set(names) & set(DIFFERENTIALS) else 0
    return 8.0 * (first + third)


def _as_tensors(net: Network, tensors: Sequence[str] | None) -> tuple[str, ...]:
    exist = TENSORS if net.is_smooth else FLUCTUATIONS
    if net.discontinuous is not None:
        raise ValueError(
            f"activation {net.discontinuous.name!r} has no NTK, since its derivative is a delta function; "
            "use a continuous activation."
        )
    if tensors is None:
        return exist
    for name in tensors:
        if name not in TENSORS:
            raise ValueError(f"tensors has no {name!r}; known are {', '.join(TENSORS)}.")
        if name not in exist:
            raise ValueError(_why_missing(net, name))
    return tuple(name for name in TENSORS if name in tensors)


def _checked_neurons(neurons: int) -> int:
    if not isinstance(neurons, int) or neurons < 2:
        raise ValueError(f"neurons must be a whole number of at least 2, got {neurons!r}; use neurons=8.")
    return neurons


def _why_missing(net: Network, name: str) -> str:
    if name in DIFFERENTIALS and net.kinked is not None:
        return (
            f"{name} does not exist: activation {net.kinked.name!r} has a kink, where automatic "
            "differentiation does not see the delta function; use a smooth activation such as gelu or swish."
        )
    return f"{name} was not sampled; add it to tensors."
