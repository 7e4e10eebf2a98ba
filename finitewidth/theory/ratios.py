r"""Dimensionless ratios of the 1/n tensors, and whether the expansion in 1/n can be trusted.

Each ratio is the size that a tensor has in the predictions, relative to what it corrects: $V/(nK^2)$,
$A/(n\Theta^2)$, ..., $RK/(n\Theta^3)$ (PDLT chapters 5, 9, 11 and infinity). They grow as depth over width
at criticality; theory through 1/n is within its range while the largest is well below one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from finitewidth.theory.records import Layer

POWERS = {  # tensor: powers of (K, Theta) that make it dimensionless
    "G1": (1, 0),
    "H1": (0, 1),
    "V": (2, 0),
    "D": (1, 1),
    "F": (1, 1),
    "A": (0, 2),
    "B": (0, 2),
    "P": (0, 2),
    "Q": (0, 2),
    "R": (-1, 3),
    "S": (-1, 3),
    "T": (-1, 3),
    "U": (-1, 3),
}

# What "can be trusted" means, for the whole package. Sizes are corrections of order 1/n relative to the
# quantity that they correct; neglected terms are of the order of their square.
TRUSTED = 0.3  # below, neglected terms are under a tenth: within range
WARNED = 0.5  # above, neglected terms exceed a quarter: predictions come with a warning
HOPELESS = 1.0  # above, corrections exceed what they correct: out of range


@dataclass(frozen=True)
class Ratio:
    """One tensor: its largest entry among coincident samples, and the ratio to what it corrects."""

    name: str
    value: float  # 1/n stripped
    ratio: float  # 1/n included
    verdict: str  # "within range", "at the edge" or "out of range"


@dataclass(frozen=True)
class Report:
    """Ratios of one layer; `expansion_parameter` is the largest of them."""

    layer: int
    n: int
    rows: tuple[Ratio, ...]

    @property
    def expansion_parameter(self) -> float:
        return max((abs(row.ratio) for row in self.rows), default=0.0)

    @property
    def verdict(self) -> str:
        """Whether the expansion in 1/n is within its range."""
        return verdict(self.expansion_parameter)

    def __str__(self) -> str:
        size = f"expansion parameter {self.expansion_parameter:.3g}, {self.verdict}"
        head = f"layer {self.layer}, n = {self.n}: {size}"
        lines = [f"{'tensor':>8} {'value':>12} {'ratio':>12}  verdict"]
        lines += [f"{row.name:>8} {row.value:12.4g} {row.ratio:12.4g}  {row.verdict}" for row in self.rows]
        return "\n".join([head, *lines])


def ratios(layer: "Layer") -> Report:
    """Ratios of a layer, with all labels on one sample; the sample with the largest is shown."""
    K, Theta = np.diag(layer.K), np.diag(layer.Theta)
    rows = []
    for name, (k, theta) in POWERS.items():
        if name not in layer.arrays:
            continue
        array = layer.arrays[name]
        samples = np.arange(array.shape[0])
        values = array[(samples,) * array.ndim]
        scale = np.where(K > 0, K, np.nan) ** k * np.where(Theta > 0, Theta, np.nan) ** theta
        relative = np.nan_to_num(values / scale / layer.n)
        worst = int(np.argmax(np.abs(relative)))
        size = float(relative[worst])
        rows.append(Ratio(name, float(values[worst]), size, verdict(abs(size))))
    return Report(layer.index, layer.n, tuple(rows))


def verdict(size: float) -> str:
    """Whether the expansion in 1/n is within its range where the largest correction has this size."""
    if size < TRUSTED:
        return "within range"
    return "at the edge" if size < HOPELESS else "out of range"
