r"""Dimensionless ratios of the 1/n tensors, and whether the expansion in 1/n can be trusted.

Each ratio is the size that a tensor has in the predictions, relative to what it corrects: $V/(nK^2)$,
$A/(n\Theta^2)$, ..., $RK/(n\Theta^3)$ (PDLT chapters 5, 9, 11 and infinity). They grow as depth over width
at criticality; what theory through 1/n neglects is about half the square of the largest.
"""

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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

# What "can be trusted" means, for the whole package and nowhere else: one standard deviation of what is
# neglected behind order 1/n, in units of the scale of what is predicted.
Verdict = Literal["trusted", "doubtful", "meaningless"]
_FROM_BEST: tuple[Verdict, ...] = ("trusted", "doubtful", "meaningless")
TRUSTED = 0.05  # below, the band of two standard deviations is within a tenth of the scale
MEANINGLESS = 0.5  # from here on the band is as wide as the scale itself, and excludes nothing

_NEGLECTED = 0.5  # times the square of a ratio: a linear network has (1 + 2/n)^l for 1 + 2l/n


# statistics whose next order is made of the same tensors: of outputs, also of the NTK, of its differentials
_GROUPS = (("G1", "V"), ("H1", "D", "F", "A", "B"), ("P", "Q", "R", "S", "T", "U"))


def verdict(uncertainty: float) -> Verdict:
    """What an uncertainty (one standard deviation, relative to the scale of what is predicted) means."""
    if uncertainty < TRUSTED:
        return "trusted"
    return "doubtful" if uncertainty < MEANINGLESS else "meaningless"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several verdicts, the one that holds for all together; without any, nothing is neglected."""
    lowest: Verdict = "trusted"
    for one in verdicts:
        if _FROM_BEST.index(one) > _FROM_BEST.index(lowest):
            lowest = one
    return lowest


def neglected(ratio: float) -> float:
    """The uncertainty of statistics at initialization whose largest dimensionless ratio is this."""
    return _NEGLECTED * ratio**2


@dataclass(frozen=True)
class Ratio:
    """One tensor: its largest entry among coincident samples, and the ratio to what it corrects."""

    name: str
    value: float  # 1/n stripped
    ratio: float  # 1/n included
    verdict: Verdict


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
    def uncertainty(self) -> float:
        """What order 1/n neglects, one standard deviation relative to what is corrected."""
        return neglected(self.expansion_parameter)

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted."""
        return verdict(self.uncertainty)

    def __str__(self) -> str:
        size = f"expansion parameter {self.expansion_parameter:.3g}"
        neglects = f"relative uncertainty {self.uncertainty:.2g}"
        head = f"layer {self.layer}, n = {self.n}: {size}, {neglects}, {self.verdict}"
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
        rows.append(Ratio(name, float(values[worst]), size, verdict(neglected(size))))
    return Report(layer.index, layer.n, tuple(rows))


def uncertainty_of(layer: "Layer", name: str) -> np.ndarray:
    """What order 1/n neglects in a statistic of a layer, of its shape: one standard deviation.

    In the units of its samples it is half the square of the largest ratio among the tensors that the next
    order of the statistic is made of.
    """
    stored = {"G": "G1", "H": "H1"}.get(name, name)
    if stored not in POWERS:
        known = ", ".join(("G", "H", *POWERS))
        raise ValueError(f"name must be one of {known}, which have an order 1/n, got {name!r}.")
    shape = getattr(layer, stored).shape  # or the reason why it is not there
    last = next(index for index, group in enumerate(_GROUPS) if stored in group)
    needed = [tensor for group in _GROUPS[: last + 1] for tensor in group]
    largest = max(abs(row.ratio) for row in ratios(layer).rows if row.name in needed)
    k, theta = POWERS[stored]
    K, Theta = (np.where(part > 0, part, np.nan) for part in (np.diag(layer.K), np.diag(layer.Theta)))
    of_sample = np.nan_to_num((K**k * Theta**theta) ** (1 / len(shape)))
    scale = functools.reduce(np.multiply.outer, [of_sample] * len(shape))
    return neglected(largest) * scale * (1 if name in ("G", "H") else layer.n)
