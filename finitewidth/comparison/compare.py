"""Theory against experiment: differences in units of standard errors (pulls)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.statistics import SampledStatistics
from finitewidth.theory.records import Layer
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.replay.replayed import AtInfiniteWidth, ReplayedPrediction

Trained = Prediction | ReplayedPrediction | AtInfiniteWidth


@shown("worst", "pulls", "covariance_pulls", dimensions={"pulls": "sample output"})
@dataclass(frozen=True, eq=False)
class PredictionComparison:
    """Pulls, (theory - estimate) / standard error, of trained outputs on the test inputs."""

    prediction: Trained = field(repr=False)
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
    def variance_pulls(self) -> Float[np.ndarray, "M n_L"] | None:
        """Of the variances of all outputs; None where theory has none."""
        if not self.prediction.gives_variance:
            return None
        variance = Estimate(*(np.einsum("aiai->ai", part) for part in self.ensemble.best_covariance))
        stderr = np.hypot(variance.stderr, self.prediction.variance_stderr)
        return pulls_of(self.prediction.variance, Estimate(variance.value, stderr))

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
    theory: Trained | Layer, experiment: Ensemble | SampledStatistics
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
    if isinstance(theory, Trained) and isinstance(experiment, Ensemble):
        return _compare_prediction(theory, experiment)
    if isinstance(theory, Layer) and isinstance(experiment, SampledStatistics):
        return _compare_layer(theory, experiment)
    raise ValueError(
        "compare takes fw.predict(...) with fw.train_ensemble(...), or a layer of fw.solve(...) with "
        f"fw.sample_statistics(...), got {type(theory).__name__} with {type(experiment).__name__}."
    )


def _compare_prediction(prediction: Trained, ensemble: Ensemble) -> PredictionComparison:
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
