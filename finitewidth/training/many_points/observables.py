"""What is sampled: the mean of trained outputs, or their variance, as contractions of one task."""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from finitewidth.training.many_points.feature_means import FeatureMeans
from finitewidth.training.many_points.neuron_batch import NeuronBatch, PairMatrices
from finitewidth.training.many_points.ntk_fluctuation import Fluctuation, SquaredFluctuation
from finitewidth.training.many_points.ordered_terms import OrderedMatrices, OrderedTerms, OrderedVectors
from finitewidth.training.many_points.output_correlation import (
    NTK,
    InitialOutput,
    OrderedWithOutput,
    SymmetricWithOutput,
)
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.second_ddntk import SecondDdNTK
from finitewidth.training.many_points.symmetric_terms import SymmetricTerms
from finitewidth.training.many_points.time_integrals import KINDS, SQUARED, TimeNode

MEAN: tuple[str, ...] = ("ntk_fluctuation", "dntk", "ddntk_1", "ddntk_2")
VARIANCE: tuple[str, ...] = (*MEAN, NTK)
ORDER = (*KINDS, SQUARED, "following", "taylor")  # by which randomness is named
_COLUMNS = 16  # of all outputs together, at least one for each


@dataclass(frozen=True, eq=False)
class Contraction:
    """All that one task contracts, and how its effects reach the observable when training ends."""

    training: SampledTraining  # with the columns whose effect is asked for
    parts: tuple
    means: dict[str, np.ndarray]  # of control variates, which are added again, by contribution
    at_end: Callable[[np.ndarray], np.ndarray]  # from an effect, averaged over neurons, to the observable
    path: OrderedMatrices | None = None  # for the ordered kinds, whose parts share vectors

    def contract(self, batch: NeuronBatch) -> None:
        """Add the effects of a batch to it."""
        shared = () if self.path is None else (OrderedVectors(self.path, batch),)
        for part in self.parts:
            part.contract(batch, *shared)


class AbstractObservable(abc.ABC):
    """A number that sampled neurons estimate, as a sum over strata."""

    names: tuple[str, ...]  # of contributions
    kinds: tuple[str, ...]  # of integrals over times

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Of the observable."""

    @abc.abstractmethod
    def contraction(
        self,
        training: SampledTraining,
        matrices: PairMatrices,
        averages: FeatureMeans,
        node: TimeNode,
        kind: str,
        generator: np.random.Generator,
    ) -> Contraction:
        """The contraction at one node of a kind of integral."""


@dataclass(frozen=True, eq=False)
class Mean(AbstractObservable):
    """The mean of all outputs on some rows of the samples."""

    rows: np.ndarray
    outputs: int
    names = MEAN
    kinds = KINDS

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, self.outputs

    def contraction(self, training, matrices, averages, node, kind, generator) -> Contraction:
        parts, means, path = _parts(training, matrices, averages, node, kind)

        def at_end(effect: np.ndarray) -> np.ndarray:
            return -training.at_end(effect, node.remaining)[self.rows]

        return Contraction(training, parts, means, at_end, path)


@dataclass(frozen=True, eq=False)
class Variance(AbstractObservable):
    r"""The variance of every output on some rows of the samples.

    Residuals of one output i at two modes have the second moment $K + y_i y_i^T$: each column is about one
    output and has its targets. By Stein's lemma an initial output acts on the contributions to the mean as a
    target would, through its kernel $k = L K$ with the training samples; its other correlations are in
    `output_correlation.py`. Each test sample has a column of its own for each output, or many share a few
    columns with random signs.
    """

    rows: np.ndarray
    L: np.ndarray = field(repr=False)  # on these rows, (M, N), in samples
    kernel: np.ndarray = field(repr=False)  # L K, (M, N_A), in modes
    y: np.ndarray = field(repr=False)  # targets, (n_L, N_A), in modes
    names = VARIANCE
    kinds = (*KINDS, SQUARED)

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.size, len(self.y)

    def contraction(self, training, matrices, averages, node, kind, generator) -> Contraction:
        if kind == SQUARED:
            training = training.with_columns(self.y, self.y)
            squared = SquaredFluctuation(training, matrices, averages, node, self.rows)
            return Contraction(training, (squared,), {}, lambda effect: effect)
        signs = self._signs(generator)
        columns, each = signs.reshape(self.rows.size, -1), signs.shape[2]
        training = training.with_columns(columns.T @ self.kernel, np.repeat(self.y, each, axis=0))
        parts, means, path = _parts(training, matrices, averages, node, kind, self.L.T @ columns)

        def at_end(effect: np.ndarray) -> np.ndarray:
            result = -training.at_end(effect, node.remaining)[self.rows]
            return -2 * (result.reshape(signs.shape) * signs).sum(axis=2)

        return Contraction(training, parts, means, at_end, path)

    def _signs(self, generator: np.random.Generator) -> np.ndarray:
        """(M, n_L, columns of each output), whose product with itself is one between test samples."""
        count, outputs = self.shape
        each = max(1, _COLUMNS // outputs)
        if count <= each:
            return np.broadcast_to(np.eye(count)[:, None], (count, outputs, count))
        return generator.choice((-1.0, 1.0), (count, outputs, each)) / np.sqrt(each)


def _parts(
    training: SampledTraining,
    matrices: PairMatrices,
    averages: FeatureMeans,
    node: TimeNode,
    kind: str,
    columns: np.ndarray | None = None,
) -> tuple[tuple, dict[str, np.ndarray], OrderedMatrices | None]:
    """The contractions of one kind, with `columns` of L^T also those that only the variance has."""
    if kind == "fluctuation":
        fluctuation = Fluctuation(training, matrices, averages, node)
        return (fluctuation,), fluctuation.means, None
    output = None if columns is None else InitialOutput(training, matrices, columns)
    if kind == "symmetric":
        terms = SymmetricTerms(training, matrices, averages, node)
        part = terms if output is None else SymmetricWithOutput(terms, averages, output)
        return (part,), part.means, None
    path = OrderedMatrices(training, matrices, averages, node)
    nested = kind == "nested"
    second = SecondDdNTK(path, has_IIA=nested, has_IIB=not (nested and node.at_end))
    parts = (second,) if nested else (OrderedTerms(path), second)
    if output is not None and kind == "ordered":
        parts = (*parts, OrderedWithOutput(path, second, output))
    return parts, path.means, path
