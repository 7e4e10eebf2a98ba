r"""One network: trained outputs and NTK from its derivatives at initialization (PDLT section inf.2.3).

Pairs of a sample and an output component are one index I; training samples come first. The network's own
NTK is used throughout, also in the projectors (the book takes its mean there), so the neglected terms are
products of differentials and higher differentials, of order $1/n^2$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_targets
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.algorithms.symbols import Symbols
from finitewidth.network.losses.squared_error import MSE
from finitewidth.training.first_order.eigenmodes import dressed, rotate, rotate_axis, single_source
from finitewidth.training.infinite.conditioning import largest_condition

Outputs = Float[np.ndarray, "N n_L"]
_LEGS = {"ntk": 2, "dntk": 3, "ddntk_1": 4, "ddntk_2": 4}


@dataclass(frozen=True)
class NetworkModes:
    """Derivatives of one network with training pairs rotated to modes of its training NTK."""

    l: np.ndarray  # (M,), M training pairs of sample and component
    vectors: np.ndarray  # (M, M)
    z: np.ndarray  # (I,)
    eps: np.ndarray  # residual z - y of the training modes, (M,)
    H: np.ndarray  # NTK, (I, I)
    dH: np.ndarray  # dNTK, first index distinguished, (I, I, I)
    ddI: np.ndarray  # first ddNTK, first index distinguished, (I, I, I, I)
    ddII: np.ndarray  # second ddNTK z''_1[z'_3] . z''_2[z'_4], (I, I, I, I)

    @classmethod
    def of(cls, z, ntk, dntk, ddntk_1, ddntk_2, Y) -> "NetworkModes":
        """From outputs (N, n_L), targets (N_A, n_L), and arrays with axes (component, sample) per index."""
        size, count = z.size, Y.size
        H, dH, ddI, ddII = (_paired(array, size) for array in (ntk, dntk, ddntk_1, ddntk_2))
        l, vectors = np.linalg.eigh((H[:count, :count] + H[:count, :count].T) / 2)
        rotated = [rotate(array, vectors) for array in (H, dH, ddI, ddII)]
        eps = vectors.T @ (z.ravel()[:count] - Y.ravel())
        return cls(l, vectors, rotate(z.ravel(), vectors), eps, *rotated)

    @property
    def count(self) -> int:
        """M."""
        return self.l.size


def _swapped(axes: int) -> list[int]:
    """(sample, component) for (component, sample) on each index, and back."""
    return [place for index in range(axes // 2) for place in (2 * index + 1, 2 * index)]


def _paired(array, size: int) -> np.ndarray:
    array = np.asarray(array)
    return array.transpose(_swapped(array.ndim)).reshape((size,) * (array.ndim // 2))


def _folded(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(shape * array.ndim).transpose(_swapped(2 * array.ndim))


@shown("outputs", "free", "ntk", "dntk")
@dataclass(frozen=True)
class NetworkPrediction:
    """One network after training, through order 1/n.

    `fw.empirical.trained_outputs` makes it.

    ```python
    start = fw.empirical.initialize(net, key=0)
    z, ntk = np.asarray(fw.empirical.apply(net, start, X)), fw.empirical.ntk(net, start, X)
    still = np.zeros((1, 3) * 3), np.zeros((1, 3) * 4), np.zeros((1, 3) * 4)  # an NTK that never moves
    fw.empirical.trained_outputs(z, ntk, *still, Y, fw.GradientFlow(2.0)).free
    ```
    """

    outputs: Outputs  # trained outputs, training samples first
    free: Outputs  # the outputs that its NTK would lead to if it stayed as at initialization
    ntk: Float[np.ndarray, "n_L N n_L N"]  # NTK when training stops
    dntk: Float[np.ndarray, "n_L N n_L N n_L N"]  # dNTK when training stops
    # the NTK with which a kernel prediction gives these outputs; at the end of training only
    trained_ntk: Float[np.ndarray, "N n_L M"] | None


def trained_outputs(
    z: ArrayLike,
    ntk: ArrayLike,
    dntk: ArrayLike,
    ddntk_1: ArrayLike,
    ddntk_2: ArrayLike,
    Y: ArrayLike,
    algorithm: AbstractAlgorithm,
) -> NetworkPrediction:
    """Outputs and NTK of one network after training, without training it.

    Tensors have axes (component, sample) for each index, and training samples come first.

    Args:
        z: Its outputs at initialization (N, n_L).
        ntk: Its NTK at initialization.
        dntk: Its dNTK at initialization.
        ddntk_1: Its first ddNTK at initialization.
        ddntk_2: Its second ddNTK at initialization.
        Y: Targets of the training samples (N_A, n_L).
        algorithm: How and how long it is trained.

    Returns:
        Its `outputs`, `ntk` and `dntk` after training, through order 1/n.

    ```python
    start = fw.empirical.initialize(net, key=0)
    z, ntk = np.asarray(fw.empirical.apply(net, start, X)), fw.empirical.ntk(net, start, X)
    still = np.zeros((1, 3) * 3), np.zeros((1, 3) * 4), np.zeros((1, 3) * 4)  # an NTK that never moves
    fw.empirical.trained_outputs(z, ntk, *still, Y, fw.GradientFlow()).outputs  # the targets
    ```
    """
    z = np.asarray(z)
    if z.ndim != 2:
        raise ValueError(f"z must have shape (N, n_L), one row for each sample, got {z.shape}.")
    Y = as_targets(Y, len(np.atleast_1d(Y)), z.shape[1], name="Y", inputs="z")
    given = {"z": z, "ntk": ntk, "dntk": dntk, "ddntk_1": ddntk_1, "ddntk_2": ddntk_2}
    _check_derivatives(given, Y)
    modes = NetworkModes.of(z, ntk, dntk, ddntk_1, ddntk_2, Y)
    _check_training(modes, check_algorithm(algorithm, order=1))
    s = algorithm.symbols(modes.l)
    free = modes.z - modes.H[:, : modes.count] @ (s.f * modes.eps)
    final = free + interaction(modes, s)
    back = lambda array: rotate(array, modes.vectors.T)  # noqa: E731
    fold = lambda array: _folded(back(array), z.shape)  # noqa: E731
    trained = _trained_ntk(modes, s).reshape(*z.shape, -1) if s.absorbed is None else None
    outputs, free_outputs = (back(array).reshape(z.shape) for array in (final, free))
    return NetworkPrediction(
        outputs, free_outputs, fold(evolved_ntk(modes, s)), fold(evolved_dntk(modes, s)), trained
    )


def _check_derivatives(given: dict[str, np.ndarray], Y: np.ndarray) -> None:
    count, outputs = given["z"].shape
    for name, array in given.items():
        shape = (outputs, count) * _LEGS[name] if name in _LEGS else (count, outputs)
        if np.shape(array) != shape:
            raise ValueError(f"{name} must have shape {shape}, as z says, got {np.shape(array)}.")
        if not np.isfinite(array).all():
            raise ValueError(f"{name} has an entry that is NaN or infinite; check the network's parameters.")
    if len(Y) > count:
        raise ValueError(f"Y has {len(Y)} rows but z only {count}; training samples come first in z.")


def _check_training(modes: NetworkModes, algorithm: AbstractAlgorithm) -> None:
    smallest, largest = modes.l[0], modes.l[-1]
    if algorithm.is_finished and (smallest <= 0 or largest > largest_condition(modes.count) * smallest):
        raise ValueError(
            "ntk of the training samples is singular, so that training has no end; remove repeated samples, "
            "or stop at a finite time."
        )
    algorithm.check_stable(float(largest), MSE())


def _stripped(modes: NetworkModes, s: Symbols, dress) -> np.ndarray:
    """The interacting part with the residual of its first training leg left off, (I, M)."""
    t, eps = slice(modes.count), modes.eps
    dH, ddI, ddII = modes.dH, modes.ddI, modes.ddII
    two = dress("A", dH[t, :, t].transpose(1, 0, 2)) + dress("B", dH[:, t, t])
    three = dress("IA", ddI[t, :, t, t].transpose(1, 0, 2, 3)) + dress("IB", ddI[:, t, t, t])
    three += dress("IIA", ddII[t, t, :, t].transpose(2, 0, 1, 3)) + dress("IIB", ddII[:, t, t, t])
    return two @ eps + np.einsum("Iabc,b,c->Ia", three, eps, eps)


def interaction(modes: NetworkModes, s: Symbols) -> np.ndarray:
    """The part that the differentials of the NTK add to the free solution, (I,) (inf.141)."""
    dress = lambda kind, X: dressed(modes.l, modes.H, s, single_source(kind, X))  # noqa: E731
    return _stripped(modes, s, dress) @ modes.eps


def _trained_ntk(modes: NetworkModes, s: Symbols) -> np.ndarray:
    """H# of (inf.155), from all pairs to training pairs: the prediction is z - H# (H# in training)^-1 eps."""
    bare = lambda kind, X: s.outputs[kind] * X  # noqa: E731
    grown = modes.H[:, : modes.count] - modes.l * _stripped(modes, s, bare)
    return rotate_axis(rotate_axis(grown, modes.vectors.T, 0), modes.vectors.T, 1)


def evolved_dntk(modes: NetworkModes, s: Symbols) -> np.ndarray:
    """The dNTK when training stops, in modes."""
    t = slice(modes.count)
    # ddII_01;2a and ddII_02;1a at 0 1 2 a
    moved = modes.ddI[..., t] + modes.ddII[..., t] + modes.ddII[..., t].transpose(0, 2, 1, 3)
    return modes.dH - moved @ (s.f * modes.eps)


def evolved_ntk(modes: NetworkModes, s: Symbols) -> np.ndarray:
    """The NTK when training stops, in modes."""
    t = slice(modes.count)
    step = s.f * modes.eps  # a_a eps_a
    linear = modes.dH[..., t] @ step
    twice = modes.ddI[..., t, t] / 2 + modes.ddII[..., t, t] / 2
    quadratic = np.einsum("pqab,a,b->pq", twice, step, step)
    ordered = s.outputs["A"] * np.multiply.outer(modes.eps, modes.eps)  # c_ab eps_a eps_b
    quadratic += np.einsum("paqb,ab->pq", modes.ddII[:, t, :, t], ordered)
    half = quadratic - linear
    return modes.H + half + half.T
