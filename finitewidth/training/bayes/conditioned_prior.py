r"""The Gaussian prior of infinite width conditioned on data, as matrices that order 1/n contracts.

$$M = (K_{AA} + s^2)^{-1}, \quad a_i = M y_i, \quad \Phi = \sum_i a_i a_i^T, \quad \Psi = \Phi - n_L M, \quad
  T = \begin{pmatrix} -M K_{AB} \\ 1 \end{pmatrix}$$

Matrices live on the distinct inputs: rows of samples that share an input are added up. So repeated inputs and
test inputs among the training inputs, need no special case.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from finitewidth.training.infinite.solver import InverseMatrix


@dataclass(frozen=True, eq=False)
class ConditionedPrior:
    """A Gaussian prior conditioned on data; a, M, Phi, Psi and T live on the N distinct inputs."""

    K: Float[np.ndarray, "N N"]
    Y: Float[np.ndarray, "N_A n_L"]
    train: Int[np.ndarray, " N_A"]  # the place of each training sample among the distinct inputs
    tests: Int[np.ndarray, " N_B"]
    precision: Float[np.ndarray, "N_A N_A"] = field(repr=False)  # M on training samples
    weights: Float[np.ndarray, "N_A n_L"] = field(repr=False)  # a on training samples
    condition: float  # of the training kernel with its noise
    exact: bool = False  # whether observations have no noise, so that outputs at training inputs are known

    @classmethod
    def of(
        cls, K: np.ndarray, Y: np.ndarray, train, tests, solved: InverseMatrix, *, exact: bool = False
    ) -> "ConditionedPrior":
        """From the factorized training kernel with its noise."""
        precision = solved.apply(np.eye(len(Y)))
        weights = solved.apply(Y)
        train, tests = np.asarray(train, dtype=int), np.asarray(tests, dtype=int)
        precision = (precision + precision.T) / 2
        return cls(K, Y, train, tests, precision, weights, solved.condition, exact)

    @property
    def outputs(self) -> int:
        return self.Y.shape[1]

    @property
    def a(self) -> Float[np.ndarray, "N n_L"]:
        return self._added_up(self.weights)

    @property
    def M(self) -> Float[np.ndarray, "N N"]:
        return self._added_up(self._added_up(self.precision).T).T

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
        """T^T z is the part of the test outputs that the data leave open."""
        T = -self._added_up(self.precision @ self.K[np.ix_(self.train, self.tests)])
        np.add.at(T, (self.tests, np.arange(self.tests.size)), 1.0)
        T[:, self._observed_exactly] = 0.0
        return T

    @property
    def mean(self) -> Float[np.ndarray, "N_B n_L"]:
        """K_BA M y at the test inputs."""
        mean, exact = self.K[np.ix_(self.tests, self.train)] @ self.weights, self._observed_exactly
        order = np.argsort(self.train)
        places = order[np.searchsorted(self.train, self.tests[exact], sorter=order)]
        mean[exact] = self.Y[places]
        return mean

    @property
    def covariance(self) -> Float[np.ndarray, "N_B N_B"]:
        """The covariance of each output at the test inputs."""
        cross = self.K[np.ix_(self.tests, self.train)]
        half = cross @ self.precision @ cross.T / 2
        covariance, exact = self.K[np.ix_(self.tests, self.tests)] - half - half.T, self._observed_exactly
        covariance[exact], covariance[:, exact] = 0.0, 0.0
        return covariance

    @property
    def _observed_exactly(self) -> np.ndarray:
        """Which test inputs are training inputs whose outputs were observed without noise."""
        return np.isin(self.tests, self.train) & self.exact

    def _added_up(self, array: np.ndarray) -> np.ndarray:
        """Rows of training samples, added up where they are the same input."""
        total = np.zeros((len(self.K), array.shape[1]))
        np.add.at(total, self.train, array)
        return total
