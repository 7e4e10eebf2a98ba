"""Tasks of sampling: one task is one stratum at one time, with a few batches of neurons.

A stratum is a source layer, a kind of contraction and a bin of time. PairMatrices that depend on the time are
made once for a task. Randomness comes from the key, the stratum and the number of the task within it alone.
"""

import functools
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.training.many_points.feature_means import FeatureMeans
from finitewidth.training.many_points.neuron_batch import NeuronBatch, PairMatrices
from finitewidth.training.many_points.observables import ORDER, AbstractObservable
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.time_bins import kronecker

_NEURONS = 4800  # samples times neurons of a batch, about, so that its arrays stay in cache
_SMALLEST, _LARGEST = 16, 64  # neurons in a batch
_AMORTIZED = 250  # samples for which one batch takes as long as the matrices of its time


class Stratum(NamedTuple):
    """Where samples are drawn: the source layer, the kind of contraction and the bin of its time."""

    layer: int
    kind: str
    bin: int


def strata_of(training: SampledTraining, kinds: tuple[str, ...]) -> list[Stratum]:
    """All strata of an observable."""
    bins = {kind: training.replay.bins(kind) for kind in kinds}
    layers = range(len(training.unrolled.sources))
    return [Stratum(layer, kind, one) for layer in layers for kind in kinds for one in range(bins[kind])]


@dataclass(frozen=True, eq=False)
class SamplingTasks:
    """A list of tasks of sampling, each a stratum and its number within the stratum."""

    training: SampledTraining
    observable: AbstractObservable
    seed: tuple[int, ...]
    tasks: tuple[tuple[Stratum, int], ...]
    most: int | None = None  # neurons of one task, where fewer are asked for than are quick

    @property
    def batch_size(self) -> int:
        """Neurons of one batch."""
        quick = int(np.clip(_NEURONS // self.training.unrolled.count, _SMALLEST, _LARGEST))
        return quick if self.most is None else min(quick, self.most)

    @property
    def batches(self) -> int:
        """Batches of one task."""
        quick = 1 + self.training.unrolled.count // _AMORTIZED
        return quick if self.most is None else min(quick, self.most // self.batch_size)

    @property
    def neurons(self) -> int:
        """Neurons of one task."""
        return self.batch_size * self.batches

    @functools.cached_property
    def _layers(self) -> list[tuple[PairMatrices, FeatureMeans]]:
        layers = self.training.layers
        return [
            (PairMatrices(self.training, index), FeatureMeans(layer)) for index, layer in enumerate(layers)
        ]

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "_layers"}

    def __call__(self, task: int) -> dict[str, np.ndarray]:
        """n times the contributions of a stratum, (names, M, columns), and the seconds that it took."""
        started = time.perf_counter()
        stratum, number = self.tasks[task]
        training, (matrices, averages) = self.training, self._layers[stratum.layer]
        name = (*self.seed, stratum.layer, ORDER.index(stratum.kind), stratum.bin)
        offset = np.random.default_rng(name).random(2)
        node = training.replay.node(stratum.kind, stratum.bin, kronecker(offset, number))
        generator = np.random.default_rng((*name, number))
        observable = self.observable
        contraction = observable.contraction(training, matrices, averages, node, stratum.kind, generator)
        totals: dict[str, np.ndarray] = {}
        for _ in range(self.batches):
            batch = NeuronBatch(contraction.training, matrices, generator, self.batch_size)
            contraction.contract(batch)
            for contribution, effect in batch.effects().items():
                totals[contribution] = totals.get(contribution, 0.0) + effect
        results = np.zeros((len(observable.names), *observable.shape))
        for contribution, total in totals.items():
            effect = total / self.neurons + contraction.means.get(contribution, 0.0)
            result = matrices.layer.weight * node.weight * contraction.at_end(effect)
            results[observable.names.index(contribution)] = result
        seconds = np.asarray(time.perf_counter() - started)
        return {"contributions": results, "seconds": seconds}
