"""Tasks of sampling: one task is one stratum at one time, with a few batches of neurons.

A stratum is a source layer, a kind of contraction and a bin of time. Matrices that depend on the time are
made once for a task. Randomness comes from the key, the stratum and the number of the task within it alone.
"""

import functools
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from finitewidth.training.many_points.batch import Batch, Matrices
from finitewidth.training.many_points.fluctuation import Fluctuation
from finitewidth.training.many_points.means import Means
from finitewidth.training.many_points.moments import KINDS, Moment
from finitewidth.training.many_points.path import FirstBend, Legs, Path
from finitewidth.training.many_points.scene import Scene
from finitewidth.training.many_points.second_bend import SecondBend
from finitewidth.training.many_points.straight import Straight
from finitewidth.training.many_points.times import kronecker

_NEURONS = 4800  # samples times neurons of a batch, about, so that its arrays stay in cache
_SMALLEST, _LARGEST = 16, 64  # neurons in a batch
_AMORTIZED = 250  # samples for which one batch takes as long as the matrices of its time


CONTRIBUTIONS: tuple[str, ...] = ("ntk_fluctuation", "dntk", "ddntk_1", "ddntk_2")


class Stratum(NamedTuple):
    """Where samples are drawn: the source layer, the kind of contraction and the bin of its time."""

    layer: int
    kind: str
    bin: int


def strata_of(scene: Scene) -> list[Stratum]:
    """All strata of a problem."""
    bins = {kind: scene.replay.times(kind).bins for kind in KINDS}
    layers = range(len(scene.unrolled.sources))
    return [Stratum(layer, kind, one) for layer in layers for kind in KINDS for one in range(bins[kind])]


class Bent:
    """All that bends the path at one time, or, at nested times, the second ddNTK alone."""

    def __init__(self, scene: Scene, matrices: Matrices, averages: Means, moment: Moment, *, nested: bool):
        self.path = Path(scene, matrices, averages, moment)
        second = SecondBend(self.path, nested=nested)
        self.parts = (second,) if nested else (FirstBend(self.path), second)
        self.means = self.path.means

    def contract(self, batch: Batch) -> None:
        legs = Legs(self.path, batch)
        for part in self.parts:
            part.contract(batch, legs)


CONTRACTIONS = {
    "fluctuation": Fluctuation,
    "straight": Straight,
    "bent": functools.partial(Bent, nested=False),
    "nested": functools.partial(Bent, nested=True),
}


@dataclass(frozen=True, eq=False)
class Draws:
    """A list of tasks, each a stratum and its number within the stratum."""

    scene: Scene
    rows: np.ndarray  # the samples whose outputs are asked for
    seed: tuple[int, ...]
    tasks: tuple[tuple[Stratum, int], ...]

    @property
    def batch_size(self) -> int:
        """Neurons of one batch."""
        return int(np.clip(_NEURONS // self.scene.unrolled.count, _SMALLEST, _LARGEST))

    @property
    def batches(self) -> int:
        """Batches of one task."""
        return 1 + self.scene.unrolled.count // _AMORTIZED

    @property
    def neurons(self) -> int:
        """Neurons of one task."""
        return self.batch_size * self.batches

    @functools.cached_property
    def _layers(self) -> list[tuple[Matrices, Means]]:
        layers = self.scene.layers
        return [(Matrices(self.scene, index), Means(layer)) for index, layer in enumerate(layers)]

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "_layers"}

    def __call__(self, task: int) -> dict[str, np.ndarray]:
        """n times the contributions of a stratum, (4, M, n_L), and the seconds that it took."""
        started = time.perf_counter()
        stratum, number = self.tasks[task]
        scene, (matrices, averages) = self.scene, self._layers[stratum.layer]
        name = (*self.seed, stratum.layer, KINDS.index(stratum.kind), stratum.bin)
        offset = np.random.default_rng(name).random(2)
        moment = scene.replay.moment(stratum.kind, stratum.bin, kronecker(offset, number))
        contraction = CONTRACTIONS[stratum.kind](scene, matrices, averages, moment)
        generator = np.random.default_rng((*name, number))
        totals: dict[str, np.ndarray] = {}
        for _ in range(self.batches):
            batch = Batch(scene, matrices, generator, self.batch_size)
            contraction.contract(batch)
            for contribution, value in batch.close().items():
                totals[contribution] = totals.get(contribution, 0.0) + value
        results = np.zeros((len(CONTRIBUTIONS), self.rows.size, scene.outputs))
        for contribution, total in totals.items():
            effect = total / self.neurons + contraction.means.get(contribution, 0.0)
            effect *= -matrices.layer.weight * moment.weight
            results[CONTRIBUTIONS.index(contribution)] = scene.reached(effect, moment.left)[self.rows]
        seconds = np.asarray(time.perf_counter() - started)
        return {"contributions": results, "seconds": seconds}
