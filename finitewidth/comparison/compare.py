"""Theory against experiment: differences in units of standard errors (pulls), and control variates."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.experiment.ensemble.plan import Control
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.statistics import SampledStatistics
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.network import Network
from finitewidth.theory.records import Layer
from finitewidth.training.infinite.fitting import fit
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.replay.replayed import ReplayedPrediction


@shown("worst", "pulls", "covariance_pulls", dimensions={"pulls": "sample output"})
@dataclass(frozen=True, eq=False)
class PredictionComparison:
    """Pulls, (theory - estimate) / standard error, of trained outputs on the test inputs."""

    prediction: Prediction | ReplayedPrediction = field(repr=False)
    ensemble: Ensemble = field(repr=False)
    pulls: Float[np.ndarray, "M n_L"]  # of the mean, with the control variate where there is one
    covariance_pulls: Float[np.ndarray, "M n_L M n_L"] | None = field(repr=False)

    @property
    def deviations(self) -> Float[np.ndarray, "M n_L"]:
        """Of the mean, in units of the standard error and what order 1/n neglects together."""
        mean, prediction = self.ensemble.best_mean, self.prediction
        whole = np.hypot(np.hypot(mean.stderr, prediction.stderr), prediction.uncertainty)
        return pulls_of(prediction.mean, Estimate(mean.value, whole))

    @property
    def worst(self) -> float:
        """The largest absolute value of all pulls."""
        parts = [self.pulls] if self.covariance_pulls is None else [self.pulls, self.covariance_pulls]
        return float(max(np.abs(part).max() for part in parts))


@shown("worst", "layer")
@dataclass(frozen=True, eq=False)
class LayerComparison:
    """Pulls, (theory - estimate) / standard error, of the statistics of one layer, by name."""

    layer: int
    pulls: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def worst(self) -> dict[str, float]:
        """The largest absolute value of the pulls of each statistic."""
        return {name: float(np.abs(pull).max()) for name, pull in self.pulls.items()}


def compare(
    theory: Prediction | ReplayedPrediction | Layer, experiment: Ensemble | SampledStatistics
) -> PredictionComparison | LayerComparison:
    """Pulls of a prediction against a trained ensemble, or of a layer against sampled statistics.

    Args:
        theory: A result of `fw.predict`, or a layer of `fw.solve`.
        experiment: A result of `fw.train_ensemble`, or of `fw.sample_statistics`, for the same network and
            inputs.

    Returns:
        `pulls`, which are (theory - estimate) / standard error, and the `worst` of them.

    ```python
    sampled = fw.sample_statistics(net, X, members=400, key=0, tensors=("V",))
    fw.compare(fw.solve(net, X, tensors=("V",)).output, sampled).worst
    ```
    """
    if isinstance(theory, Prediction | ReplayedPrediction) and isinstance(experiment, Ensemble):
        return _compare_prediction(theory, experiment)
    if isinstance(theory, Layer) and isinstance(experiment, SampledStatistics):
        return _compare_layer(theory, experiment)
    raise ValueError(
        "compare takes fw.predict(...) with fw.train_ensemble(...), or a layer of fw.solve(...) with "
        f"fw.sample_statistics(...), got {type(theory).__name__} with {type(experiment).__name__}."
    )


def _compare_prediction(
    prediction: Prediction | ReplayedPrediction, ensemble: Ensemble
) -> PredictionComparison:
    if prediction.mean.shape != ensemble.mean.value.shape:
        raise ValueError(
            f"the prediction has {prediction.mean.shape} test outputs but the ensemble "
            f"{ensemble.mean.value.shape}; use the same X_test for both."
        )
    mean = ensemble.best_mean
    covariance = None
    if isinstance(prediction, Prediction) and prediction.factors is not None:
        covariance = pulls_of(prediction.covariance, ensemble.best_covariance)
    both = Estimate(mean.value, np.hypot(mean.stderr, prediction.stderr))  # theory may be sampled too
    return PredictionComparison(prediction, ensemble, pulls_of(prediction.mean, both), covariance)


def _compare_layer(layer: Layer, sampled: SampledStatistics) -> LayerComparison:
    if layer.index != sampled.layer:
        raise ValueError(
            f"theory is of layer {layer.index} but layer {sampled.layer} was sampled; compare the same layer."
        )
    pulls = {name: pulls_of(getattr(layer, name), estimate) for name, estimate in sampled.estimates.items()}
    return LayerComparison(layer.index, pulls)


def pulls_of(theory: np.ndarray, estimate: Estimate) -> np.ndarray:
    """(theory - estimate) / standard error; zero where the two agree and the estimate has no error."""
    gap = theory - estimate.value
    with np.errstate(divide="ignore", invalid="ignore"):
        pulls = gap / estimate.stderr
    return np.where((estimate.stderr == 0) & (np.abs(gap) <= 1e-12 * np.abs(theory).max()), 0.0, pulls)


def control_variate(
    net: Network, X_train: ArrayLike, Y_train: ArrayLike, X_test: ArrayLike, algorithm: AbstractAlgorithm
) -> Control:
    """A control variate for `fw.train_ensemble(control=...)`: z - Theta F z, whose exact mean is zero.

    It is the part of the initial outputs z that training would keep at infinite width. Members differ mostly
    by this part, so that subtracting it leaves a smaller variance.

    Args:
        net: The network.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0).
        algorithm: The algorithm that will train the ensemble.

    Returns:
        The argument `control` of `fw.train_ensemble`.

    ```python
    descent = fw.GradientDescent(0.1, steps=20)
    control = fw.control_variate(net, X, Y, X_test, descent)
    ensemble = fw.train_ensemble(
        net, X, Y, X_test, algorithm=descent, members=50, key=0, control=control
    )
    ensemble.controlled.mean.stderr
    ```
    """
    fitted = fit(net, X_train, Y_train, algorithm=algorithm)
    X = np.concatenate([fitted.X, as_inputs(X_test, net.input_shape, name="X_test")])
    return Control(_Kept(fitted.gain(X)), np.zeros((X.shape[0], net.outputs)), linear=True)


@dataclass(frozen=True, eq=False)
class _Kept:
    """z - Theta F z, where F z takes the training samples only; a class, because classes can be pickled."""

    gain: np.ndarray  # (N, N_A)

    # controls with equal gains are equal, so that JAX compiles them once
    def __eq__(self, other) -> bool:
        return isinstance(other, _Kept) and np.array_equal(self.gain, other.gain)

    def __hash__(self) -> int:
        return hash((self.gain.shape, self.gain.tobytes()))

    def __call__(self, z):
        return z - self.gain @ z[: self.gain.shape[1]]
