"""A network conditioned on data once, which predicts many test inputs in blocks."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from finitewidth.core.inputs import as_count
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.bayes.posterior import Posterior, posterior
from finitewidth.training.infinite.bayes import invert, observations
from finitewidth.training.infinite.solver import eigenbasis

BLOCKS = {0: 1000, 1: 16}  # test inputs at a time by order; at order 1 the cost grows with N^4


@dataclass(frozen=True, eq=False)
class FittedPosterior:
    """A network of finite or infinite width with the data that it is conditioned on."""

    net: Network
    X: Float[np.ndarray, "N ..."] = field(repr=False)
    Y: Float[np.ndarray, "N n_L"] = field(repr=False)
    noise: float
    order: int

    @classmethod
    def of(
        cls, net: Network, X: np.ndarray, Y: np.ndarray, noise: float, width: int | None
    ) -> "FittedPosterior":
        """Check the data; `width` is that of all hidden layers, None for infinite width."""
        if width is not None:
            n_0, *hidden, n_L = net.ladder.widths
            n = int(as_count("width", width, lowest=2))
            net = net.with_widths((n_0, *[n] * len(hidden), n_L))
        X, Y = observations(net, X.reshape(-1, *net.input_shape), Y, noise)
        invert(
            net, X, Y, kernels(net, X).K, noise
        )  # refuses a singular kernel here, not at the first prediction
        return cls(net, X, Y, float(noise), 0 if width is None else 1)

    def mean(self, X_test: np.ndarray) -> Float[np.ndarray, "M n_L"]:
        """Mean outputs."""
        return self.mean_and_std(X_test)[0]

    def mean_and_std(
        self, X_test: np.ndarray
    ) -> tuple[Float[np.ndarray, "M n_L"], Float[np.ndarray, "M n_L"]]:
        """Mean outputs, and standard deviations of new noisy observations."""
        size = BLOCKS[self.order]
        blocks = [self._posterior(X_test[start : start + size]) for start in range(0, len(X_test), size)]
        mean, std = (
            np.concatenate([getattr(one, name) for one in blocks]) for name in ("mean", "observed_std")
        )
        return mean, std

    def _posterior(self, X_test: np.ndarray) -> Posterior:
        return posterior(self.net, self.X, self.Y, X_test, noise=self.noise, order=self.order)


def most_likely_noise(net: Network, X: np.ndarray, Y: np.ndarray) -> float:
    r"""The noise variance with the largest evidence at infinite width, between 1e-8 and 10 times <y^2>.

    In the eigenbasis of K the logarithm of the evidence is
    $-\frac12 \sum_{ki} [y_{ki}^2/(l_k + s^2) + \log(l_k + s^2)]$.
    """
    basis = eigenbasis(kernels(net, X).K)
    squares = np.sum((basis.vectors.T @ Y) ** 2, axis=1)

    def twice_minus_log_evidence(log_noise: float) -> float:
        total = basis.values + np.exp(log_noise)
        return float(np.sum(squares / total) + Y.shape[1] * np.sum(np.log(total)))

    bounds = tuple(np.log((np.mean(Y**2) or 1.0) * np.array([1e-8, 10.0])))
    best: Any = minimize_scalar(twice_minus_log_evidence, bounds=bounds, method="bounded")
    return float(np.exp(best.x))
