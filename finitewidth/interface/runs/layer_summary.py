"""Statistics at initialization in a few numbers for each layer, as tables and figures show them."""

from dataclasses import dataclass

import numpy as np

from finitewidth.interface.runs.run_files import InitializationRun


@dataclass(frozen=True)
class Spread:
    """The mean, the smallest and the largest of some numbers."""

    mean: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class LayerSummary:
    """One layer in a few numbers; a correlation is None if there are no two inputs with a correlation."""

    layer: int
    kernel: Spread  # diagonal of K
    kernel_correlation: Spread | None  # between different inputs
    ntk: Spread  # diagonal of Theta
    ntk_correlation: Spread | None
    ntk_smallest_eigenvalue: float
    ntk_condition_number: float | None  # None if Theta is singular to rounding


@dataclass(frozen=True, eq=False)
class Summary:
    """The layers of a run in a few numbers each, and K and Theta of the output layer, (N, N)."""

    run: InitializationRun
    layers: tuple[LayerSummary, ...]
    error: float
    output_kernel: np.ndarray
    output_ntk: np.ndarray


def summarize(run: InitializationRun, theory) -> Summary:
    """The few numbers of each layer that the table and the figure show."""
    layers = tuple(_summarize_layer(l, theory.layer(l)) for l in range(1, theory.depth + 1))
    K, Theta = np.asarray(theory.output.K), np.asarray(theory.output.Theta)
    return Summary(run, layers, float(theory.error), output_kernel=K, output_ntk=Theta)


def _summarize_layer(number: int, layer) -> LayerSummary:
    K, Theta = np.asarray(layer.K), np.asarray(layer.Theta)
    eigenvalues = np.linalg.eigvalsh(Theta)
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    singular = smallest <= len(Theta) * np.finfo(float).eps * largest
    return LayerSummary(
        layer=number,
        kernel=_spread(np.diag(K)),
        kernel_correlation=_correlations(K),
        ntk=_spread(np.diag(Theta)),
        ntk_correlation=_correlations(Theta),
        ntk_smallest_eigenvalue=smallest,
        ntk_condition_number=None if singular else largest / smallest,
    )


def _spread(values: np.ndarray) -> Spread:
    return Spread(float(values.mean()), float(values.min()), float(values.max()))


def _correlations(covariance: np.ndarray) -> Spread | None:
    scale = np.sqrt(np.diag(covariance))
    alive = scale > 0  # an input of zeros under C_b = 0 correlates with nothing
    scale = scale[alive]
    correlation = covariance[np.ix_(alive, alive)] / np.outer(scale, scale)
    pairs = correlation[np.triu_indices(len(scale), k=1)]
    return _spread(pairs) if len(pairs) else None
