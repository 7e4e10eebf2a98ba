"""What is asked of samples: the mean of trained outputs, or their variance, as contractions of one task."""

import abc
from dataclasses import dataclass, field

import numpy as np

from finitewidth.training.many_points.feature_means import Means
from finitewidth.training.many_points.neuron_batch import Batch, Matrices
from finitewidth.training.many_points.ntk_fluctuation import Fluctuation, Twice
from finitewidth.training.many_points.output_correlation import NTK, Kept, WithBend, WithStraight
from finitewidth.training.many_points.sampled_training import Scene
from finitewidth.training.many_points.second_ddntk import SecondBend
from finitewidth.training.many_points.symmetric_terms import Straight
from finitewidth.training.many_points.time_integrals import KINDS, TWICE, Moment
from finitewidth.training.many_points.time_matrices import FirstBend, Legs, Path

MEAN: tuple[str, ...] = ("ntk_fluctuation", "dntk", "ddntk_1", "ddntk_2")
VARIANCE: tuple[str, ...] = (*MEAN, NTK)
ORDER = (*KINDS, TWICE)  # by which randomness is named
_COLUMNS = 16  # of all outputs together, at least one for each


class AbstractAsked(abc.ABC):
    """The contraction of one task, and what becomes of its effects."""

    scene: Scene  # with the columns that are asked about
    means: dict[str, np.ndarray]  # what control variates add again, by contribution

    @abc.abstractmethod
    def contract(self, batch: Batch) -> None:
        """Add the effects of a batch to it."""

    @abc.abstractmethod
    def reached(self, effect: np.ndarray) -> np.ndarray:
        """An effect, averaged over neurons, in the answer."""


class AbstractQuestion(abc.ABC):
    """A question that samples answer, with a sum over strata."""

    names: tuple[str, ...]  # of contributions
    kinds: tuple[str, ...]  # of integrals over times

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Of the answer."""

    @abc.abstractmethod
    def ask(
        self,
        scene: Scene,
        matrices: Matrices,
        averages: Means,
        moment: Moment,
        kind: str,
        generator: np.random.Generator,
    ) -> AbstractAsked:
        """The contraction at one moment."""


# --- the mean -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Mean(AbstractQuestion):
    """The mean of all outputs on some rows of the samples."""

    rows: np.ndarray
    outputs: int
    names = MEAN
    kinds = KINDS

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, self.outputs

    def ask(self, scene, matrices, averages, moment, kind, generator) -> AbstractAsked:
        return _Asked(_Contraction.of(scene, matrices, averages, moment, kind), scene, moment, self.rows)


class _Contraction:
    """All that is contracted at a moment of one kind; `kept` adds what only the variance has."""

    def __init__(self, parts: tuple, means: dict[str, np.ndarray], path: Path | None = None):
        self.parts, self.means, self.path = parts, means, path

    @classmethod
    def of(
        cls,
        scene: Scene,
        matrices: Matrices,
        averages: Means,
        moment: Moment,
        kind: str,
        kept: np.ndarray | None = None,
    ) -> "_Contraction":
        if kind == "fluctuation":
            only = Fluctuation(scene, matrices, averages, moment)
            return cls((only,), only.means)
        features = None if kept is None else Kept(scene, matrices, kept)
        if kind == "straight":
            straight = Straight(scene, matrices, averages, moment)
            if features is None:
                return cls((straight,), straight.means)
            more = WithStraight(straight, averages, features)
            return cls((more,), more.means)
        nested = kind == "nested"
        path = Path(scene, matrices, averages, moment)
        second = SecondBend(path, nested=nested)
        parts = (second,) if nested else (FirstBend(path), second)
        if features is not None and not nested:
            parts = (*parts, WithBend(path, second, features))
        return cls(parts, path.means, path)

    def contract(self, batch: Batch) -> None:
        if self.path is None:
            for part in self.parts:
                part.contract(batch)
            return
        legs = Legs(self.path, batch)
        for part in self.parts:
            part.contract(batch, legs)


class _Asked(AbstractAsked):
    """Effects on all samples, absorbed by the training set until the end; `signs` join columns of tests.

    Signs have the shape (M, n_L, columns of each output).
    """

    def __init__(self, contraction: _Contraction, scene: Scene, moment: Moment, rows: np.ndarray, signs=None):
        self.contraction, self.means = contraction, contraction.means
        self.scene, self.left, self.rows, self.signs = scene, moment.left, rows, signs

    def contract(self, batch: Batch) -> None:
        self.contraction.contract(batch)

    def reached(self, effect: np.ndarray) -> np.ndarray:
        result = -self.scene.reached(effect, self.left)[self.rows]
        return (
            result if self.signs is None else -2 * (result.reshape(self.signs.shape) * self.signs).sum(axis=2)
        )


# --- the variance -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Variance(AbstractQuestion):
    r"""The variance of every output on some rows of the samples.

    Residuals of one output i at two modes are joined by $K + y_i y_i^T$: each column is about one output,
    whose targets are its wire. By Stein's lemma an initial output meets the contributions to the mean as a
    target would, through its kernel $k = L K$ with the training samples; what else it meets is in
    `output_correlation.py`. Each test sample has a column of its own for each output, or many share a few
    columns with random signs.
    """

    rows: np.ndarray
    kept: np.ndarray = field(repr=False)  # L on these rows, (M, N), in samples
    kernel: np.ndarray = field(repr=False)  # L K, (M, N_A), in modes
    y: np.ndarray = field(repr=False)  # targets, (n_L, N_A), in modes
    names = VARIANCE
    kinds = (*KINDS, TWICE)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, len(self.y)

    def ask(self, scene, matrices, averages, moment, kind, generator) -> AbstractAsked:
        if kind == TWICE:
            scene = scene.with_columns(self.y, self.y)
            return _Twice(Twice(scene, matrices, averages, moment, self.rows), scene)
        signs = self._signs(generator)
        columns, each = signs.reshape(self.rows.size, -1), signs.shape[2]
        scene = scene.with_columns(columns.T @ self.kernel, np.repeat(self.y, each, axis=0))
        contraction = _Contraction.of(scene, matrices, averages, moment, kind, self.kept.T @ columns)
        return _Asked(contraction, scene, moment, self.rows, signs)

    def _signs(self, generator: np.random.Generator) -> np.ndarray:
        """(M, n_L, columns of each output), whose product with itself is one between test samples."""
        count, outputs = self.shape
        each = max(1, _COLUMNS // outputs)
        if count <= each:
            return np.broadcast_to(np.eye(count)[:, None], (count, outputs, count))
        return generator.choice((-1.0, 1.0), (count, outputs, each)) / np.sqrt(each)


class _Twice(AbstractAsked):
    """Effects on the test samples themselves."""

    def __init__(self, contraction: Twice, scene: Scene):
        self.contraction, self.means, self.scene = contraction, contraction.means, scene

    def contract(self, batch: Batch) -> None:
        self.contraction.contract(batch)

    def reached(self, effect: np.ndarray) -> np.ndarray:
        return effect
