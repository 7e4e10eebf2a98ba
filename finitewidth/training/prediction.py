"""The distribution of trained networks on test inputs, at infinite width and through order 1/n."""

from pathlib import Path
from typing import Any

from finitewidth.core.display.progress import Progress
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.training.first_order.learning_problem import check_loss
from finitewidth.training.first_order.prepared import predict_first_order
from finitewidth.training.first_order.route import Route, RouteName, refuse_at_order_0
from finitewidth.training.infinite.fitting import check_ridge, fit
from finitewidth.training.infinite.function_space import predict_any_loss
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.sampled import SampledPrediction


@takes_models
def predict(
    net: Network,
    X_train,
    Y_train,
    X_test=None,
    *,
    algorithm: AbstractAlgorithm = GradientFlow(),
    loss: AbstractLoss = MSE(),
    order: int = 1,
    ridge: float = 0.0,
    cutoff: float = 0.0,
    four_leg_tolerance: float | None = None,
    covariance: bool | None = None,
    route: RouteName | None = None,
    tolerance: float | None = None,
    samples: int | None = None,
    budget: float | None = None,
    variance: bool = False,
    members: int = 1000,
    key=0,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
) -> Prediction | SampledPrediction:
    """The distribution of trained networks on test inputs.

    Through order 1/n up to 64 samples have the covariance; beyond, the mean alone. At infinite width the
    distribution is Gaussian, except before the end of training on a loss other than the squared error: then
    networks are drawn and trained in function space.

    Hundreds of training points at order 1 are reached by drawing neurons along the training:
    `prediction.route` is then "sampled", and `prediction.stderr` is the standard error of the mean. These
    errors are 10 to 20 percent too small where a few rare neurons matter. The time grows with the learning
    rate times the number of steps, hardly with the number of points. There is no covariance then.

    The slow parts at order 1 are independent tasks. For few samples a task is one source layer; for many
    samples it is one leg, or a few batches of neurons. The result does not depend on where they run, to the
    last bit.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0); the training inputs by default.
        algorithm: How and how long networks are trained; by default to the end.
        loss: The loss; at order 1 the squared error.
        order: 0 is infinite width, 1 is through order 1/n.
        ridge: A number that is added to the diagonal of the training NTK, as in `fit`.
        cutoff: Eigenvalues below this share of the largest count as zero, as in `fit`.
        four_leg_tolerance: The accuracy of four-leg averages, as in `prepare`.
        covariance: True asks for the covariance beyond 64 samples, False leaves it out.
        route: "deterministic" or "sampled"; chosen by the number of samples by default.
        tolerance: The standard error of a sampled mean, over the largest shift, rms over the outputs; 0.03 by
            default.
        samples: A number of samples of neurons, instead of a tolerance.
        budget: What would take longer than so many seconds (1800) is refused after a pilot, with the numbers.
        variance: Whether to sample `prediction.variance` too, that of every output on each test input, to the
            same accuracy. It takes longer than the mean.
        members: How many networks are drawn where the distribution is not Gaussian.
        key: The randomness of everything that is drawn: a number or a key of JAX.
        client: A Dask client, on whose cluster the tasks run.
        store: A path that ends in .zarr, which keeps finished tasks: a run that was killed continues there.
        progress: True or False for a bar (by default on a terminal), or a function of two numbers, the
            finished tasks and all of them.

    Returns:
        An `fw.records.Prediction` with `mean` (M, n_L), `std` and `covariance`, at order 1 also
        `contributions`, `uncertainty`, `verdict` and `infinite_width`; an `fw.records.SampledPrediction`
        where networks are drawn.

    ```python
    prediction = fw.predict(net, X, Y, X_test, algorithm=fw.GradientDescent(0.1, steps=100))
    prediction.mean, prediction.std, prediction.contributions["dntk"]
    ```
    """
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    loss = as_loss(loss)
    if order == 1:
        check_loss(loss, ridge, cutoff)
        way = Route.of(route, tolerance=tolerance, samples=samples, budget=budget, variance=variance, key=key)
        return predict_first_order(
            net,
            X_train,
            Y_train,
            X_test,
            algorithm=algorithm,
            four_leg_tolerance=four_leg_tolerance,
            covariance=covariance,
            route=way,
            client=client,
            store=store,
            progress=progress,
        )
    refuse_at_order_0(route=route, tolerance=tolerance, samples=samples, budget=budget)
    X_test = X_train if X_test is None else X_test
    if loss.is_squared_error:
        return fit(net, X_train, Y_train, algorithm=algorithm, ridge=ridge, cutoff=cutoff).predict(X_test)
    check_ridge(ridge, cutoff, loss)
    return predict_any_loss(
        net, X_train, Y_train, X_test, algorithm=algorithm, loss=loss, members=members, key=key
    )
