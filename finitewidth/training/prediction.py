"""The distribution of trained networks on test inputs, at infinite width and through order 1/n."""

from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.core.methods import FunctionSpace, LegByLeg, Sampling, Tensors
from finitewidth.core.run import Run, as_run
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, as_algorithm, check_algorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.training.first_order.learning_problem import Problem, check_ridge_at_first_order
from finitewidth.training.first_order.prepared import predict_first_order
from finitewidth.training.infinite.fitting import check_ridge, checked_data, fit
from finitewidth.training.infinite.function_space import (
    drawing,
    end_of_training,
    refuse_where_drawn,
    sampled_trajectory,
)
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.random_batches import average_over_batches, moments_are_known
from finitewidth.training.infinite.sampled import SampledPrediction
from finitewidth.training.replay.replayed import ReplayedPrediction
from finitewidth.training.replay.replaying import is_replayed, predict_by_replay


@takes_models
def predict(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike | None = None,
    *,
    algorithm: AbstractAlgorithm = GradientFlow(),
    loss: AbstractLoss = MSE(),
    order: int = 1,
    ridge: float = 0.0,
    cutoff: float = 0.0,
    covariance: bool | None = None,
    method: Tensors | LegByLeg | Sampling | FunctionSpace | None = None,
    run: Run | None = None,
) -> Prediction | SampledPrediction | ReplayedPrediction:
    """The distribution of trained networks on test inputs.

    Through order 1/n up to 64 samples have the covariance; beyond, the mean alone. At infinite width the
    distribution is Gaussian, except before the end of training on a loss other than the squared error: then
    networks are drawn and trained in function space.

    Hundreds of training points at order 1 are reached by drawing neurons along the training:
    `prediction.method` is then an `fw.Sampling`, and `prediction.stderr` is the standard error of the mean.

    Other losses, momentum, schedules and batches are known at order 1 too, for a finite number of steps:
    training is replayed step by step, for up to 48 inputs. The mean for the squared error is deterministic,
    and beyond 48 inputs neurons are drawn along the steps; for other losses, and where each network draws
    batches of its own, initial outputs are drawn.

    The slow parts are independent tasks. At order 1 and for few samples a task is one source layer; for many
    samples it is one leg, or a few batches of neurons; at infinite width it is a panel of the training
    kernel. The result does not depend on where they run, to the last bit.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0); the training inputs by default.
        algorithm: How and how long networks are trained; by default to the end.
        loss: The loss.
        order: 0 is infinite width, 1 is through order 1/n.
        ridge: A number that is added to the diagonal of the training NTK, as in `fit`.
        cutoff: Eigenvalues below this share of the largest count as zero, as in `fit`.
        covariance: True asks for the covariance beyond 64 samples, False leaves it out.
        method: How order 1 is computed, `fw.Tensors`, `fw.LegByLeg` or `fw.Sampling`; at order 0
            `fw.FunctionSpace` where networks are drawn. None chooses, and `prediction.method` says which.
        run: Where finished tasks are kept and who computes them, an `fw.Run`.

    Returns:
        An `fw.records.Prediction` with `mean` (M, n_L), `std` and `covariance`, at order 1 also
        `contributions`, `uncertainty`, `verdict` and `infinite_width`; an `fw.records.SampledPrediction`
        where networks are drawn at order 0, an `fw.records.ReplayedPrediction` at order 1.

    ```python
    prediction = fw.predict(net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, steps=100))
    prediction.mean, prediction.std, prediction.contributions["dntk"]
    ```
    """
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    loss = as_loss(loss)
    if order == 1:
        check_ridge_at_first_order(ridge, cutoff)
        problem = Problem.of(net, X_train, Y_train, X_test)
        if is_replayed(as_algorithm(algorithm), loss):
            return predict_by_replay(problem, [algorithm], loss, method, run, covariance=covariance)[0]
        return predict_first_order(problem, algorithm, problem.choose(method, covariance), run)
    check_ridge(ridge, cutoff, loss)
    draws = drawing(method, loss, at_end=check_algorithm(algorithm, order=0).is_finished)
    if draws is None and loss.is_squared_error and not algorithm.draws_batches:
        fitted = fit(net, X_train, Y_train, algorithm=algorithm, ridge=ridge, cutoff=cutoff, run=run)
        return fitted.predict(X_train if X_test is None else X_test, covariance=covariance is not False)
    X, Y = checked_data(net, X_train, Y_train)
    X_test = X if X_test is None else as_inputs(X_test, net.input_shape, name="X_test")
    if draws is None and algorithm.draws_batches:
        refuse_where_drawn(ridge=ridge or None, cutoff=cutoff or None)
        if moments_are_known(algorithm, len(X)):
            as_run(run, tasks=False)
            return average_over_batches(net, X, Y, X_test, algorithm)
        draws = FunctionSpace()
    if draws is None:
        return end_of_training(
            net, X, Y, X_test, algorithm, loss, run=run, covariance=covariance is not False
        )
    refuse_where_drawn(ridge=ridge or None, cutoff=cutoff or None, covariance=covariance)
    as_run(run, tasks=False)
    return sampled_trajectory(net, X, Y, X_test, [algorithm], loss, draws)[0]
