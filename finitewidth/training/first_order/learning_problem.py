"""A learning problem at order 1/n: its network and data, and all checks of whether the expansion applies."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from finitewidth.core.checkpoint import digest
from finitewidth.core.inputs import as_inputs, as_targets, merge_inputs
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.network import Network
from finitewidth.training.first_order.chosen_method import Chosen


@dataclass(frozen=True, eq=False)
class Problem:
    """A network, training data and test inputs that have passed all checks of order 1/n."""

    net: Network
    X: Float[np.ndarray, "N_A n0"]
    Y: Float[np.ndarray, "N_A n_L"]
    X_test: Float[np.ndarray, "M n0"] | None  # None stands for the training inputs

    @classmethod
    def of(cls, net: Network, X_train, Y_train, X_test=None) -> "Problem":
        """The problem of a network and data as a user gave them; a refusal names the argument."""
        check_network(net)
        n_0 = net.ladder.inputs
        X = as_inputs(X_train, n_0, name="X_train")
        Y = as_targets(Y_train, X.shape[0], net.outputs)
        return cls(net, X, Y, None if X_test is None else as_inputs(X_test, n_0, name="X_test"))

    @functools.cached_property
    def merged(self) -> tuple[np.ndarray, np.ndarray]:
        """Training inputs and then the test inputs not among them, and the place of each test input."""
        count = self.X.shape[0]
        if self.X_test is None:
            return self.X, np.arange(count)
        together, places = merge_inputs(np.concatenate([self.X, self.X_test]), keep=count)
        return together, places[count:]

    @property
    def count(self) -> int:
        """The number of different inputs, training inputs with their repetitions."""
        return self.merged[0].shape[0]

    def choose(self, method: Any, covariance: bool | None = None) -> Chosen:
        """The method for this problem."""
        return Chosen.of(method, covariance, self.count, has_skips=self.net.ladder.has_skips)

    def described(self, chosen: Chosen, algorithm: AbstractAlgorithm | None = None) -> dict:
        """Everything that statistics and, with an algorithm, a prediction depend on."""
        configuration = {
            "network": self.net.to_dict(),
            "X_train": digest(self.X),
            "X_test": None if self.X_test is None else digest(self.X_test),
            **chosen.described(),
        }
        if algorithm is None:
            return configuration
        return {**configuration, "Y_train": digest(self.Y), "algorithm": algorithm.fingerprint()}


def check_network(net: Network) -> None:
    """Refuse networks that the expansion in 1/n does not know."""
    ladder, kinked = net.ladder, net.kinked
    if kinked is not None:
        raise ValueError(
            f"activation {kinked.name!r} has a kink, where the dNTK and ddNTKs are infinite and "
            "order 1/n does not exist: neurons that cross it make the first order n^(-1/2), whose "
            "coefficient fw.kink_correction has; use a smooth one such as gelu, swish or tanh, "
            "fw.extrapolate, or order=0."
        )
    if ladder.skips[-1] is not None:
        raise ValueError(
            "a skip ends in the output of this network, which therefore has as many outputs as its stream is "
            "wide: corrections to training are of order outputs/width = 1, and no expansion in 1/n; add "
            "fw.Dense(outputs) behind it, or use order=0."
        )
    check_widths(net)


def check_widths(net: Network) -> None:
    """Refuse a hidden layer of one neuron."""
    widths = net.ladder.widths
    if net.depth > 1 and min(widths[1:-1]) == 1:
        raise ValueError(
            f"widths={widths} has a hidden layer of width 1, where an expansion in 1/n means nothing; "
            "widen it, or use order=0."
        )


def of_width(net: Network, n: int) -> Network:
    """The network with hidden layers of width n, all of which must be equally wide."""
    n_0, *hidden, n_L = widths = net.ladder.widths
    if len(set(hidden)) > 1:
        raise ValueError(
            f"widths={widths} has unequal hidden layers, whose ratios another width would "
            "change; prepare the other network with fw.prepare."
        )
    return net.with_widths((n_0, *[n] * len(hidden), n_L))


def check_ridge_at_first_order(ridge: float, cutoff: float) -> None:
    """Refuse ridges of the kernel, which order 1/n does not know."""
    if ridge or cutoff:
        raise ValueError(
            "ridge and cutoff are for order=0; at order 1 stop at a finite time, or give a ridge to "
            "fw.GradientDescent(..., ridge=)."
        )
