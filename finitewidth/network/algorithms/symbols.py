"""What the theory at order 1/n needs of an algorithm."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Symbols:
    """An algorithm as functions of eigenmodes a, b, c of the training NTK, at order 1/n.

    Names follow (inf.142)-(inf.147), symmetrized over legs that the differentials do not tell apart.

    ```python
    symbols = fw.GradientFlow().symbols(fw.textbook.spectrum(net, X).eigenvalues)
    symbols.f, symbols.outputs["A"]
    ```
    """

    f: np.ndarray  # the response, which multiplies the residual, (a)
    f_2: np.ndarray  # its divided differences as a function of the eigenvalue, (a b)
    f_3: np.ndarray  # (a b c)
    outputs: dict[str, np.ndarray]  # A, B: (a b); IA, IB, IIA, IIB: (a b c)
    # For a training mode e: the same sums over steps minus their part that is still in the training residual
    # of mode e, all over its eigenvalue. None at the end of training, where no residual is left.
    absorbed: Callable[[int], dict[str, np.ndarray]] | None


def symmetrized(symbol: np.ndarray) -> np.ndarray:
    """The mean over all orders of three indices."""
    orders = itertools.permutations(range(3))
    return sum(symbol.transpose(order) for order in orders) / 6  # type: ignore[return-value]
