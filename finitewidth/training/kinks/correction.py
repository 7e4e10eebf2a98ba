r"""The first correction of trained networks with kinks, of order $n^{-1/2}$, for users."""

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_count, as_inputs, merge_inputs
from finitewidth.core.keys import as_seed
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, as_algorithm
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.network import Network
from finitewidth.theory.ratios import Verdict
from finitewidth.training.infinite.fitting import checked_data, fit
from finitewidth.training.kinks.gates import GatedLayer, gated_layers
from finitewidth.training.kinks.shifts import KinkedTraining, mean_shift

DEEPEST = 3  # hidden layers, up to which real networks were compared
_NEXT = 27.0  # over sqrt(n): the largest next term relative to this one that was measured
_PARALLEL = 1e-6  # 1 - |correlation| of two inputs below which gates are not independent


@shown("n", "coefficient", "verdict", "reading", "net")
@dataclass(frozen=True, eq=False)
class KinkCorrection:
    """The mean of trained networks with kinks through order n^(-1/2), the first term of a slow series.

    `fw.kink_correction` makes it.

    ```python
    net = fw.MLP((2, 256, 1), "relu", C_W=2.0)
    first = fw.kink_correction(net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, steps=5), points=64)
    first.coefficient.value, first.verdict
    ```
    """

    net: Network
    algorithm: AbstractAlgorithm  # how it is trained
    infinite_width: Float[np.ndarray, "M n_L"]  # the mean of infinitely wide networks
    layers: tuple[Estimate, ...] = field(repr=False)  # the coefficient by hidden layer, (M, n_L) each

    @property
    def n(self) -> int:
        """The width n_{L-1} that the series is in."""
        return self.net.widths[-2]

    @property
    def coefficient(self) -> Estimate:
        """Of n^(-1/2) in the mean outputs, (M, n_L), with the error of the points that were drawn."""
        value = np.sum([one.value for one in self.layers], axis=0)
        return Estimate(value, np.sqrt(np.sum([one.stderr**2 for one in self.layers], axis=0)))

    @property
    def mean(self) -> Estimate:
        """Mean outputs with this term and no other, (M, n_L); errors leave out what is neglected."""
        value, stderr = self.coefficient
        return Estimate(self.infinite_width + value / math.sqrt(self.n), stderr / math.sqrt(self.n))

    @property
    def verdict(self) -> Verdict:
        """Never "trusted": the next term is "doubtful" beyond widths of about a thousand, else larger."""
        return "doubtful" if self.n > _NEXT**2 else "meaningless"

    @property
    def reading(self) -> str:
        """What this number is, in one sentence."""
        return (
            "the first term of a slow series: the next one was measured to be 3 to 27 times it over sqrt(n), "
            f"here up to {_NEXT / math.sqrt(self.n):.2g} times; fw.extrapolate has the mean at a width"
        )


@takes_models
def kink_correction(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike | None = None,
    *,
    algorithm: AbstractAlgorithm,
    points: int = 512,
    key=0,
) -> KinkCorrection:
    r"""The coefficient of n^(-1/2) in the mean outputs of trained networks whose activations have a kink.

    Order 1/n does not exist for relu: neurons that cross their kink in training, a fraction $n^{-1/2}$ of
    them, change outputs and NTK before it. This is the average over one such neuron, of networks with one to
    three hidden layers, each relu, leaky relu, another pair of straight lines, or linear. It says how
    networks approach infinite width, and is no useful correction at widths below about a thousand.

    Args:
        net: A network of dense layers with Gaussian weights, or a model that `fw.network_of` reads.
        X_train: Training inputs (N, n_0), none parallel to another or to a test input.
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0); the training inputs by default.
        algorithm: `fw.GradientFlow` or `fw.GradientDescent` with a number of steps.
        points: Neurons drawn in each of eight sets, for each layer and input, best a power of 2; the error
            falls nearly as their number.
        key: The randomness.

    Returns:
        An `fw.records.KinkCorrection` with `coefficient`, `mean` and a `verdict` that is never "trusted".

    ```python
    net = fw.MLP((2, 256, 1), "relu", C_W=2.0)
    fw.kink_correction(net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, steps=5), points=64).coefficient
    ```
    """
    algorithm = _checked(net, as_algorithm(algorithm))
    count = int(as_count("points", points, lowest=2))
    X, Y = checked_data(net, X_train, Y_train)
    tests = X if X_test is None else as_inputs(X_test, net.input_shape, name="X_test")
    together, places = merge_inputs(np.concatenate([X, tests]), keep=len(X))
    algorithm_fit = fit(net, X, Y, algorithm=algorithm)  # refuses what no training ends with
    layers, output = gated_layers(net, together)
    _refuse_parallel(layers[0])
    assert algorithm.clock is not None
    training, seed = KinkedTraining.of(output, Y, algorithm.clock), as_seed(key)
    rows = places[len(X) :]
    shifts = [
        mean_shift(training, layer, count, (*seed, l)) for l, layer in enumerate(layers) if layer.has_kink
    ]
    parts = tuple(Estimate(one.value[rows], one.stderr[rows]) for one in shifts)
    return KinkCorrection(net, algorithm, algorithm_fit.mean(tests), parts)


def _checked(net: Network, algorithm: AbstractAlgorithm) -> AbstractAlgorithm:
    if net.not_dense is not None or net.has_orthogonal_weights:
        what = net.not_dense or "orthogonal weights"
        raise ValueError(
            f"the order n^(-1/2) is known for dense layers with Gaussian weights, not with the {what} of "
            "this network; use fw.extrapolate."
        )
    if not 1 <= net.depth - 1 <= DEEPEST:
        raise ValueError(
            f"net must have 1 to {DEEPEST} hidden layers, got {net.depth - 1}; use fw.extrapolate for others."
        )
    if net.is_smooth or not all(one.is_scale_invariant for one in net.activations):
        raise ValueError(
            f"activation {net.activation_name!r} is not made of two straight lines with a kink at zero; the "
            "order n^(-1/2) is known for relu and leaky_relu."
        )
    clock = algorithm.clock
    if clock is None or (clock.eta and clock.has_converged):
        raise ValueError(
            f"algorithm={algorithm!r} is not followed from step to step; use fw.GradientFlow, or "
            "fw.GradientDescent(learning_rate, steps) with a number of steps and one rate."
        )
    return algorithm


def _refuse_parallel(layer: GatedLayer) -> None:
    lengths = np.sqrt(layer.K.diagonal())
    correlation = np.abs(layer.K / np.outer(lengths, lengths)) - np.eye(len(layer.K))
    if np.any(lengths == 0) or correlation.max(initial=0.0) > 1 - _PARALLEL:
        raise ValueError(
            "two inputs are parallel or one is zero, where gates of neurons are not independent; drop one of "
            "them, or set C_b above zero."
        )
