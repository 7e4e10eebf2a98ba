r"""The mean at order 1/n, term by term (PDLT (inf.160)-(inf.165), corrected): stated here and nowhere else.

Every term is a tensor with one slot on a sample d and the other three on modes of the training NTK,

$$\mu_{i;d} = -\sum_{abc} Z_{abc}\, X_{dabc}\, w_{i;abc},$$

where the symbol Z holds the algorithm and the weight w the targets. NTK fluctuations (A, B) and the dNTK
(P, Q) have one mode in two slots and the weight $y_{ia}$. The ddNTKs (R, S, T, U) are contracted with three
residuals, whose average over initial outputs is

$$T_i(a|bc) = y_{ia} (Y_{bc} + n_L K_{bc}) + K_{ab}\, y_{ic} + K_{ac}\, y_{ib}.$$

Modes are named so that the weight is always $y_{ia}$ or $T_i(a|bc)$. A term is read in two ways: as a part of
a `Source`, where its tensor is stored, and of a `dual`, which contracts a tensor that is never stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Term:
    """One term of the mean; a is the mode of the target, modes b and c are summed over."""

    tensor: str
    slots: str  # the letter in each slot of the tensor, in printed order; d is the open slot
    symbol: str  # a key of `Symbols.outputs`, or "ff" for the divided difference of f
    modes: str  # subscripts of the symbol
    factor: float = 1.0
    loops: int = 0  # closed loops of output components, each of which is a factor n_L

    @property
    def open_slot(self) -> int:
        return self.slots.index("d")

    @property
    def letters(self) -> str:
        """The modes in order: "ab" in a linear term, "abc" in a cubic one."""
        return "".join(sorted(self.modes))

    def weight(self, outputs: int) -> float:
        return self.factor * outputs**self.loops

    def coefficient(self, symbols: Mapping[str, np.ndarray]) -> np.ndarray:
        """The symbol with its modes in order."""
        return np.einsum(f"{self.modes}->{self.letters}", symbols[self.symbol])


LINEAR = {
    "ntk_fluctuation": (
        Term("A", "dbba", "ff", "ab"),
        Term("B", "dbba", "ff", "ab"),
        Term("B", "dabb", "ff", "ab", loops=1),
    ),
    "dntk": (
        Term("P", "dbab", "B", "ab", factor=2.0),
        Term("Q", "dbab", "B", "ab", factor=2.0),
        Term("Q", "dabb", "B", "ab", factor=2.0, loops=1),
        Term("P", "bdab", "A", "ba", loops=1),
        Term("Q", "bdab", "A", "ba"),
        Term("Q", "badb", "A", "ba"),
        Term("P", "adbb", "A", "ab"),
        Term("Q", "adbb", "A", "ab", loops=1),
        Term("Q", "abdb", "A", "ab"),
    ),
}
CUBIC = {
    "ddntk_1": (
        Term("R", "dabc", "IB", "abc", factor=3.0),
        Term("R", "adbc", "IA", "abc"),
        Term("R", "bcad", "IA", "bca"),
        Term("R", "cbad", "IA", "cab"),  # printed as R_cbda: the last two slots of R can be exchanged
    ),
    "ddntk_2": (
        Term("S", "dabc", "IIB", "abc"),
        Term("T", "dabc", "IIB", "cab"),
        Term("U", "dabc", "IIB", "bca"),
        Term("S", "bcda", "IIA", "bca"),
        Term("T", "adcb", "IIA", "abc"),
        Term("U", "cbad", "IIA", "cab"),
    ),
}
TERMS = LINEAR | CUBIC  # by contribution
TENSORS = {name: frozenset(term.tensor for term in terms) for name, terms in TERMS.items()}


@dataclass(frozen=True)
class Source:
    """Terms of one contribution, all linear or all cubic, with their tensors at hand."""

    terms: tuple[Term, ...]
    views: tuple[np.ndarray, ...]  # of the tensors in modes, with axes d a b (c)
    outputs: int  # n_L

    @classmethod
    def of(
        cls, terms: tuple[Term, ...], tensors: Mapping[str, np.ndarray], count: int, outputs: int
    ) -> "Source":
        """From tensors whose first `count` indices on each axis are modes of the training NTK."""
        views = tuple(_view(term, tensors[term.tensor], count) for term in terms)
        return cls(terms, views, outputs)

    def __call__(self, symbols: Mapping[str, np.ndarray], d: int | slice) -> np.ndarray:
        """The sum over terms of Z X at d, (d, a, b) or (d, a, b, c); an integer d has no axis."""
        total = None
        for term, view in zip(self.terms, self.views, strict=True):
            part = (term.weight(self.outputs) * term.coefficient(symbols)) * view[d]
            total = part if total is None else np.add(total, part, out=total)
        assert total is not None
        return total


def _view(term: Term, tensor: np.ndarray, count: int) -> np.ndarray:
    """The entries of a tensor that a term has, with axes d a b (c)."""
    on_modes = tensor[tuple(slice(None if slot == "d" else count) for slot in term.slots)]
    return np.einsum(f"{term.slots}->d{term.letters}", on_modes)


def dual(
    terms: tuple[Term, ...], symbols: Mapping[str, np.ndarray], weights: np.ndarray, outputs: int
) -> np.ndarray:
    """The transpose of `Source` for terms with one tensor and open slot: Z w on the other three slots.

    `weights` are y (n_L, a) or T (n_L, a, b, c); the dual has shape (n_L, N_A, N_A, N_A).
    """
    result = np.zeros((weights.shape[0], *[weights.shape[1]] * 3))
    for term in terms:
        others = term.slots.replace("d", "")
        entries = np.einsum(f"i{others}->i{term.letters}", result)  # a view: equal modes on their diagonal
        expanded = weights if len(term.letters) == 3 else weights[:, :, None]
        entries += (term.weight(outputs) * term.coefficient(symbols)) * expanded
    return result


# --- three residuals averaged over initial outputs -----------------------------------------------------


def three_residuals(y: np.ndarray, kernel: np.ndarray, summed_kernel: np.ndarray) -> np.ndarray:
    """T_i(a|bc) from targets y (n_L, a), the kernel K_ab and the summed kernel Y_bc + n_L K_bc."""
    mixed = np.einsum("ab,ic->iabc", kernel, y)
    return np.einsum("ia,bc->iabc", y, summed_kernel) + mixed + mixed.transpose(0, 1, 3, 2)


def average_over_outputs(M: np.ndarray, kernel: np.ndarray, summed_kernel: np.ndarray) -> np.ndarray:
    """The transpose of `three_residuals`: the form (N, a) with form_da y_ia = M_dabc T_i(a|bc).

    M (N, a, b, c) is symmetric in b and c.
    """
    return np.einsum("dabc,bc->da", M, summed_kernel) + 2 * np.einsum("dabc,ab->dc", M, kernel)
