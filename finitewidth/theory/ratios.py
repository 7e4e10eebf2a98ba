r"""Dimensionless ratios of the 1/n tensors, and whether the expansion in 1/n can be trusted.

Each ratio is the size that a tensor has in the predictions, relative to what it corrects: $V/(nK^2)$,
$A/(n\Theta^2)$, ..., $RK/(n\Theta^3)$ (PDLT chapters 5, 9, 11 and infinity). They grow as depth over width
at criticality; what theory through 1/n neglects is about half the square of the largest. Where a ratio is
small, as behind skips, the next order is that of a single layer of n neurons, whose moments are known to
2/n. The largest is that over all samples: tensors between different inputs may be large where those of each
input by itself vanish, as for activations that saturate.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from finitewidth.theory.tensors import existing

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
_ONE_LAYER = 2.0  # over n: what one layer of n neurons adds


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


def neglected(ratio: float, n: float = math.inf) -> float:
    """The uncertainty of statistics at initialization with this largest ratio and n neurons in each layer."""
    return _NEGLECTED * abs(ratio) * max(abs(ratio), _ONE_LAYER / n)


@dataclass(frozen=True)
class Ratio:
    """One tensor: its largest entry in units of what it corrects."""

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
    missing: tuple[str, ...] = ()  # tensors that exist and were not kept

    @property
    def expansion_parameter(self) -> float:
        return max((abs(row.ratio) for row in self.rows), default=0.0)

    @property
    def uncertainty(self) -> float:
        """What order 1/n neglects, one standard deviation relative to what is corrected."""
        if self.missing:
            raise ValueError(
                f"the verdict belongs to all tensors, and {', '.join(self.missing)} were not kept; use "
                "fw.solve(net, X) without tensors=."
            )
        return neglected(self.expansion_parameter, self.n)

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted, by all tensors; refused where some were not kept."""
        return verdict(self.uncertainty)

    def __str__(self) -> str:
        size = f"expansion parameter {self.expansion_parameter:.3g}"
        if self.missing:
            head = f"layer {self.layer}, n = {self.n}: no verdict without {', '.join(self.missing)}"
        else:
            neglects = f"relative uncertainty {self.uncertainty:.2g}"
            head = f"layer {self.layer}, n = {self.n}: {size}, {neglects}, {self.verdict}"
        lines = [f"{'tensor':>8} {'value':>12} {'ratio':>12}  verdict"]
        lines += [f"{row.name:>8} {row.value:12.4g} {row.ratio:12.4g}  {row.verdict}" for row in self.rows]
        return "\n".join([head, *lines])


def ratios(layer: "Layer") -> Report:
    """Ratios of a layer; the largest over all entries is shown of each tensor."""
    rows = []
    for name in POWERS:
        if name not in layer.arrays:
            continue
        values = layer.arrays[name]
        scale = _scale(layer, name)
        relative = np.divide(values, layer.n * scale, out=np.zeros_like(scale), where=scale > 0)
        worst = np.unravel_index(np.argmax(np.abs(relative)), relative.shape)
        size = float(relative[worst])
        rows.append(Ratio(name, float(values[worst]), size, verdict(neglected(size, layer.n))))
    corrections = ("G1",) if layer.net.has_attention else ("G1", "H1")
    exist = (*corrections, *existing(layer.net, layer.index))
    missing = tuple(name for name in POWERS if name in exist and name not in layer.arrays)
    return Report(layer.index, layer.n, tuple(rows), missing)


def _scale(layer: "Layer", name: str) -> np.ndarray:
    """What a tensor corrects, of its shape: powers of K and Theta of its samples, or zero."""
    k, theta = POWERS[name]
    K, Theta = np.diag(layer.K), np.diag(layer.Theta)
    axes = layer.arrays[name].ndim
    alive = (K > 0) & (Theta > 0) if theta else K > 0
    of_sample = np.zeros_like(K)
    of_sample[alive] = (K[alive] ** k * (Theta[alive] ** theta if theta else 1.0)) ** (1 / axes)
    return functools.reduce(np.multiply.outer, [of_sample] * axes)


def uncertainty_of(layer: "Layer", name: str) -> np.ndarray:
    """What order 1/n neglects in a statistic of a layer, of its shape: one standard deviation.

    In the units of its samples it is half the square of the largest ratio among the tensors that the next
    order of the statistic is made of, all of which must have been kept.
    """
    stored = {"G": "G1", "H": "H1"}.get(name, name)
    if stored not in POWERS:
        known = ", ".join(("G", "H", *POWERS))
        raise ValueError(f"name must be one of {known}, which have an order 1/n, got {name!r}.")
    getattr(layer, stored)  # or the reason why it is not there
    last = next(index for index, group in enumerate(_GROUPS) if stored in group)
    needed = [tensor for group in _GROUPS[: last + 1] for tensor in group]
    report = ratios(layer)
    missing = [tensor for tensor in report.missing if tensor in needed]
    if missing:
        raise ValueError(
            f"the uncertainty of {name} is made of {', '.join(needed)}, of which {', '.join(missing)} "
            "were not kept; use fw.solve(net, X) without tensors=, or add to them."
        )
    largest = max(abs(row.ratio) for row in report.rows if row.name in needed)
    return neglected(largest, layer.n) * _scale(layer, stored) * (1 if name in ("G", "H") else layer.n)
