"""The spectrum of the training NTK: how fast gradient descent may go, and how long each mode takes."""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.fitting import ntk, require_ntk
from finitewidth.training.infinite.solver import condition_of, eigenbasis


@shown(
    "eigenvalues",
    "condition",
    "largest_learning_rate",
    "net",
    dimensions={"eigenvalues": "mode", "time_scales": "mode", "eigenvectors": "sample mode"},
    figure="spectrum",
)
@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues and eigenvectors of the training NTK at infinite width.

    `fw.textbook.spectrum` makes it, and `plot` draws it.

    ```python
    modes = fw.textbook.spectrum(net, X)
    modes.time_scales, modes.learned(fw.GradientFlow(2.0))
    ```
    """

    net: Network
    eigenvalues: Float[np.ndarray, " N"]  # ascending
    eigenvectors: Float[np.ndarray, "N N"] = field(repr=False)  # in columns
    condition: float  # largest over smallest eigenvalue
    error: float = field(repr=False)  # of the Gaussian averages in the NTK

    @property
    def largest_learning_rate(self) -> float:
        """2 / largest eigenvalue: gradient descent converges below it."""
        largest = self.eigenvalues[-1]
        return float(2 / largest) if largest > 0 else np.inf

    @property
    def time_scales(self) -> Float[np.ndarray, " N"]:
        """1 / eigenvalue: under gradient flow a mode's residual falls by a factor e in that time."""
        with np.errstate(divide="ignore"):
            return 1 / self.eigenvalues

    def learned(self, algorithm: AbstractAlgorithm) -> Float[np.ndarray, " N"]:
        """The part of each mode's target that training has reached: l f(l), from 0 to 1."""
        check_algorithm(algorithm, order=0).check_stable(float(self.eigenvalues[-1]), MSE())
        positive = self.eigenvalues > 0
        learned = np.zeros_like(self.eigenvalues)
        learned[positive] = self.eigenvalues[positive] * algorithm.response(self.eigenvalues[positive])
        return learned


@takes_models
def spectrum(net: Network, X_train: ArrayLike) -> Spectrum:
    """Eigenvalues, condition number, largest stable learning rate and time scales of the training NTK.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X_train: Training inputs (N, n_0).

    Returns:
        Eigenvalues in ascending order, and what follows from them.

    ```python
    fw.textbook.spectrum(net, X).largest_learning_rate
    ```
    """
    require_ntk(net)
    train = kernels(net, as_inputs(X_train, net.input_shape, name="X_train"))
    basis = eigenbasis(ntk(train))
    return Spectrum(net, basis.values, basis.vectors, condition_of(basis, 0.0), train.error)
