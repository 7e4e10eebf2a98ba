r"""Contractions of the four-point vertex V with matrices between samples: all that Bayes' rule asks of it.

$$\text{straight: } V_{(12)(34)} P_{34}, \qquad \text{crossed: } V_{(13)(24)} M_{34}$$
"""

import abc
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth.core.tasks import HERE, Runner


class Contracted(NamedTuple):
    """Contractions of V, one for every matrix that was given, and G1, which the same averages give."""

    straight: Float[np.ndarray, "m N N"]
    crossed: Float[np.ndarray, "q N N"]
    G1: Float[np.ndarray, "N N"]


class AbstractVertex(abc.ABC):
    """The four-point vertex of one layer on N samples, with 1/n stripped."""

    @abc.abstractmethod
    def contract(
        self,
        straight: Float[np.ndarray, "m N N"],
        crossed: Float[np.ndarray, "q N N"],
        running: Runner = HERE,
    ) -> Contracted:
        """V with symmetric matrices: on its second pair, and on the second samples of both pairs."""


@dataclass(frozen=True, eq=False)
class WholeVertex(AbstractVertex):
    """V with all its N^4 entries."""

    G1: Float[np.ndarray, "N N"] = field(repr=False)
    V: Float[np.ndarray, "N N N N"] = field(repr=False)

    def contract(self, straight: np.ndarray, crossed: np.ndarray, running: Runner = HERE) -> Contracted:
        moved = np.tensordot(straight, self.V, ((1, 2), (2, 3)))
        across = np.tensordot(crossed, self.V, ((1, 2), (1, 3)))
        return Contracted(moved, across, self.G1)
