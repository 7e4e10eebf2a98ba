"""An algorithm that is given by its projectors."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from finitewidth.core.checkpoint import digest
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.symbols import Symbols, symmetrized


def _universal_two(l_a, l_b):
    return 1 / (2 * l_a * l_b)


def _universal_three(l_a, l_b, l_c):
    return -1 / (6 * l_a * l_b * l_c)


def _nothing(*eigenvalues):
    return 0.0 * sum(eigenvalues)


@dataclass(frozen=True)
class Projectors(AbstractAlgorithm):
    """An algorithm of one's own that trains fully, by its projectors (PDLT inf.142-inf.147).

    Each is a function of two or three eigenvalues of the training NTK, given as arrays that broadcast.
    Projectors that are left out are those of the two-step solution.

    Args:
        Z_A: Of the dNTK, for the part that depends on the algorithm.
        Z_B: Of the dNTK; the same for every algorithm.
        Z_IA: Of the first ddNTK, for the part that depends on the algorithm.
        Z_IB: Of the first ddNTK; the same for every algorithm.
        Z_IIA: Of the second ddNTK.
        Z_IIB: Of the second ddNTK.

    ```python
    mine = fw.algorithms.Projectors(Z_A=lambda a, b: 1 / (a * (a + b)))
    fw.predict(net, X, Y, X_test, algorithm=mine, covariance=False).mean
    ```
    """

    Z_A: Callable = _nothing
    Z_B: Callable = _universal_two
    Z_IA: Callable = _nothing
    Z_IB: Callable = _universal_three
    Z_IIA: Callable = _nothing
    Z_IIB: Callable = _nothing

    @property
    def end(self) -> float:
        return math.inf

    def symbols(self, eigenvalues: np.ndarray) -> Symbols:
        return _fully_trained(self, eigenvalues)

    def fingerprint(self) -> str:
        """Functions are known by their values at some eigenvalues."""
        with np.errstate(all="ignore"):
            outputs = self.symbols(np.geomspace(0.01, 100.0, 7)).outputs
        return "Projectors " + digest(np.concatenate([value.ravel() for value in outputs.values()]))


def _fully_trained(projectors: Projectors, l: np.ndarray) -> Symbols:
    f_2, f_3 = -1 / np.multiply.outer(l, l), 1 / np.multiply.outer(np.multiply.outer(l, l), l)
    a, b, c = l[:, None, None], l[None, :, None], l[None, None, :]
    two = {
        name: np.broadcast_to(getattr(projectors, f"Z_{name}")(a[..., 0], b[..., 0]), f_2.shape)
        for name in "AB"
    }
    three = {
        name: np.broadcast_to(getattr(projectors, f"Z_{name}")(a, b, c), f_3.shape)
        for name in ("IA", "IB", "IIA", "IIB")
    }
    two["B"] = (two["B"] + two["B"].T) / 2
    three["IB"] = symmetrized(three["IB"])
    three["IA"] = (three["IA"] + three["IA"].transpose(0, 2, 1)) / 2
    return Symbols(1 / l, f_2, f_3, two | three, None)
