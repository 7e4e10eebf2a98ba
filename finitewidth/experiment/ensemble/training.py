"""Real networks trained by the thousand: means, covariances and their standard errors."""

import functools
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.core.checkpoint import digest
from finitewidth.core.display.progress import Progress
from finitewidth.core.inputs import as_count, as_inputs, as_number, as_targets
from finitewidth.core.keys import as_key
from finitewidth.core.memory import require_memory
from finitewidth.core.precision import require_double_precision
from finitewidth.core.programs import keep_programs
from finitewidth.core.tasks import Runner, runner
from finitewidth.experiment.ensemble import checkpoint
from finitewidth.experiment.ensemble.batch import bytes_of_one, train_batch
from finitewidth.experiment.ensemble.plan import (
    MAX_STEPS,
    Control,
    Plan,
    record_points,
    stopping_error,
)
from finitewidth.experiment.ensemble.results import Ensemble, to_xarray
from finitewidth.experiment.ensemble.trainer import AbstractTrainer
from finitewidth.experiment.ensemble.trainers import trainer_of
from finitewidth.experiment.partition import AT_ONCE, MEMORY_BUDGET, Partition, partition
from finitewidth.experiment.sampling import real_network
from finitewidth.experiment.streaming import Gathered, Moments, merge
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, as_algorithm
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network

LEAST_BATCHES = 16  # so that progress shows, and workers find work
MATRICES = 9  # between all outputs, for each record: moments, a covariance with its error, and merging
ARITHMETIC = 4  # counts changes of the order of sums, after which batches in a store have other last bits


class DivergenceWarning(UserWarning):
    """Some members diverged; they are counted, and left out of the estimates.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.DivergenceWarning)
        # fw.train_ensemble(...).diverged has their number
    ```
    """


@takes_models
def train_ensemble(
    net: Network,
    X_train,
    Y_train,
    X_test,
    *,
    algorithm: AbstractAlgorithm,
    members: int,
    key,
    loss: AbstractLoss = MSE(),
    training_error: float | None = None,
    record_at: Sequence[float] = (),
    ntk: bool = False,
    kernels: bool = False,
    control: Control | None = None,
    tolerance: float = 1e-8,
    max_steps: int = MAX_STEPS,
    batch_size: int | None = None,
    memory: float = MEMORY_BUDGET,
    store: str | Path | None = None,
    keep_members: bool = False,
    client: Any = None,
    progress: Progress = None,
) -> Ensemble:
    """Train real networks and estimate the distribution of their outputs.

    Members are a fixed partition into batches, which run on the JAX devices of this process or on a cluster.
    The result is the same to the last bit, also of a run that was killed and continued.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0).
        algorithm: How and how long networks are trained.
        members: The number of networks.
        key: The randomness, a number or a key of JAX: the same key gives the same networks.
        loss: The loss.
        training_error: A member stops when its loss is within this of the smallest possible loss. Endless
            training always ends in this way, by default at 1e-12 of the scale of the loss.
        record_at: Steps or times at which outputs and loss are recorded beside the end.
        ntk: Whether to record the NTK too.
        kernels: Whether to record the kernels of hidden layers too.
        control: A control variate, such as that of `fw.control_variate`.
        tolerance: The tolerance of gradient flow.
        max_steps: The most updates of endless training.
        batch_size: Members of a batch; chosen from `memory` by default.
        memory: A bound on the memory of a batch, in bytes.
        store: A path that ends in .zarr, which keeps finished batches: a run that was killed continues there.
        keep_members: Whether the store keeps the outputs of every member.
        client: A Dask client that trains the batches.
        progress: True or False for a bar (by default on a terminal), or a function of two numbers, the
            trained members and all of them.

    Returns:
        A record whose `mean` and `covariance` are estimates with `value` and `stderr`.

    ```python
    ensemble = fw.train_ensemble(
        net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, steps=20), members=50, key=0, progress=False
    )
    ensemble.mean.value, ensemble.mean.stderr
    ```
    """
    require_double_precision()
    keep_programs()
    X_train = as_inputs(X_train, net.input_shape, name="X_train")
    X_test = as_inputs(X_test, net.input_shape, name="X_test")
    Y = as_targets(Y_train, len(X_train), net.outputs)
    algorithm, loss = as_algorithm(algorithm), as_loss(loss)
    loss.check_targets(Y)
    X = np.concatenate([X_train, X_test])
    _check_options(algorithm, loss, net, len(X_train), tolerance, max_steps)
    floor, trainer = loss.smallest(Y), trainer_of(algorithm)
    plan = Plan(
        net,
        algorithm,
        loss,
        len(X_train),
        record_points(algorithm.end, record_at, counts_steps=trainer.counts_steps),
        stopping_error(algorithm.end, training_error, floor, Y),
        float(tolerance),
        int(max_steps),
        bool(ntk),
        bool(kernels),
        None if control is None else control.function,
        control is not None and control.linear and net.readout is not None,
        floor,
    )
    control = _checked_control(control, len(X), net.outputs)
    parts = partition(
        members, batch_size, memory=memory, of_one=bytes_of_one(plan, len(X)), least_batches=LEAST_BATCHES
    )
    _require_room(len(X), net.outputs, len(plan.points))
    key_data = np.asarray(jax.random.key_data(as_key(key)))
    if keep_members and store is None:
        raise ValueError("keep_members needs a store to keep them in; add store='ensemble.zarr'.")
    work = functools.partial(train_batch, plan, X, Y, parts, key_data, bool(keep_members))
    configuration = _configuration(
        plan, X, Y, parts, key_data, control, keep_members, written=store is not None
    )
    with runner(client, store, progress, kind="ensemble", configuration=lambda: configuration) as running:
        total = _total(work, parts, running)
        _judge(total, plan, parts, X, key_data)
        kept = store if keep_members else None
        ensemble = Ensemble.from_moments(plan, X, Y, parts.members, total, control, configuration, store=kept)
        if running.store is not None:
            checkpoint.write_results(running.store, to_xarray(ensemble))
    _warn_of_divergence(ensemble, trainer)
    return ensemble


# --- batches, merged in order -------------------------------------------------------------------------


def _total(work, parts: Partition, running: Runner) -> dict[str, Any]:
    results = running.results(
        work,
        parts.batches,
        name="batches",
        what="training networks",
        at_once=AT_ONCE,
        size=parts.size,
        to_arrays=checkpoint.flattened,
        from_arrays=checkpoint.restored,
        aside=functools.partial(checkpoint.keep_members, parts),
    )
    total: dict[str, Any] = {}
    outputs = Gathered()
    for batch in results:
        outputs = outputs.joined(batch.pop("outputs"))
        total = _merged(total, batch)
    return total | {"outputs": outputs.total()}


def _merged(total: dict[str, Any], batch: dict[str, Any]) -> dict[str, Any]:
    return {name: _merged_value(total[name], value) if total else value for name, value in batch.items()}


def _merged_value(first, second):
    return merge(first, second) if isinstance(first, Moments) else first + second


# --- members that diverged ----------------------------------------------------------------------------


def _judge(total: dict[str, Any], plan: Plan, parts: Partition, X: np.ndarray, key_data: np.ndarray) -> None:
    if total["diverged"] < parts.members:
        return
    raise ValueError(trainer_of(plan.algorithm).failure(plan, parts.members, X, key_data))


def _warn_of_divergence(ensemble: Ensemble, trainer: AbstractTrainer) -> None:
    if ensemble.diverged:
        remedy = f"; {trainer.remedy}" if trainer.remedy else ""
        warnings.warn(
            f"{ensemble.diverged} of {ensemble.members} members diverged and are not in the estimates"
            f"{remedy}.",
            DivergenceWarning,
            stacklevel=3,
        )
    short = ensemble.unfinished and (math.isinf(ensemble.points[-1]) or not trainer.counts_steps)
    if short:  # a given number of steps is an end like any other
        warnings.warn(
            f"{ensemble.unfinished} of {ensemble.members} members did not come to the end in max_steps "
            "steps; they are in the estimates as they are: raise max_steps, the learning rate or "
            "training_error.",
            UnfinishedWarning,
            stacklevel=3,
        )


class UnfinishedWarning(UserWarning):
    """Some members were stopped before they came to the end.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", fw.warnings.UnfinishedWarning)  # stop at it
        # fw.train_ensemble(..., max_steps=...) warns
    ```
    """


# --- checks and configuration -------------------------------------------------------------------------


def _require_room(inputs: int, outputs: int, records: int) -> None:
    require_memory(
        8 * MATRICES * records * (inputs * outputs) ** 2,
        f"the covariance of {outputs} outputs on {inputs} inputs at {records} points of training",
        "use {fit} inputs or fewer, or fewer record_at",
        count=inputs,
        power=2,
    )


def _check_options(algorithm, loss, net: Network, count: int, tolerance, max_steps) -> None:
    if net.discontinuous is not None:
        raise ValueError(
            f"activation {net.discontinuous.name!r} cannot be trained by gradients, since its derivative is "
            "a delta function; use a continuous activation."
        )
    real_network(net).check_fixed()
    if trainer_of(algorithm).needs_squared_error and not loss.is_squared_error:
        raise ValueError(
            f"algorithm {algorithm} is for MSE(), got loss {loss}; use GradientDescent or GradientFlow."
        )
    algorithm.check_batches(count)
    if not 1e-14 <= as_number(tolerance) <= 0.1:
        raise ValueError(f"tolerance must be a number from 1e-14 to 0.1, got {tolerance!r}; use 1e-8.")
    as_count("max_steps", max_steps, lowest=1)


def _checked_control(control: Control | None, count: int, width: int) -> Control | None:
    if control is None:
        return None
    mean = np.asarray(control.mean, dtype=np.float64)
    try:
        mean = np.broadcast_to(mean, (count, width))
        taken = jax.eval_shape(control.function, jax.ShapeDtypeStruct((count, width), jnp.float64))
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"control does not fit outputs of shape {(count, width)} ({reason}).") from None
    if taken.shape != (count, width) or not np.isfinite(mean).all():
        raise ValueError(
            f"control must take outputs {(count, width)} to that shape and have a finite mean, "
            f"got {taken.shape}."
        )
    if control.linear and mean.any():
        raise ValueError(
            "control is linear in initial outputs, whose mean is zero, but its mean is not; use mean=0.0."
        )
    return control._replace(mean=mean)


def _configuration(plan: Plan, X, Y, parts: Partition, key_data, control, keep, *, written: bool) -> dict:
    """Everything that the result depends on, as plain values."""
    try:
        network = plan.net.to_dict()
    except ValueError:  # an activation of the user's cannot be written down
        if written:
            raise
        network = {"network": repr(plan.net)}
    return {
        "network": network,
        "arithmetic": ARITHMETIC,
        "algorithm": plan.algorithm.fingerprint(),
        "loss": repr(plan.loss),
        "members": parts.members,
        "key": key_data.tolist(),
        "batch_size": parts.batch_size,
        "points": [repr(point) for point in plan.points],
        "training_error": plan.training_error,
        "tolerance": plan.tolerance,
        "max_steps": plan.max_steps,
        "ntk": plan.ntk,
        "kernels": plan.kernels,
        "keep_members": bool(keep),
        "X_train": digest(X[: plan.train_count]),
        "Y_train": digest(Y),
        "X_test": digest(X[plan.train_count :]),
        "control": None if control is None else _control_digest(control, X.shape[0], Y.shape[1]),
    }


def _control_digest(control: Control, count: int, width: int) -> str:
    """A function is known by its values at some outputs."""
    probe = np.random.default_rng(0).standard_normal((count, width))
    values = digest(np.asarray(control.function(jnp.asarray(probe)))) + digest(np.asarray(control.mean))
    return values + ("linear" if control.linear else "")
