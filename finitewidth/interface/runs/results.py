"""What is kept of a run: a summary of every layer, and a directory that is written whole or not at all."""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import finitewidth
from finitewidth.core.storage import drafted
from finitewidth.interface.runs.reading import Run

STATISTICS = ("run.toml", "summary.json", "inputs.npy", "theory.zarr", "kernels.svg", "kernels.png")
PREDICTION = (
    "run.toml",
    "summary.json",
    "data.npz",
    "results.zarr",
    "report.html",
    "figure.svg",
    "figure.png",
)
FILES = tuple(dict.fromkeys((*STATISTICS, *PREDICTION)))


@dataclass(frozen=True)
class Spread:
    """The mean of some numbers, and the interval that they fill."""

    mean: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class LayerSummary:
    """One layer in a few numbers; correlations are None where no pair of inputs has one."""

    layer: int
    kernel: Spread  # diagonal of K
    kernel_correlation: Spread | None  # between different inputs
    ntk: Spread  # diagonal of Theta
    ntk_correlation: Spread | None
    ntk_smallest_eigenvalue: float
    ntk_condition_number: float | None  # None if Theta is singular to rounding


@dataclass(frozen=True, eq=False)
class Summary:
    """A run and its layers; the output's K and Theta are (N, N)."""

    run: Run
    layers: tuple[LayerSummary, ...]
    error: float
    output_kernel: np.ndarray
    output_ntk: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """The document that --json prints and summary.json holds."""
        return {
            "finitewidth": finitewidth.__version__,
            "command": "solve",
            "order": 0,
            "network": self.run.network.to_dict(),
            "data": {
                "source": self.run.source,
                "inputs": self.run.inputs.shape[0],
                "dimension": self.run.inputs.shape[1],
            },
            "error": self.error,
            "layers": [_layer_dict(layer) for layer in self.layers],
        }


def _layer_dict(layer: LayerSummary) -> dict[str, Any]:
    fields = vars(layer)
    return {name: vars(value) if isinstance(value, Spread) else value for name, value in fields.items()}


def summarize(run: Run, theory) -> Summary:
    """The few numbers of each layer that a table and a figure show."""
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


def check_replaceable(target: Path) -> None:
    """Refuse a place for results that holds anything which a run did not write."""
    check_holds_only(target, FILES, "a result of a run", "one of earlier results")


def check_holds_only(target: Path, files: tuple[str, ...], what: str, instead: str) -> None:
    """Refuse a directory with anything beside `files`, each of which is `what`."""
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(f"--output {str(target)!r} is a file; name a directory.")
    foreign = sorted(entry.name for entry in target.iterdir() if entry.name not in files)
    if foreign:
        raise ValueError(
            f"--output {str(target)!r} holds {foreign[0]!r}, which is not {what}; "
            f"name a new directory or {instead}."
        )


@contextlib.contextmanager
def replaced_directory(target: Path) -> Iterator[Path]:
    """A draft directory that takes the place of `target` when the block ends without an error."""
    check_replaceable(target)
    place = target.resolve()
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with drafted(place) as draft:
            draft.mkdir()
            yield draft
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(
            f"--output {str(target)!r} cannot be written: {reason}; name another place."
        ) from error


def unfinished(target: Path) -> Path:
    """Where the finished batches of a run wait until all of it is finished: hidden, beside its results."""
    place = target.resolve()
    return place.with_name(f".{place.name}.unfinished")


def clear_unfinished(target: Path) -> None:
    """Remove what is no longer needed, unless another run works there."""
    place = unfinished(target)
    if not any(place.glob(".*.lock")):
        shutil.rmtree(place, ignore_errors=True)
