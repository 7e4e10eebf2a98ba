"""Theory against experiment: pulls in units of standard errors, and control variates."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import as_inputs
from finitewidth.experiment.ensemble.plan import Control
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.statistics import SampledStatistics
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.mlp import MLP
from finitewidth.theory.records import Layer
from finitewidth.training.infinite.fitting import fit
from finitewidth.training.infinite.gaussian import Prediction


@dataclass(frozen=True, eq=False)
class PredictionComparison:
    """(theory - estimate) / standard error of trained outputs on the test inputs."""

    prediction: Prediction = field(repr=False)
    ensemble: Ensemble = field(repr=False)
    pulls: Float[np.ndarray, "M n_L"]  # of the mean, with the control variate where there is one
    covariance_pulls: Float[np.ndarray, "M n_L M n_L"] | None = field(repr=False)

    @property
    def worst(self) -> float:
        """The largest of all pulls in absolute value."""
        parts = [self.pulls] if self.covariance_pulls is None else [self.pulls, self.covariance_pulls]
        return float(max(np.abs(part).max() for part in parts))


@dataclass(frozen=True, eq=False)
class LayerComparison:
    """(theory - estimate) / standard error of the statistics of one layer, by name."""

    layer: int
    pulls: Mapping[str, np.ndarray] = field(repr=False)

    @property
    def worst(self) -> dict[str, float]:
        """The largest pull of each statistic in absolute value."""
        return {name: float(np.abs(pull).max()) for name, pull in self.pulls.items()}


def compare(
    theory: Prediction | Layer, experiment: Ensemble | SampledStatistics
) -> PredictionComparison | LayerComparison:
    """Pulls of a prediction against a trained ensemble, or of a layer against sampled statistics."""
    if isinstance(theory, Prediction) and isinstance(experiment, Ensemble):
        return _compare_prediction(theory, experiment)
    if isinstance(theory, Layer) and isinstance(experiment, SampledStatistics):
        return _compare_layer(theory, experiment)
    raise ValueError(
        "compare takes fw.predict(...) with fw.train_ensemble(...), or a layer of fw.solve(...) with "
        f"fw.sample_statistics(...), got {type(theory).__name__} with {type(experiment).__name__}."
    )


def _compare_prediction(prediction: Prediction, ensemble: Ensemble) -> PredictionComparison:
    if prediction.mean.shape != ensemble.mean.value.shape:
        raise ValueError(
            f"the prediction has {prediction.mean.shape} test outputs but the ensemble "
            f"{ensemble.mean.value.shape}; use the same X_test for both."
        )
    mean = ensemble.mean if ensemble.controlled is None else ensemble.controlled.mean
    covariance = None
    if prediction.factors is not None:
        covariance = pulls_of(prediction.covariance, ensemble.covariance)
    return PredictionComparison(prediction, ensemble, pulls_of(prediction.mean, mean), covariance)


def _compare_layer(layer: Layer, sampled: SampledStatistics) -> LayerComparison:
    if layer.index != sampled.layer:
        raise ValueError(f"theory is of layer {layer.index} but layer {sampled.layer} was sampled.")
    theory = {name: getattr(layer, name) for name in sampled.estimates}
    return LayerComparison(
        layer.index, {name: pulls_of(theory[name], found) for name, found in sampled.estimates.items()}
    )


def pulls_of(theory: np.ndarray, estimate: Estimate) -> np.ndarray:
    """(theory - estimate) / standard error; zero where both agree and nothing fluctuates."""
    gap = theory - estimate.value
    with np.errstate(divide="ignore", invalid="ignore"):
        pulls = gap / estimate.stderr
    return np.where((estimate.stderr == 0) & (np.abs(gap) <= 1e-12 * np.abs(theory).max()), 0.0, pulls)


def control_variate(net: MLP, X_train, Y_train, X_test, algorithm: AbstractAlgorithm) -> Control:
    """What infinitely wide networks keep of a member's initial outputs, whose exact mean is zero.

    For `fw.train_ensemble(control=...)`: much of what differs between members is there at the start.
    """
    fitted = fit(net, X_train, Y_train, algorithm=algorithm)
    X = np.concatenate([fitted.X, as_inputs(X_test, net.widths[0], name="X_test")])
    return Control(_Kept(fitted.gain(X)), np.zeros((X.shape[0], net.widths[-1])))


@dataclass(frozen=True, eq=False)
class _Kept:
    """z - Theta F z of the training samples; picklable, so that clusters can have it."""

    gain: np.ndarray  # (N, N_A)

    # equal gains are one control: what was compiled for one serves the other
    def __eq__(self, other) -> bool:
        return isinstance(other, _Kept) and np.array_equal(self.gain, other.gain)

    def __hash__(self) -> int:
        return hash((self.gain.shape, self.gain.tobytes()))

    def __call__(self, z):
        return z - self.gain @ z[: self.gain.shape[1]]
