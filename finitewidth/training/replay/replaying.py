"""Order 1/n for any smooth loss, batches, schedules and momentum: whole tensors, and replays of training.

Squared errors with batches that all networks share have a deterministic mean, and for many inputs one in
samples of neurons; anything else is averaged over drawn initial outputs.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from finitewidth.core.checkpoint import digest
from finitewidth.core.memory import require_memory
from finitewidth.core.methods import Sampling, Tensors, as_method, only
from finitewidth.core.run import Run, runner
from finitewidth.core.tasks import Runner
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.theory.solve import solve_with
from finitewidth.training.first_order.chosen_method import Chosen
from finitewidth.training.first_order.expansion import warn_of
from finitewidth.training.first_order.learning_problem import Problem
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.solver import largest_eigenvalue
from finitewidth.training.replay.averages import Draws, average, draw, gathered, pairs_of_batch
from finitewidth.training.replay.initial_networks import NEEDED, PAIRS, InitialNetworks
from finitewidth.training.replay.mean_predictions import exact_means, mean_of_neurons
from finitewidth.training.replay.replayed import ReplayedPrediction
from finitewidth.training.replay.trajectories import Training

MOST_INPUTS = 48
_PILOT = 512  # pairs
_ROUNDS = 4
_SAFETY = 1.2


def is_replayed(algorithm: AbstractAlgorithm, loss: AbstractLoss) -> bool:
    """Whether order 1/n needs a replay: eigenmodes of the training NTK know the rest."""
    return not (loss.is_squared_error and algorithm.has_symbols)


def predict_by_replay(
    problem: Problem,
    stops: Sequence[AbstractAlgorithm],
    loss: AbstractLoss,
    method: Any,
    run: Run | None,
    *,
    covariance: bool | None = None,
) -> tuple[Prediction | ReplayedPrediction, ...]:
    """Trained networks at one or several stops of one algorithm, through order 1/n."""
    _check(problem, stops, loss)
    loss.check_targets(problem.Y)
    if covariance:
        raise ValueError(
            f"covariance=True is not known {_where(stops[0], loss)}; leave it out: the variance of every "
            "output is there with method=fw.Sampling(), other averages with prediction.expectation."
        )
    last = max(stops, key=lambda stop: stop.end)
    many = problem.count > MOST_INPUTS
    exact = loss.is_squared_error and not (many or last.draws_batches or isinstance(method, Sampling))
    method = as_method(method, (Tensors, Sampling) if exact else (Sampling,), where=_where(last, loss))
    sampling = method if isinstance(method, Sampling) else Sampling()
    if many:
        only(sampling, ("tolerance", "samples", "budget", "key"), _where(last, loss))
    has_skips = problem.net.ladder.has_skips
    tensors = Chosen.of(method if exact else Tensors(), None, problem.count, has_skips=has_skips)

    def described() -> dict:
        ends = [stop.fingerprint() for stop in stops]
        chosen = replace(tensors, method=tensors.method if exact else sampling)
        return {
            **problem.described(chosen),
            "Y_train": digest(problem.Y),
            "loss": repr(loss),
            "stops": ends,
        }

    with runner(run, kind="replay", configuration=described) as running:
        if many:
            return _warned([mean_of_neurons(problem, stop, sampling, running) for stop in stops])
        initial = _initial(running, problem, tensors)
        last.check_stable(largest_eigenvalue(initial.training_ntk), loss)
        ends = tuple(sorted({int(stop.end) for stop in stops}))
        training = Training(last, loss, problem.Y, ends, problem.merged[1])
        if exact:
            found = exact_means(problem, stops, initial.networks, initial.error, training, tensors.method)
        else:
            draws = _drawn(running, initial.networks, training, sampling)
            found = [_record(problem, stop, loss, sampling, initial, draws, ends) for stop in stops]
    return _warned(found)


def _warned(found: Sequence[Prediction | ReplayedPrediction]) -> tuple[Prediction | ReplayedPrediction, ...]:
    """The predictions, after warnings where they are not to be trusted."""
    for prediction in found:
        assert prediction.expansion is not None
        warn_of(prediction.expansion, prediction.condition)
    return tuple(found)


def _where(algorithm: AbstractAlgorithm, loss: AbstractLoss) -> str:
    return f"at order=1 with algorithm={algorithm!r} and loss={loss!r}"


def _check(problem: Problem, stops: Sequence[AbstractAlgorithm], loss: AbstractLoss) -> None:
    for stop in stops:
        check_algorithm(stop, order=1)
        if stop.motion != "steps" or stop.is_finished:
            raise ValueError(
                f"order=1 with loss={loss!r} replays training step by step, got algorithm={stop!r}; use "
                "fw.GradientDescent(learning_rate, steps) with a finite number of steps, or order=0."
            )
        stop.check_batches(len(problem.X))
    if problem.count > MOST_INPUTS:
        _check_many(problem, stops[0], loss)
        return
    tensors, copies = len(NEEDED), 3
    require_memory(
        8 * copies * tensors * problem.count**4,
        f"whole tensors of {problem.count} inputs",
        "pass at most {fit} inputs, training and test together",
        count=problem.count,
        power=4,
    )


def _check_many(problem: Problem, algorithm: AbstractAlgorithm, loss: AbstractLoss) -> None:
    """Refuse many inputs, except where neurons can be drawn along the steps."""
    remedy = f"pass at most {MOST_INPUTS} training and test inputs together, or use order=0"
    if not loss.is_squared_error:
        raise ValueError(
            f"order 1/n with loss={loss!r} needs whole tensors, which {problem.count} inputs are too many "
            f"for; {remedy}."
        )
    if algorithm.draws_batches:
        raise ValueError(
            f"order 1/n of {problem.count} inputs needs batches that all networks share, got "
            f"algorithm={algorithm!r}; use algorithm.fixed({len(problem.X)}, key=0), or {remedy}."
        )
    if problem.net.ladder.has_skips:
        raise ValueError(
            f"order 1/n of {problem.count} inputs with algorithm={algorithm!r} draws neurons, which is for "
            f"dense networks only, and this one has skip connections; {remedy}."
        )


class _Initial:
    """Initial networks with the errors of their statistics."""

    def __init__(self, networks: InitialNetworks, error: float):
        self.networks, self.error = networks, error
        l = np.linalg.eigvalsh(self.training_ntk)
        self.condition = float(l[-1] / l[0]) if l[0] > 0 else np.inf

    @property
    def training_ntk(self) -> np.ndarray:
        count = self.networks.count
        return self.networks.tensors["Theta"][:count, :count]


def _initial(running: Runner, problem: Problem, chosen: Chosen) -> _Initial:
    net = problem.net
    method = chosen.method if isinstance(chosen.method, Tensors) else Tensors()
    theory = solve_with(
        running,
        net,
        problem.merged[0],
        tolerance=method.kernel_tolerance,
        four_leg_tolerance=chosen.tolerance,
        layers=(net.depth,),
        tensors=NEEDED,
        remember=method.remember,
    )
    arrays = theory.output.arrays
    kept = {name: np.asarray(arrays[name]) for name in (*PAIRS, *NEEDED)}
    networks = InitialNetworks.of(kept, len(problem.X), net.outputs)
    return _Initial(networks, max(theory.error, theory.four_leg_error))


# --- other losses -----------------------------------------------------------------------------------


def _drawn(running: Runner, networks: InitialNetworks, training: Training, method: Sampling) -> Draws:
    """Draws until the standard error is small enough, in at most a few rounds."""
    size, key = pairs_of_batch(networks), method.seed
    wanted = _PILOT if method.samples is None else method.samples // 2
    parts: list[dict[str, np.ndarray]] = []
    began, rounds = time.perf_counter(), 0
    while True:
        batches = range(len(parts), max(len(parts) + 1, -(-wanted // size)))
        parts += draw(networks, training, batches, key, running)
        draws = gathered(networks, training, parts)
        _check_finite(draws, training.algorithm)
        if method.samples is not None:
            return draws
        assert method.tolerance is not None
        excess = (
            max(_relative_error(draws, power) for power in (1, 2)[: 1 + method.variance]) / method.tolerance
        )
        rounds += 1
        if excess <= 1 or rounds == _ROUNDS:
            return draws
        wanted = int(_SAFETY * excess**2 * draws.pairs) + 1
        duration = (time.perf_counter() - began) / draws.pairs * wanted
        if duration > method.budget:
            raise ValueError(
                f"a standard error of {method.tolerance:g} of the largest correction needs about "
                f"{2 * wanted} samples and {duration:.0f} seconds, more than budget={method.budget:g}; "
                "raise the budget or the tolerance of fw.Sampling, or stop earlier."
            )


def _relative_error(draws: Draws, power: int) -> float:
    """The rms standard error of the correction of a moment of outputs, over the largest correction."""
    found = average(draws, lambda z: z**power).correction
    largest = np.abs(found.value).max()
    return float(np.sqrt(np.mean(found.stderr**2)) / largest) if largest > 0 else 0.0


def _check_finite(draws: Draws, algorithm: AbstractAlgorithm) -> None:
    if not all(np.isfinite(values).all() for values in (*draws.outputs, draws.cheap_z)):
        raise ValueError(f"algorithm={algorithm!r} diverges in the replay; lower its learning rates.")


def _record(
    problem: Problem,
    stop: AbstractAlgorithm,
    loss: AbstractLoss,
    method: Sampling,
    initial: _Initial,
    draws: Draws,
    ends: tuple[int, ...],
) -> ReplayedPrediction:
    index = ends.index(int(stop.end))
    return ReplayedPrediction(problem.net, stop, loss, method, initial.condition, initial.error, draws, index)
