"""Dense networks whose activations have closed forms: all layers of a block of pairs in one compiled pass.

Small kernels are then no longer bound by the calls between layers, and large ones pass the cache once. The
arithmetic is that of the steps one by one, to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian.two_legs.closed_averages import family, has_closed_form
from finitewidth.theory.layers.activation import ActivationStep
from finitewidth.theory.layers.dense import WeightsStep, coefficients
from finitewidth.theory.layers.interface import AbstractStep

_WORTH_THREADS = 1 << 20  # pairs and layers


@dataclass(frozen=True)
class ClosedChain:
    """Weights and S activations in turns, ending with weights, for samples without positions."""

    forms: np.ndarray  # the compiled loop of each activation, (S,)
    slopes: np.ndarray  # and its parameters, (S, 2)
    weights: np.ndarray  # as `core.loops.affine` takes them, (S + 1, 5)

    def variances(self, squares: np.ndarray) -> np.ndarray:
        """Variances in front of the activations, (S, N), of inputs with these mean squares (N,)."""
        from finitewidth.gaussian.two_legs.pair_loops import own_layers

        return own_layers(self.forms, self.slopes, self.weights, squares)

    def advance(
        self, K: np.ndarray, Theta: np.ndarray, rows: np.ndarray, columns: np.ndarray, *, upper: bool
    ) -> None:
        """Take K (A, B) from the inputs to the last layer in place, and write Theta.

        Variances are (S, A) and (S, B). With `upper` the block stands on the diagonal of a
        symmetric matrix.
        """
        from finitewidth.gaussian.two_legs.pair_loops import all_layers

        all_layers(self.forms, self.slopes, self.weights, rows, columns, K, Theta, upper)

    def is_worth_threads(self, pairs: int) -> bool:
        """Whether so many pairs take longer than threads take to start."""
        return pairs * self.forms.size > _WORTH_THREADS


def closed_chain(steps: Sequence[AbstractStep]) -> ClosedChain | None:
    """The compiled pass of these steps; None where they are of another kind."""
    if len(steps) < 3 or len(steps) % 2 == 0:
        return None
    weights = [_weights(step) for step in steps[::2]]
    forms = [_form(step) for step in steps[1::2]]
    if None in weights or None in forms:
        return None
    table = np.array(forms, dtype=float)
    return ClosedChain(table[:, 0].astype(int), table[:, 1:].copy(), np.array(weights))


def _weights(step: AbstractStep) -> tuple[float, ...] | None:
    if type(step) is not WeightsStep or step.grid.shape:
        return None
    return coefficients(step.layer, step.taps)


def _form(step: AbstractStep) -> tuple[float, ...] | None:
    """The loop and parameters of an activation; linear ones have a pass of their own."""
    if type(step) is not ActivationStep or step.gain or not has_closed_form(step.activation):
        return None
    slopes = step.activation.slopes
    return None if slopes is not None and slopes[0] == slopes[1] else family(step.activation)
