"""The distribution of trained networks at many times, and when to stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_inputs
from finitewidth.core.methods import FunctionSpace, LegByLeg, Sampling, Tensors
from finitewidth.core.run import Run, as_run
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, as_algorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.theory.ratios import Verdict, worst
from finitewidth.training.first_order.learning_problem import Problem, check_ridge_at_first_order
from finitewidth.training.first_order.prepared import predict_at_times
from finitewidth.training.infinite.dynamics import gaussian_trajectory
from finitewidth.training.infinite.fitting import check_ridge, checked_data
from finitewidth.training.infinite.function_space import drawing, refuse_where_drawn, sampled_trajectory
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.sampled import SampledPrediction
from finitewidth.training.infinite.test_loss import TestLoss
from finitewidth.training.prediction import predict
from finitewidth.training.replay.replayed import ReplayedPrediction
from finitewidth.training.replay.replaying import is_replayed, predict_by_replay


@shown("time", "loss")
@dataclass(frozen=True, eq=False)
class Stopping:
    """Where on a path the expected loss on held-out data is lowest."""

    index: int
    time: float
    losses: tuple[TestLoss, ...] = field(repr=False)  # one for each time of the path

    @property
    def loss(self) -> TestLoss:
        return self.losses[self.index]


@shown(
    "times",
    "mean",
    "stderr",
    "uncertainty",
    "std",
    dimensions={"times": "time"}
    | dict.fromkeys(("mean", "stderr", "uncertainty", "std"), "time sample output"),
)
@dataclass(frozen=True, eq=False)
class Trajectory:
    """A trained ensemble at several times: one prediction for each.

    `fw.trajectory` makes it.

    ```python
    path = fw.trajectory(net, X, Y, X_test, times=[0, 1, 10])
    path.mean[-1], path[0].std, len(path)
    path.stderr, path.uncertainty, path.verdict
    path.stopping_time(Y_test).time
    ```
    """

    times: Float[np.ndarray, " T"]  # of gradient flow, or numbers of steps of gradient descent
    predictions: tuple[Prediction | SampledPrediction | ReplayedPrediction, ...] = field(
        repr=False
    )  # one for each time

    def __getitem__(self, index: int) -> Prediction | SampledPrediction | ReplayedPrediction:
        return self.predictions[index]

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def mean(self) -> Float[np.ndarray, "T M n_L"]:
        """Mean predictions at all times; estimates where the ensemble was sampled."""
        means = [p.mean.value if isinstance(p, SampledPrediction) else p.mean for p in self.predictions]
        return np.stack(means)

    @property
    def std(self) -> Float[np.ndarray, "T M n_L"]:
        """Standard deviations at all times; estimates where the ensemble was sampled."""
        if not all(p.gives_variance for p in self.predictions if isinstance(p, Prediction)):
            raise ValueError(
                "the standard deviations were not computed; use fw.trajectory(..., "
                "method=fw.Sampling(variance=True)) for a dense network, or method=fw.Tensors()."
            )
        return np.stack(
            [p.std.value if isinstance(p, SampledPrediction) else p.std for p in self.predictions]
        )

    @property
    def stderr(self) -> Float[np.ndarray, "T M n_L"]:
        """Standard errors of the mean at all times; zero where nothing was sampled."""
        errors = [p.mean.stderr if isinstance(p, SampledPrediction) else p.stderr for p in self.predictions]
        return np.stack(errors)

    @property
    def uncertainty(self) -> Float[np.ndarray, "T M n_L"]:
        """What order 1/n neglects in the mean at all times; zero at infinite width."""
        known = (0.0 if isinstance(p, SampledPrediction) else p.uncertainty for p in self.predictions)
        return np.stack([np.broadcast_to(one, self.mean.shape[1:]) for one in known])

    @property
    def verdict(self) -> Verdict:
        """Whether order 1/n can be trusted at all times: the worst verdict of them."""
        return worst(p.verdict for p in self.predictions if not isinstance(p, SampledPrediction))

    def stopping_time(self, Y_validation: ArrayLike, *, loss: AbstractLoss = MSE()) -> Stopping:
        """Early stopping: the time whose expected loss on the path's test inputs is lowest.

        Args:
            Y_validation: Targets of the test inputs (M, n_L).
            loss: The loss.

        Returns:
            The `time` and its `loss`.
        """
        losses = tuple(one.test_loss(Y_validation, loss=loss) for one in self.predictions)
        index = int(np.argmin([float(one.total) for one in losses]))
        return Stopping(index, float(self.times[index]), losses)


@takes_models
def trajectory(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike | None = None,
    *,
    times: Sequence[float] | np.ndarray,
    algorithm: AbstractAlgorithm = GradientFlow(),
    loss: AbstractLoss = MSE(),
    order: int = 1,
    ridge: float = 0.0,
    cutoff: float = 0.0,
    method: Tensors | LegByLeg | Sampling | FunctionSpace | None = None,
    run: Run | None = None,
) -> Trajectory:
    """The predictions of `predict` at several times.

    Args:
        net: The network, or a model that `fw.network_of` reads.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0); the training inputs by default.
        times: Times of gradient flow, or numbers of steps of gradient descent.
        algorithm: How networks are trained; the end that it names itself is not used.
        loss: The loss.
        order: 0 is infinite width, 1 is through order 1/n.
        ridge: A number that is added to the diagonal of the training NTK, as in `fit`.
        cutoff: Eigenvalues below this share of the largest count as zero, as in `fit`.
        method: How it is computed, as in `predict`; the budget of `fw.Sampling` is one for each of the times.
        run: Where finished tasks of order 1 are kept and who computes them, an `fw.Run`.

    Returns:
        `mean` and `std` have an axis of times in front, and `path[i]` is an `fw.records.Prediction`.

    ```python
    path = fw.trajectory(net, X, Y, X_test, times=[0, 1, 10])
    path.mean  # (3, M, n_L)
    ```
    """
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    loss, stops = as_loss(loss), _stops(algorithm, times)
    ends = np.asarray(times, dtype=np.float64)
    if order == 1:
        check_ridge_at_first_order(ridge, cutoff)
        problem = Problem.of(net, X_train, Y_train, X_test)
        if any(is_replayed(stop, loss) for stop in stops):
            return Trajectory(ends, predict_by_replay(problem, stops, loss, method, run))
        return Trajectory(ends, predict_at_times(problem, stops, problem.choose(method), run))
    check_ridge(ridge, cutoff, loss)
    as_run(run, tasks=False)
    X, Y = checked_data(net, X_train, Y_train)
    X_test = X if X_test is None else as_inputs(X_test, net.input_shape, name="X_test")
    draws = drawing(method, loss)
    if draws is None and stops[0].mixes_modes:
        known = {"order": 0, "ridge": ridge, "cutoff": cutoff}
        return Trajectory(ends, tuple(predict(net, X, Y, X_test, algorithm=stop, **known) for stop in stops))
    if draws is None:
        options = {"ridge": float(ridge), "cutoff": float(cutoff)}
        return Trajectory(ends, gaussian_trajectory(net, X, Y, X_test, stops, **options))
    if not np.isfinite(ends).all():
        raise ValueError(
            f"times must be finite where networks are drawn, with loss={loss!r}; for the end of training use "
            "fw.predict."
        )
    refuse_where_drawn(ridge=ridge or None, cutoff=cutoff or None)
    return Trajectory(ends, tuple(sampled_trajectory(net, X, Y, X_test, stops, loss, draws)))


def _stops(algorithm: AbstractAlgorithm, times) -> list[AbstractAlgorithm]:
    """The algorithm once for each time, stopped there."""
    if np.ndim(times) != 1 or np.size(times) == 0:
        raise ValueError(f"times must be a row of one or more numbers, got {times!r}.")
    return [as_algorithm(algorithm).at_time(float(time)) for time in times]
