r"""How the error of wide networks falls with the number of training points, from one spectrum.

N of M data points are drawn at random and learned by kernel regression with the NTK $\Theta$ of infinite
width and a ridge $s^2$ on its diagonal. With eigenvalues l and eigenvectors of $\Theta$ on all M points, and
$y_i$ the targets along them, averages over the subsets are those of a larger ridge $\kappa$ on all points:

$$s^2 = \kappa\, g, \qquad g = \frac{N/M - u}{1 - u}, \qquad u = \frac1M \sum_i \frac{l_i}{l_i + \kappa},$$
$$\sum_{\text{all}} r^2 = \sum_i y_i^2 \frac{\kappa^2 + \dot\kappa}{(l_i + \kappa)^2}, \qquad
  \sum_{\text{train}} r^2 = s^4 \kappa' \sum_i \frac{y_i^2}{(l_i + \kappa)^2},$$

where $\kappa' = d\kappa/ds^2$, and $\dot\kappa$ is the answer of $\kappa$ to
$\Theta \to \Theta + \epsilon\Theta^2$.
For N much smaller than M, where g = N/M - u, these are the learning curves of Bordelon, Canatar and Pehlevan
(2020) and of Simon, Dickens, Karkada and DeWeese (2023). The factor 1/(1 - u) is that of drawing without
replacement: a subset is a projection, free of the kernel, instead of a sum of independent points. At N = M
all is exact.
"""

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_count, as_inputs, as_positive, as_targets
from finitewidth.core.keys import as_seed
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels

_RANK = 1e-12  # eigenvalues below this share of the largest are rounding
_RANGE = 1e-18  # of the largest eigenvalue: the smallest kappa that is searched


@shown("sizes", "test", "train", "noise", "net")
@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Mean squared errors of mean predictions after training on random subsets of one data set.

    `fw.learning_curve` makes it.

    ```python
    curve = fw.learning_curve(net, X, Y, sizes=(1, 2), noise=0.1)
    curve.test, curve.train
    ```
    """

    net: Network
    sizes: tuple[int, ...]  # N, numbers of training points
    noise: float  # the ridge on the training NTK
    test: Float[np.ndarray, " sizes"]  # on the points that are not in the subset, averaged over outputs
    train: Float[np.ndarray, " sizes"]  # on those that are
    kappa: Float[np.ndarray, " sizes"] = field(repr=False)  # modes with larger eigenvalues are learned
    learned: Float[np.ndarray, "sizes modes"] = field(repr=False)  # the share of each mode, largest first
    measured_test: Estimate | None = field(default=None, repr=False)  # over subsets that were drawn
    measured_train: Estimate | None = field(default=None, repr=False)  # over the same subsets


@takes_models
def learning_curve(
    net: Network,
    X: ArrayLike,
    Y: ArrayLike,
    sizes: Sequence[int],
    *,
    noise: float = 0.0,
    order: int = 0,
    subsets: int = 0,
    key: Any = None,
) -> LearningCurve:
    """Expected train and test errors over random subsets of a data set, from its spectrum.

    Wide networks are trained to the end on N of the points, and the mean over networks is asked about the
    others. No subset is drawn for the expectation, whose only approximation is that eigenvectors point in no
    particular direction; `subsets` draws some and trains on each, which shows how good it is.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X: The inputs of all points (M, n_0).
        Y: Their targets (M, n_L).
        sizes: Numbers of training points, each from 1 to M - 1.
        noise: A ridge on the diagonal of the training NTK: the variance of observations in units of it.
        order: 0, infinite width; corrections of order 1/n to averages over subsets are not known.
        subsets: How many random subsets of each size are learned beside the expectation; 0 for none.
        key: The randomness of the subsets, 0 by default.

    Returns:
        An `fw.records.LearningCurve` with `test` and `train`, and `measured_test` and `measured_train` where
        subsets were drawn.

    ```python
    fw.learning_curve(net, X, Y, sizes=(1, 2), noise=0.1).test
    ```
    """
    if order != 0:
        raise ValueError(
            f"order must be 0, got {order!r}: order 1/n of averages over subsets is not known; use "
            "fw.predict on single subsets."
        )
    X, noise = as_inputs(X, net.input_shape), as_positive("noise", noise, or_zero=True)
    Y, sizes = as_targets(Y, len(X), net.outputs), _checked(sizes, len(X))
    Theta = kernels(net, X).Theta
    if Theta is None:
        raise ValueError(
            f"activation {net.activation_name!r} has no NTK, since its derivative is a delta function; use a "
            "continuous activation."
        )
    spectrum = _Spectrum.of(Theta, Y, noise)
    curve = [spectrum.at(N) for N in sizes]
    measured: tuple[Estimate | None, Estimate | None] = (None, None)
    if key is not None and not subsets:
        raise ValueError(f"key={key!r} has nothing to draw without subsets; pass subsets=8, or leave it out.")
    if subsets:
        count = int(as_count("subsets", subsets, lowest=2))
        seeds = np.random.default_rng(as_seed(0 if key is None else key))
        measured = _averaged([_experiment(Theta, Y, noise, N, count, seeds) for N in sizes])
    test, train, kappa = (np.array(values) for values in zip(*(one[:3] for one in curve), strict=True))
    learned = np.stack([one[3] for one in curve])
    return LearningCurve(net, sizes, noise, test, train, kappa, learned, *measured)


def _checked(sizes: Sequence[int], count: int) -> tuple[int, ...]:
    asked: tuple[Any, ...] = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
    for N in asked:
        whole = isinstance(N, numbers.Integral) and not isinstance(N, bool)
        if not (whole and 1 <= int(N) < count):
            raise ValueError(
                f"sizes must be whole numbers from 1 to {count - 1}, got {N!r}; leave one point to test."
            )
    if not asked:
        raise ValueError("sizes must name at least one number of training points, got none.")
    return tuple(int(N) for N in asked)


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Eigenvalues of the NTK on all points, largest first, and the squares of targets along eigenvectors."""

    l: Float[np.ndarray, " M"]
    squares: Float[np.ndarray, " M"]  # averaged over outputs
    noise: float

    @classmethod
    def of(cls, Theta: np.ndarray, Y: np.ndarray, noise: float) -> "_Spectrum":
        l, vectors = np.linalg.eigh(Theta)
        l, vectors = np.maximum(l[::-1], 0.0), vectors[:, ::-1]
        return cls(l, ((vectors.T @ Y) ** 2).mean(axis=1), noise)

    def at(self, N: int) -> tuple[float, float, float, np.ndarray]:
        """Test and train errors of N points, kappa, and the share of each mode that is learned."""
        M, kappa = len(self.l), self._kappa(N)
        learned, missing = self.l / (self.l + kappa), kappa / (self.l + kappa)
        rest = missing.mean()  # 1 - u, without loss of digits
        g, slope = 1 - (1 - N / M) / rest, (N / M - 1) / rest**2
        stiffness = g - slope * float(np.mean(learned * missing))  # of s^2 to kappa
        answer = -slope * float(np.mean(learned**2)) / stiffness  # of kappa, over its square
        left = float(np.sum(self.squares * missing**2))
        train = left * g**2 / stiffness
        return (left * (1 + answer) - train) / (M - N), train / N, kappa, learned

    def _kappa(self, N: int) -> float:
        M, largest = len(self.l), self.l[0]
        rank = int(np.sum(self.l > _RANK * largest))
        if not self.noise and rank <= N:
            raise ValueError(
                f"sizes has {N}, but the NTK of all {M} points has rank {rank}, and noise=0 asks for an "
                "exact fit; pass noise= above zero, or smaller sizes."
            )

        def excess(log: float) -> float:
            kappa = math.exp(log)
            return kappa * (1 - (1 - N / M) / float(np.mean(kappa / (self.l + kappa)))) - self.noise

        upper = math.log(largest * M / N + self.noise * M / N + 1e-300) + 1
        log: Any = brentq(excess, math.log(_RANGE * largest), upper, xtol=1e-13)
        return math.exp(log)


def _experiment(
    Theta: np.ndarray, Y: np.ndarray, noise: float, N: int, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Test and train errors of random subsets, (count,) each."""
    errors = np.empty((2, count))
    for draw in range(count):
        order = generator.permutation(len(Y))
        inside, outside = order[:N], order[N:]
        weights = np.linalg.solve(Theta[np.ix_(inside, inside)] + noise * np.eye(N), Y[inside])
        errors[0, draw] = np.mean((Theta[np.ix_(outside, inside)] @ weights - Y[outside]) ** 2)
        errors[1, draw] = np.mean((noise * weights) ** 2)
    return errors[0], errors[1]


def _averaged(errors: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[Estimate, Estimate]:
    both = np.moveaxis(np.array(errors), 1, 0)  # (2, sizes, count)
    means, spread = both.mean(axis=2), both.std(axis=2, ddof=1) / math.sqrt(both.shape[2])
    return Estimate(means[0], spread[0]), Estimate(means[1], spread[1])
