"""Every tensor of the theory, measured: unbiased estimates from sampled networks, with standard errors."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.checkpoint import digest
from finitewidth.core.display.records import over_samples, shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_inputs, merge_inputs
from finitewidth.core.keys import as_key
from finitewidth.core.precision import require_double_precision
from finitewidth.core.run import Run, as_run, runner
from finitewidth.core.tasks import Runner
from finitewidth.experiment.correlators import (
    DIFFERENTIALS,
    FLUCTUATIONS,
    batch_estimates,
    correlators,
    means,
)
from finitewidth.experiment.directions import differentials, outputs_and_ntk
from finitewidth.experiment.partition import AT_ONCE, Partition, partition
from finitewidth.experiment.sampling import Parameters, draw_members, real_network, up_to
from finitewidth.experiment.streaming import Moments, merge
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.network import Network

TENSORS = (*FLUCTUATIONS, *DIFFERENTIALS)
NEURONS = 8  # of the layer that is sampled: more of them average more, at the cost of larger NTKs
PAIR = 2  # neurons that differentials are computed of: they cost the fourth power
LEAST_BATCHES = 200  # the standard errors are then known to 5 %


@shown("layer", "members", "estimates", "net", dimensions=over_samples(("G", "H"), TENSORS))
@dataclass(frozen=True, eq=False)
class SampledStatistics:
    """Statistics of one layer, estimated from sampled networks.

    `G` and `H` are K + G1/n and Theta + H1/n; tensors `V` ... `U` have 1/n stripped and the index order of
    the theory. `fw.sample_statistics` makes it.

    ```python
    sampled = fw.sample_statistics(net, X, members=400, key=0, tensors=("V",))
    sampled.G.value, sampled.V.stderr
    ```
    """

    net: Network
    layer: int  # counted from 1
    members: int  # networks sampled
    estimates: dict[str, Estimate] = field(repr=False)  # the same estimates by letter

    @property
    def n(self) -> int:
        """The channels that the layer reads, the width of the previous layer, whose inverse is stripped."""
        return self.net.channels_in_front[self.layer - 1]

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


@takes_models
def sample_statistics(
    net: Network,
    X: ArrayLike,
    members: int,
    key: Any,
    *,
    layer: int | None = None,
    tensors: Sequence[str] | None = None,
    neurons: int = NEURONS,
    run: Run | None = None,
) -> SampledStatistics:
    """Estimate the statistics of a layer at initialization from real networks.

    The layer is sampled with a few neurons whatever its width, on which no statistic of the layer depends:
    averages over neurons tell the delta structures apart. Where a skip ends in the layer its width is that of
    the stream, and the first of its neurons are used. Equal inputs are one input, also for the masks of
    dropout. Standard errors come from the spread of at least 200 batches, or as many as there are pairs of
    members.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X: Inputs (N, n_0).
        members: The number of networks.
        key: The randomness: a number or a key of JAX.
        layer: The layer, counted from 1; the output by default.
        tensors: The tensors to estimate beside G and H, by letter. By default all that exist; for networks of
            other layers than dense ones, activations, pools and residual blocks of them, whose differentials
            are slow, V, D, F, A and B.
        neurons: How many neurons of the layer are sampled.
        run: Store, cluster, progress and size of batches, an `fw.Run`.

    Returns:
        A record whose `G`, `H`, `V`, `A`, ... are estimates with `value` and `stderr`.

    ```python
    sampled = fw.sample_statistics(net, X, members=400, key=0, tensors=("V",))
    sampled.V.value, sampled.V.stderr
    ```
    """
    require_double_precision()
    X = as_inputs(X, net.input_shape)
    distinct, places = merge_inputs(X)
    layer = net.depth if layer is None else layer
    sampled = up_to(net, layer, _checked_neurons(neurons))
    neurons = _checked_stream(sampled, layer, neurons)
    names = _as_tensors(sampled, tensors)
    run = as_run(run, batches=True)
    parts = _partition(members, run, _bytes_of_one(sampled, neurons, len(distinct), names))
    key_data = np.asarray(jax.random.key_data(as_key(key)))
    work = functools.partial(_work, sampled, neurons, distinct, names, parts, key_data)
    configuration = functools.partial(_configuration, sampled, X, names, parts, key_data)
    with runner(run, kind="sample", configuration=configuration, batches=True) as running:
        total = _total(work, parts, running)
    estimates = {name: _expanded(_of_batches(value, parts.batches), places) for name, value in total.items()}
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


def _expanded(estimate: Estimate, places: np.ndarray) -> Estimate:
    """The estimate for all inputs from that for the distinct ones."""
    return Estimate(*(part[np.ix_(*[places] * part.ndim)] for part in estimate))


def _work(
    net: Network,
    neurons: int,
    X: np.ndarray,
    names: tuple[str, ...],
    parts: Partition,
    key_data: np.ndarray,
    batch: int,
) -> dict[str, np.ndarray]:
    numbers, weight = parts.numbers(batch)
    estimates = _estimates_of_batch(
        net, neurons, names, jnp.asarray(X), jnp.asarray(key_data), numbers, weight
    )
    return jax.tree.map(np.asarray, estimates)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _estimates_of_batch(
    net: Network,
    neurons: int,
    names: tuple[str, ...],
    X: Array,
    key_data: Array,
    numbers: Array,
    weight: Array,
) -> dict[str, Array]:
    parameters = draw_members(net, jax.random.wrap_key_data(key_data), numbers)
    each = jax.vmap(lambda one: _correlators_of_one(net, neurons, names, X, one))(parameters)
    return batch_estimates(each, weight, net.channels_in_front[-1])


def _correlators_of_one(
    net: Network, neurons: int, names: tuple[str, ...], X: Float[Array, "N ..."], parameters: Parameters
) -> dict[str, Array]:
    first = outputs_and_ntk(net, parameters, X, neurons)
    values = means(first) | correlators(first, tuple(name for name in names if name in FLUCTUATIONS))
    higher = tuple(name for name in names if name in DIFFERENTIALS)
    if higher:
        values |= correlators(differentials(net, parameters, X, PAIR), higher)
    return values


def _partition(members: int, run: Run, of_one: float) -> Partition:
    try:
        enough = members >= 4
    except TypeError:
        enough = False
    if not enough:
        raise ValueError(f"members must be a whole number of at least 4, got {members!r}.")
    least = min(LEAST_BATCHES, max(2, int(members) // 2))
    parts = partition(members, run, of_one=of_one, least_batches=least, lowest=2)
    while run.batch_size is None and parts.members % parts.batch_size == 1:  # one network makes no pair
        parts = Partition(parts.members, parts.batch_size + 1)
    if parts.members % parts.batch_size == 1:
        raise ValueError(
            f"batch_size {run.batch_size} leaves a last batch of one network, and the estimates need pairs "
            "of them; change it by one."
        )
    if parts.batches < 2:
        raise ValueError(
            f"batch_size {parts.batch_size} puts all {members} members into one batch, which leaves no "
            "spread to take standard errors from; make it smaller."
        )
    return parts


def _bytes_of_one(net: Network, neurons: int, count: int, names: tuple[str, ...]) -> float:
    """An upper bound for one network: its parameters, its legs and their derivatives, a few times over."""
    layers, legs = real_network(net), neurons * count
    widest = max(math.prod(net.input_shape), *layers.sizes)
    first = 4 * layers.normal_count + 4 * legs * widest * len(layers.sizes) + 6 * legs**2 + 6 * count**4
    first += layers.ntk_size(neurons, count)
    pairs = PAIR * count
    third = 0.0
    if set(names) & set(DIFFERENTIALS):
        third = 8 * count * pairs**3 * widest + 8 * pairs**4
        if not layers.is_structured:
            third += 3 * pairs**2 * layers.normal_count
    return 8.0 * (first + third)


def _as_tensors(net: Network, tensors: Sequence[str] | None) -> tuple[str, ...]:
    exist = TENSORS if net.is_smooth else FLUCTUATIONS
    if net.discontinuous is not None:
        raise ValueError(
            f"activation {net.discontinuous.name!r} has no NTK, since its derivative is a delta function; "
            "use a continuous activation."
        )
    if tensors is None:
        return exist if real_network(net).is_structured else FLUCTUATIONS
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


def _checked_stream(net: Network, layer: int, neurons: int) -> int:
    """How many neurons of the layer are used; as many as there are, where a skip fixes its width."""
    if net.outputs < 2:
        raise ValueError(
            f"layer {layer} has one neuron, as many as the stream that its skip carries, and the estimates "
            "need pairs of neurons; widen the stream."
        )
    return min(neurons, net.outputs)


def _why_missing(net: Network, name: str) -> str:
    if name in DIFFERENTIALS and net.kinked is not None:
        return (
            f"{name} does not exist: activation {net.kinked.name!r} has a kink, where automatic "
            "differentiation does not see the delta function; use a smooth activation such as gelu or swish."
        )
    return f"{name} was not sampled; add it to tensors."
