"""Real networks trained by the thousand: means, covariances and their standard errors."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from finitewidth.core import methods
from finitewidth.core.checkpoint import digest
from finitewidth.core.display.user_warnings import warn
from finitewidth.core.inputs import ArrayLike, as_inputs, as_targets
from finitewidth.core.keys import as_key
from finitewidth.core.memory import require_memory
from finitewidth.core.methods import as_method
from finitewidth.core.precision import require_double_precision
from finitewidth.core.programs import keep_programs
from finitewidth.core.run import Run, as_run, runner
from finitewidth.core.tasks import Runner
from finitewidth.experiment.ensemble import checkpoint
from finitewidth.experiment.ensemble.batch import bytes_of_one, train_batch
from finitewidth.experiment.ensemble.plan import Control, Plan, Record, Stepping, stopping_error
from finitewidth.experiment.ensemble.results import Ensemble, to_xarray
from finitewidth.experiment.ensemble.trainer import AbstractTrainer
from finitewidth.experiment.ensemble.trainers import trainer_of
from finitewidth.experiment.partition import AT_ONCE, Partition, partition
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
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike,
    *,
    algorithm: AbstractAlgorithm,
    members: int,
    key: Any,
    loss: AbstractLoss = MSE(),
    record: Record | None = None,
    control: Control | None = None,
    method: Stepping | None = None,
    run: Run | None = None,
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
        record: What to record beside outputs and loss at the end, an `fw.Record`.
        control: A control variate, such as that of `fw.control_variate`.
        method: How members are stepped, an `fw.Stepping`.
        run: Store, cluster, progress and size of batches, an `fw.Run`.

    Returns:
        A record whose `mean` and `covariance` are estimates with `value` and `stderr`.

    ```python
    descent = fw.GradientDescent(0.1, steps=20)
    ensemble = fw.train_ensemble(net, X, Y, X_test, algorithm=descent, members=50, key=0)
    ensemble.mean.value, ensemble.mean.stderr
    ```
    """
    require_double_precision()
    keep_programs()
    X_train = as_inputs(X_train, net.input_shape, name="X_train")
    X_test = as_inputs(X_test, net.input_shape, name="X_test")
    Y = as_targets(Y_train, len(X_train), net.outputs)
    X = np.concatenate([X_train, X_test])
    algorithm, loss, run = as_algorithm(algorithm), as_loss(loss), as_run(run, batches=True)
    loss.check_targets(Y)
    record = _as_record(record)
    stepping = as_method(method, (Stepping,), where="in fw.train_ensemble") or Stepping()
    _check_options(algorithm, loss, net, len(X_train), record, stepping, run)
    plan = _plan(net, algorithm, loss, len(X_train), Y, record, stepping, control)
    control = _checked_control(control, len(X), net.outputs)
    parts = partition(members, run, of_one=bytes_of_one(plan, len(X)), least_batches=LEAST_BATCHES)
    _require_room(len(X), net.outputs, len(plan.points))
    key_data = np.asarray(jax.random.key_data(as_key(key)))
    work = functools.partial(train_batch, plan, X, Y, parts, key_data, record.members)
    configuration = _configuration(
        plan, X, Y, parts, key_data, control, record.members, written=run.store is not None
    )
    with runner(run, kind="ensemble", configuration=lambda: configuration, batches=True) as running:
        total = _total(work, parts, running)
        _judge(total, plan, parts, X, key_data)
        kept = run.store if record.members else None
        ensemble = Ensemble.from_moments(plan, X, Y, parts.members, total, control, configuration, store=kept)
        if running.store is not None:
            checkpoint.write_results(running.store, to_xarray(ensemble))
    _warn_of_divergence(ensemble, trainer_of(algorithm))
    return ensemble


def _plan(
    net: Network,
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss,
    train_count: int,
    Y: np.ndarray,
    record: Record,
    stepping: Stepping,
    control: Control | None,
) -> Plan:
    floor = loss.smallest(Y)
    return Plan(
        net,
        algorithm,
        loss,
        train_count,
        record.points(algorithm.end, counts_steps=trainer_of(algorithm).counts_steps),
        stopping_error(algorithm.end, stepping.training_error, floor, Y),
        float(stepping.tolerance),
        int(stepping.max_steps),
        bool(record.ntk),
        bool(record.kernels),
        None if control is None else control.function,
        control is not None and control.linear and net.readout is not None,
        floor,
    )


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
        warn(
            f"{ensemble.diverged} of {ensemble.members} members diverged and are not in the estimates"
            f"{remedy}{_without_mean(ensemble.net)}.",
            DivergenceWarning,
        )
    short = ensemble.unfinished and (math.isinf(ensemble.points[-1]) or not trainer.counts_steps)
    if short:  # a given number of steps is an end like any other
        warn(
            f"{ensemble.unfinished} of {ensemble.members} members did not come to the end in max_steps "
            "steps; they are in the estimates as they are: raise max_steps, the learning rate or "
            "training_error.",
            UnfinishedWarning,
        )


def _without_mean(net: Network) -> str:
    """What rare members that diverge at every learning rate mean for estimates."""
    steep = net.grows_faster_than_linearly
    if steep is None:
        return ""
    return (
        f". A mean over all networks does not exist: activation {steep.name!r} grows faster than its "
        "argument, so that rare members diverge at every learning rate, and estimates are those of the "
        "members that stayed"
    )


class UnfinishedWarning(UserWarning):
    """Some members were stopped before they came to the end.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", fw.warnings.UnfinishedWarning)  # stop at it
        # fw.train_ensemble(..., method=fw.Stepping(max_steps=...)) warns
    ```
    """


# --- checks and configuration -------------------------------------------------------------------------


def _require_room(inputs: int, outputs: int, records: int) -> None:
    require_memory(
        8 * MATRICES * records * (inputs * outputs) ** 2,
        f"the covariance of {outputs} outputs on {inputs} inputs at {records} points of training",
        "use {fit} inputs or fewer, or fewer records",
        count=inputs,
        power=2,
    )


def _as_record(record: Any) -> Record:
    """What to record, as a user gave it; None is nothing beside the end."""
    if record is None:
        return Record()
    if not isinstance(record, Record):
        raise ValueError(f"record must be an fw.Record(at=, ntk=, ...) or None, got {record!r}.")
    return record


def _check_options(
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss,
    net: Network,
    count: int,
    record: Record,
    stepping: Stepping,
    run: Run,
) -> None:
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
    if record.members and run.store is None:
        raise ValueError(
            "record has members=True, which needs a store; add run=fw.Run(store='ensemble.zarr')."
        )
    _check_stepping(algorithm, stepping)


def _check_stepping(algorithm: AbstractAlgorithm, stepping: Stepping) -> None:
    """Refuse what training by this algorithm does not look at."""
    flows = not trainer_of(algorithm).counts_steps
    acting = {"training_error": True, "tolerance": flows, "max_steps": flows or math.isinf(algorithm.end)}
    methods.only(stepping, [name for name, acts in acting.items() if acts], f"for algorithm={algorithm!r}")


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
