"""The distribution of trained networks on test inputs: which part of the theory answers."""

from pathlib import Path
from typing import Any

from finitewidth.core.progress import Progress
from finitewidth.network.algorithm import Algorithm, GradientFlow
from finitewidth.network.loss import MSE, CrossEntropy, Loss
from finitewidth.network.mlp import MLP
from finitewidth.training.first_order.problem import check_loss
from finitewidth.training.first_order.statistics import predict_first_order
from finitewidth.training.infinite.cross_entropy import predict_cross_entropy
from finitewidth.training.infinite.fitting import fit
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.learned import check_supported
from finitewidth.training.infinite.sampled import SampledPrediction


def predict(
    net: MLP,
    X_train,
    Y_train,
    X_test=None,
    *,
    algorithm: Algorithm = GradientFlow(),
    loss: Loss = MSE(),
    order: int = 1,
    ridge: float = 0.0,
    cutoff: float = 0.0,
    four_leg_tolerance: float | None = None,
    covariance: bool = True,
    members: int = 1000,
    key=0,
    client: Any = None,
    store: str | Path | None = None,
    progress: Progress = None,
) -> Prediction | SampledPrediction:
    """The distribution of trained networks on X_test (or on X_train itself, if X_test is not given).

    Through order 1/n by default, with `four_leg_tolerance` as in `finite_width`; without the `covariance` it
    reaches a hundred training points and more. `order=0` is infinite width.
    There, with the squared loss it is Gaussian. Trained part of the way on the cross-entropy it is not, and
    `members` networks are drawn with `key` and trained in function space. `ridge` and `cutoff` as in `fit`.

    What takes the time at order 1, source layers or pairs and legs of many samples, are independent tasks:
    given a Dask `client` they run on its cluster, and a `store` (a path that ends in .zarr) keeps those that
    are finished, so that a run that was killed goes on where it was. The result is the same to the last bit.
    `progress` as in `train_ensemble`.
    """
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    if order == 1:
        check_loss(loss, ridge, cutoff)
        return predict_first_order(
            net,
            X_train,
            Y_train,
            X_test,
            algorithm=algorithm,
            four_leg_tolerance=four_leg_tolerance,
            covariance=covariance,
            client=client,
            store=store,
            progress=progress,
        )
    X_test = X_train if X_test is None else X_test
    if isinstance(loss, CrossEntropy):
        if ridge or cutoff:
            raise ValueError(
                "ridge and cutoff belong to loss=fw.MSE(); smooth the targets or stop early instead."
            )
        check_supported(algorithm)
        return predict_cross_entropy(
            net, X_train, Y_train, X_test, algorithm=algorithm, loss=loss, members=members, key=key
        )
    if not isinstance(loss, MSE):
        raise ValueError(f"loss must be fw.MSE() or fw.CrossEntropy(), got {loss!r}.")
    fitted = fit(net, X_train, Y_train, algorithm=algorithm, ridge=ridge, cutoff=cutoff)
    return fitted.predict(X_test)
