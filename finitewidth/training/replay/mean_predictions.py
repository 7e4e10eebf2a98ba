"""Predictions of the mean for the squared error: exact from whole tensors, or in samples of neurons."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from finitewidth.core.methods import Sampling
from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.squared_error import MSE
from finitewidth.theory.kernels import kernels
from finitewidth.training.first_order.expansion import judged
from finitewidth.training.first_order.learning_problem import Problem
from finitewidth.training.first_order.mean_and_covariance import Corrections
from finitewidth.training.first_order.standard_errors import sampling_of
from finitewidth.training.infinite.fitting import fit
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.neglected.places import places_of
from finitewidth.training.neglected.truncation import truncation_of_replay
from finitewidth.training.replay.initial_networks import InitialNetworks
from finitewidth.training.replay.polynomial_mean import mean_of_squared_error
from finitewidth.training.replay.sampled_neurons import SteppedTraining, sampled_mean
from finitewidth.training.replay.trajectories import Training


def exact_means(
    problem: Problem,
    stops: Sequence[AbstractAlgorithm],
    networks: InitialNetworks,
    error: float,
    training: Training,
    method: Any,
) -> list[Prediction]:
    """Means with all contributions, without samples."""
    masks = training.algorithm.masks(len(problem.X))
    corrections = mean_of_squared_error(networks, training, masks)
    del corrections["output_with_ntk"]  # it has no mean
    found = []
    for stop in stops:
        at = training.ends.index(int(stop.end))
        parts = {name: part[at] for name, part in corrections.items()}
        prediction = _with_parts(problem, stop, parts, error)
        K, Theta = (networks.tensors[name] for name in ("K", "Theta"))
        found.append(_judged(problem, replace(prediction, method=method), K, Theta))
    return found


def mean_of_neurons(
    problem: Problem, stop: AbstractAlgorithm, method: Sampling, running: Runner
) -> Prediction:
    """The mean in samples of neurons, for any number of inputs."""
    X, rows = problem.merged
    both = kernels(problem.net, X)
    training, H1, error = SteppedTraining.of(problem.net, X, problem.Y, stop, both)
    stop.check_stable(float(training.l[-1]), MSE())
    here = replace(running, prefix=f"stop_{int(stop.end)}_")
    parts, sampled = sampled_mean(training, H1, rows, method, here)
    prediction = _with_parts(problem, stop, parts, error)
    errors = sampling_of(Corrections(dict(parts), sampled=sampled), problem.net.ladder.widths[-2])
    prediction = replace(prediction, sampling=errors, method=method)
    assert both.Theta is not None  # the activation is smooth
    return _judged(problem, prediction, both.K, both.Theta)


def _with_parts(
    problem: Problem, stop: AbstractAlgorithm, corrections: Mapping[str, np.ndarray], error: float
) -> Prediction:
    """Infinite width and n times the corrections to the mean."""
    X, rows = problem.merged
    infinite = fit(problem.net, problem.X, problem.Y, algorithm=stop).predict(X[rows])
    n = problem.net.ladder.widths[-2]
    parts = {name: part / n for name, part in corrections.items()}
    return replace(
        infinite,
        order=1,
        mean=infinite.mean + sum(parts.values()),
        factors=None,
        error=max(infinite.error, error),
        contributions=parts,
        leading=infinite,
    )


def _judged(problem: Problem, prediction: Prediction, K: np.ndarray, Theta: np.ndarray) -> Prediction:
    """The same with what it neglects."""
    count, rows = len(problem.X), problem.merged[1]
    neglected = truncation_of_replay(prediction, float(np.sqrt(np.mean(problem.Y**2))))
    places = places_of(Theta, np.arange(count), rows)
    return judged(prediction, neglected, problem.Y, float(np.diag(K)[:count].max()), places)
