r"""The Gaussian prior of infinite width conditioned on data, and what order 1/n asks of it.

$$M = (K_{AA} + s^2)^{-1}, \quad a_i = M y_i, \quad \Phi = \sum_i a_i a_i^T, \quad \Psi = \Phi - n_L M, \quad
  T = \begin{pmatrix} -M K_{AB} \\ 1 \end{pmatrix}$$

Samples that are the same input are one label: sums over training and test samples become sums over the
distinct inputs, where matrices of equal samples have been added up. So repeated inputs, and test inputs among
the training inputs, need no special case.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from finitewidth.training.infinite.solver import InverseMatrix


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A Gaussian prior conditioned on data; capital letters without a bar live on N distinct inputs."""

    K: Float[np.ndarray, "N N"]
    Y: Float[np.ndarray, "N_A n_L"]
    train: Int[np.ndarray, " N_A"]  # the place of each training sample among the distinct inputs
    tests: Int[np.ndarray, " N_B"]
    precision: Float[np.ndarray, "N_A N_A"] = field(repr=False)  # M on training samples
    weights: Float[np.ndarray, "N_A n_L"] = field(repr=False)  # a on training samples
    log_density: float  # of the data, log p_0(y)
    condition: float  # of the training kernel with its noise
    exact: bool = False  # whether observations have no noise, so that outputs at training inputs are known

    @classmethod
    def of(
        cls, K: np.ndarray, Y: np.ndarray, train, tests, solved: InverseMatrix, *, exact: bool = False
    ) -> "Conditioned":
        """From the factorized training kernel with its noise."""
        precision = solved.apply(np.eye(len(Y)))
        weights = solved.apply(Y)
        log_determinant = 2 * float(np.log(np.diag(solved.factor)).sum()) + len(Y) * math.log(2 * math.pi)
        density = -float((Y * weights).sum() + Y.shape[1] * log_determinant) / 2
        train, tests = np.asarray(train, dtype=int), np.asarray(tests, dtype=int)
        precision = (precision + precision.T) / 2
        return cls(K, Y, train, tests, precision, weights, density, solved.condition, exact)

    @property
    def outputs(self) -> int:
        return self.Y.shape[1]

    @property
    def a(self) -> Float[np.ndarray, "N n_L"]:
        return self._summed(self.weights)

    @property
    def M(self) -> Float[np.ndarray, "N N"]:
        return self._summed(self._summed(self.precision).T).T

    @property
    def Phi(self) -> Float[np.ndarray, "N N"]:
        a = self.a
        return a @ a.T

    @property
    def Psi(self) -> Float[np.ndarray, "N N"]:
        """Twice the derivative of log p_0(y) by K."""
        return self.Phi - self.outputs * self.M

    @property
    def T(self) -> Float[np.ndarray, "N N_B"]:
        """T^T z is the part of the test outputs that the data do not fix."""
        T = -self._summed(self.precision @ self.K[np.ix_(self.train, self.tests)])
        np.add.at(T, (self.tests, np.arange(self.tests.size)), 1.0)
        T[:, self._known] = 0.0
        return T

    @property
    def mean(self) -> Float[np.ndarray, "N_B n_L"]:
        mean, known = self.K[np.ix_(self.tests, self.train)] @ self.weights, self._known
        order = np.argsort(self.train)
        places = order[np.searchsorted(self.train, self.tests[known], sorter=order)]
        mean[known] = self.Y[places]
        return mean

    @property
    def among(self) -> Float[np.ndarray, "N_B N_B"]:
        """The covariance of each output at the test inputs."""
        cross = self.K[np.ix_(self.tests, self.train)]
        half = cross @ self.precision @ cross.T / 2
        among, known = self.K[np.ix_(self.tests, self.tests)] - half - half.T, self._known
        among[known], among[:, known] = 0.0, 0.0
        return among

    @property
    def _known(self) -> np.ndarray:
        """Which test inputs are training inputs whose outputs were observed without noise."""
        return np.isin(self.tests, self.train) & self.exact

    def _summed(self, array: np.ndarray) -> np.ndarray:
        """Rows of training samples added up where they are the same input."""
        total = np.zeros((len(self.K), array.shape[1]))
        np.add.at(total, self.train, array)
        return total
