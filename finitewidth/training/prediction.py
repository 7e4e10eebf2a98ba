"""The distribution of trained networks on test inputs, at infinite width and through order 1/n."""

from pathlib import Path
from typing import Any

from finitewidth.core.progress import Progress
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.training.first_order.problem import check_loss
from finitewidth.training.first_order.route import Route, RouteName
from finitewidth.training.first_order.statistics import predict_first_order
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
    """The distribution of trained networks on X_test, or on X_train itself if X_test is not given.

    `order=1` is through order 1/n, with `four_leg_tolerance` as in `finite_width`. Up to 64 samples it has
    the covariance; beyond, the mean alone, unless `covariance=True` asks for it. `order=0` is infinite width.
    There the distribution is Gaussian, except before the end of training on a loss other than the squared
    error: then `members` networks are drawn with `key` and trained in function space. `ridge` and `cutoff` as
    in `fit`.

    Hundreds of training points at order 1 are reached by drawing neurons with `key` along the training:
    `prediction.route` is then "sampled", and `prediction.stderr` is the standard error of the mean, which is
    at most `tolerance` (0.03) of the largest shift, rms over the outputs, or that of a number of `samples` of
    neurons; these errors are 10 to 20 percent too small where a few rare neurons matter. It grows with the
    learning rate times the number of steps, hardly with the number of points. What would take longer than
    `budget` seconds (1800) is refused after a pilot, with the numbers. `route` forces a way. There is no
    covariance then; `variance=True` samples `prediction.variance`, that of every output on each test input,
    to the same accuracy, which takes longer than the mean.

    The slow parts at order 1 are independent tasks. For few samples a task is one source layer; for many
    samples it is one leg, or a few batches of neurons. A Dask `client` runs them on its cluster. A `store`
    (a path that ends in .zarr) keeps finished tasks, and a run that was killed continues from there. The
    result is the same to the last bit. `progress` as in `train_ensemble`.

    `X_train` (N, n_0) and `Y_train` (N, n_L) are the data, `X_test` the inputs asked about, and `algorithm`
    says how and how long networks are trained. Returns an `fw.Prediction` with `mean` (M, n_L), `std`,
    `covariance`, and at order 1 `contributions` and `infinite_width`; an `fw.SampledPrediction` where
    networks are drawn.

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
    X_test = X_train if X_test is None else X_test
    if loss.is_squared_error:
        return fit(net, X_train, Y_train, algorithm=algorithm, ridge=ridge, cutoff=cutoff).predict(X_test)
    check_ridge(ridge, cutoff, loss)
    return predict_any_loss(
        net, X_train, Y_train, X_test, algorithm=algorithm, loss=loss, members=members, key=key
    )
