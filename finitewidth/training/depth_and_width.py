r"""Expected test loss as a function of depth and width, through order 1/n.

$$\mathbb{E}[L_B] = \text{bias} + \text{variance}, \qquad
  \mathbb{E}[L_B](n) = \mathbb{E}[L_B](\infty) + c\, \frac{L}{n} + O(1/n^2)$$

The sign of c says whether finite width helps (PDLT sections 10.3 and inf.2.4). Where the kernel falls with
depth as $L^{-p_0}$ targets are scaled by $L^{-p_0/2}$ and losses given in units of $L^{-p_0}$, so that depths
can be compared (inf.23)-(inf.26).
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from finitewidth.core.checkpoint import digest
from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike, as_count, as_inputs, as_targets
from finitewidth.core.methods import LegByLeg, Sampling, as_method
from finitewidth.core.run import Run, runner
from finitewidth.core.tasks import HERE
from finitewidth.critical.activations.classification import criticality
from finitewidth.critical.initialization import is_critical
from finitewidth.network.algorithms.abstract import AbstractAlgorithm, check_algorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.layers.weights import HYPERPARAMETERS
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.training.first_order.chosen_method import DENSE, Chosen, Method
from finitewidth.training.first_order.expansion import warn_of
from finitewidth.training.first_order.learning_problem import Problem, check_network
from finitewidth.training.first_order.prepared import Prepared, prepare_with
from finitewidth.training.infinite.gaussian import Expansion, Prediction
from finitewidth.training.replay.replayed import ReplayedPrediction
from finitewidth.training.replay.replaying import is_replayed, predict_by_replay

_WIDE = 10_000_000  # corrections of order 1/n^2 are below rounding of those of order 1/n

NetworkOfWidths = Callable[[tuple[int, ...]], Network]


@shown(
    "depths",
    "widths",
    "total",
    "bias",
    "variance",
    "stderr",
    "method",
    dimensions={
        "depths": "depth",
        "widths": "width",
        "total": "depth width",
        "bias": "depth width",
        "variance": "depth width",
        "stderr": "depth width",
        "infinite_total": "depth",
    },
    figure="expected_loss",
)
@dataclass(frozen=True, eq=False)
class ExpectedLoss:
    """Expected test loss over depths and widths, split into bias and variance.

    `fw.expected_loss` makes it, and `plot` draws it.

    ```python
    losses = fw.expected_loss(net, X, Y, X_test, Y_test, depths=(2, 3), widths=(256, 512))
    losses.total, losses.coefficient
    ```
    """

    depths: Float[np.ndarray, " D"]  # numbers of layers with parameters
    widths: Float[np.ndarray, " W"]  # of hidden layers
    bias: Float[np.ndarray, "D W"]  # loss of the mean prediction
    variance: Float[np.ndarray, "D W"]  # loss from fluctuations around it
    infinite_bias: Float[np.ndarray, " D"]  # bias at infinite width
    infinite_variance: Float[np.ndarray, " D"]  # variance at infinite width
    bias_coefficient: Float[np.ndarray, " D"]  # of L/n
    variance_coefficient: Float[np.ndarray, " D"]  # likewise of the variance
    stderr: Float[np.ndarray, "D W"]  # of the total, where order 1/n was sampled; else 0
    target_scale: Float[np.ndarray, " D"] = field(repr=False)  # by which targets were scaled
    method: Method | None = None  # how order 1/n was computed

    @property
    def total(self) -> Float[np.ndarray, "D W"]:
        """Bias plus variance."""
        return self.bias + self.variance

    @property
    def infinite_total(self) -> Float[np.ndarray, " D"]:
        """Bias plus variance at infinite width."""
        return self.infinite_bias + self.infinite_variance

    @property
    def coefficient(self) -> Float[np.ndarray, " D"]:
        """c: the change of the loss with L/n; negative where finite width helps."""
        return self.bias_coefficient + self.variance_coefficient


def expected_loss(
    net: Network | NetworkOfWidths,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike,
    Y_test: ArrayLike,
    *,
    depths: Sequence[int],
    widths: Sequence[int],
    algorithm: AbstractAlgorithm = GradientFlow(),
    loss: AbstractLoss = MSE(),
    method: Method | None = None,
    run: Run | None = None,
) -> ExpectedLoss:
    """Expected test loss at order 1/n for networks of several depths and hidden widths.

    Where a network is critical and its kernel falls with depth as L^(-p_0), targets are scaled by L^(-p_0/2)
    and losses given in units of L^(-p_0), see `target_scale`. Up to 64 samples widths cost nothing beyond the
    first. More samples before the end of training are sampled, mean and variance, once for each width. Other
    losses, momentum and batches are replayed from drawn initial outputs, once for all widths.

    Args:
        net: A network, or a function from widths to a network such as `lambda widths: fw.MLP.critical(widths,
            "tanh")`, whose hyperparameters may depend on the depth but not on the widths. Other depths than
            its own need a network with the same activation and hyperparameters in all layers.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0).
        Y_test: Targets of the test inputs (M, n_L).
        depths: Numbers of layers with parameters.
        widths: Widths of the hidden layers.
        algorithm: How and how long networks are trained; by default to the end.
        loss: The loss, of training and of the test inputs.
        method: `fw.Tensors` or `fw.Sampling`, which samples the variance here in any case; None chooses by
            the number of samples.
        run: Where finished depths are kept, and who computes them, an `fw.Run`.

    Returns:
        Losses over depths and widths with their bias, variance and `coefficient` of L/n.

    ```python
    fw.expected_loss(net, X, Y, X_test, Y_test, depths=(2, 3), widths=(256, 512)).coefficient
    ```
    """
    depths, widths = _whole("depths", depths, 2), _whole("widths", widths, 2)
    check_algorithm(algorithm, order=1)
    loss = as_loss(loss)
    build, inputs, outputs = _builder(net, X_train, Y_train)
    X = as_inputs(X_train, inputs, name="X_train")
    Y = as_targets(Y_train, X.shape[0], outputs)
    X_test = as_inputs(X_test, inputs, name="X_test")
    Y_test = as_targets(Y_test, X_test.shape[0], outputs, name="Y_test", inputs="X_test")
    problems = [Problem(_wide(build, inputs, depth, outputs, widths), X, Y, X_test) for depth in depths]
    chosen = [_with_variance(problem, algorithm, loss, method) for problem in problems]
    sweep = _Sweep(problems, Y_test, widths, algorithm, loss, chosen)
    with runner(run, kind="sweep", configuration=sweep.described) as running:
        rows = list(running.results(sweep, len(depths), name="depths", what="solving depths"))
    for row in rows:
        for sizes, condition in zip(row["expansion"], row["condition"], strict=True):
            warn_of(Expansion(*map(float, sizes), decided_by=""), float(condition))
    columns = {name: np.stack([row[name] for row in rows]) for name in _COLUMNS}
    method = chosen[0].method  # the same for all depths
    return ExpectedLoss(np.asarray(depths, float), np.asarray(widths, float), **columns, method=method)


def _with_variance(
    problem: Problem, algorithm: AbstractAlgorithm, loss: AbstractLoss, method: Method | None
) -> Chosen:
    """The method for a network, which must give its variance."""
    if is_replayed(algorithm, loss):
        where = f"with algorithm={algorithm!r} and loss={loss!r}"
        sampling = as_method(method, (Sampling,), where=where) or Sampling()
        return replace(problem.choose(None), method=sampling)
    if isinstance(method, LegByLeg):
        raise ValueError(
            f"method=fw.{method!r} gives the mean alone, and an expected loss has a variance; use fw.Tensors "
            "or fw.Sampling."
        )
    chosen = problem.choose(method)
    if chosen.method is None and (problem.net.ladder.has_skips or algorithm.clock is None):
        raise ValueError(
            f"the variance of {problem.count} inputs is sampled by itself, for dense networks and algorithms "
            f"that run in time only; pass at most {DENSE} inputs, or use method=fw.Tensors() where memory "
            "allows."
        )
    if chosen.method is None or isinstance(chosen.method, Sampling):
        sampling = Sampling() if chosen.method is None else chosen.method
        return replace(chosen, method=replace(sampling, variance=True))
    return chosen


_COLUMNS = (
    "bias",
    "variance",
    "infinite_bias",
    "infinite_variance",
    "bias_coefficient",
    "variance_coefficient",
    "stderr",
    "target_scale",
)


@dataclass(frozen=True, eq=False)
class _Sweep:
    """One task for each depth: its network at all widths."""

    problems: list[Problem]  # one for each depth, with a wide network and the same data
    Y_test: np.ndarray
    widths: list[int]
    algorithm: AbstractAlgorithm
    loss: AbstractLoss
    chosen: list[Chosen]  # for each depth

    def described(self) -> dict:
        """Everything that the result depends on, as plain values."""
        data = self.problems[0]
        arrays = {"X_train": data.X, "Y_train": data.Y, "X_test": data.X_test, "Y_test": self.Y_test}
        return {
            "networks": [problem.net.to_dict() for problem in self.problems],
            "widths": self.widths,
            "algorithm": self.algorithm.fingerprint(),
            "loss": repr(self.loss),
            **self.chosen[0].described(),
            **{name: digest(array) for name, array in arrays.items()},
        }

    def __call__(self, task: int) -> dict[str, np.ndarray]:
        problem = self.problems[task]
        scale = _target_scale(problem.net) if self.loss.is_squared_error else 1.0
        predictions = self._predictions(replace(problem, Y=scale * problem.Y), self.chosen[task])
        losses = np.stack([self._loss(prediction, scale) for prediction in predictions], axis=1)
        infinite = self._at_infinite_width(predictions[-1], scale)
        coefficient = (losses[:, -1] - infinite) * _WIDE / problem.net.depth
        return {
            "bias": losses[0, :-1],
            "variance": losses[1, :-1],
            "infinite_bias": infinite[0],
            "infinite_variance": infinite[1],
            "bias_coefficient": coefficient[0],
            "variance_coefficient": coefficient[1],
            "stderr": losses[2, :-1],
            "target_scale": np.asarray(scale),
            "expansion": np.array([_sizes(prediction.expansion) for prediction in predictions]),
            "condition": np.array([prediction.condition for prediction in predictions]),
        }

    def _predicted(self, prepared: Prepared, width: int) -> Prediction:
        return prepared.with_width(width).predict_with(HERE, self.algorithm, None)

    def _predictions(
        self, problem: Problem, chosen: Chosen
    ) -> Sequence[Prediction] | Sequence[ReplayedPrediction]:
        """One for each width, and a last one that is so wide that it has no higher orders."""
        widths = (*self.widths, _WIDE)
        if not is_replayed(self.algorithm, self.loss):
            prepared = prepare_with(HERE, problem, chosen)
            return [self._predicted(prepared, width) for width in widths]
        (one,) = predict_by_replay(problem, [self.algorithm], self.loss, chosen.method, None)
        assert isinstance(one, ReplayedPrediction)  # the method draws initial outputs
        return [one.with_width(width) for width in widths]

    def _loss(self, prediction: Prediction | ReplayedPrediction, scale: float) -> np.ndarray:
        """Bias, variance and standard error in units in which the targets have size one."""
        loss = prediction.test_loss(scale * self.Y_test, loss=self.loss)
        return np.array([loss.bias, loss.variance, loss.stderr]) / scale**2

    def _at_infinite_width(self, prediction: Prediction | ReplayedPrediction, scale: float) -> np.ndarray:
        """The same at order 0."""
        if isinstance(prediction, Prediction):
            return self._loss(prediction.infinite_width, scale)
        Y = jnp.asarray(scale * self.Y_test)
        total = prediction.expectation(lambda z: self.loss.value(z, Y)).infinite_width
        bias = float(self.loss.value(jnp.asarray(prediction.infinite_width.mean), Y))
        return np.array([bias, total.value - bias, total.stderr]) / scale**2


def _sizes(expansion: Expansion | None) -> tuple[float, ...]:
    assert expansion is not None  # predictions of order 1 have it
    return astuple(expansion)[:-1]  # numbers alone: `decided_by` is the last field


def _target_scale(net: Network) -> float:
    """L^(-p_0/2) where the network is critical and its kernel falls with depth as L^(-p_0), otherwise 1."""
    if net.ladder.has_skips or len(set(net.activations)) > 1:  # no power of the depth is known
        return 1.0
    point = criticality(net.activations[0])
    if point.universality_class != "K*=0" or not is_critical(net):
        return 1.0
    return float(net.depth) ** (-point.exponents["p_0"] / 2)


def _wide(build: NetworkOfWidths, inputs: int, depth: int, outputs: int, widths: list[int]) -> Network:
    """A network of that depth, wide; the same hyperparameters must serve all widths."""
    wide, *others = (build((inputs, *[n] * (depth - 1), outputs)) for n in (_WIDE, min(widths), max(widths)))
    for other in others:
        if other.with_widths(wide.ladder.widths) != wide:
            n = other.ladder.widths[1]
            raise ValueError(
                f"net gives other hyperparameters at width {n} than at width {_WIDE}; let them "
                "depend on the depth alone, or ask for one width at a time with an MLP."
            )
        wide.ladder.require_isometries_of(other.ladder)
    check_network(wide)
    return wide


def _builder(net: Network | NetworkOfWidths, X_train, Y_train) -> tuple[NetworkOfWidths, int, int]:
    """A function from widths to a network, and the numbers of inputs and outputs."""
    if isinstance(net, Network):
        if net.ladder.skips[-1] is not None:
            check_network(net)  # says more than the widths that would not fit
        return functools.partial(_resized, net), net.ladder.inputs, net.outputs
    columns = np.shape(Y_train)[1] if np.ndim(Y_train) == 2 else 1
    return net, int(np.shape(X_train)[-1]), columns


def _resized(net: Network, widths: tuple[int, ...]) -> Network:
    """The network with other widths, and with another depth where all its layers are alike."""
    if len(widths) == len(net.ladder.widths):
        return net.with_widths(widths)
    remedy = "pass a function of widths that makes a network of any depth"
    if net.ladder.has_skips:
        raise ValueError(f"net has skip connections, and it is not clear which another depth has; {remedy}.")
    if len(set(net.activations)) > 1:
        raise ValueError(f"net has different activations in its layers, {net.activation_name}; {remedy}.")
    for name in (*HYPERPARAMETERS, "weights"):
        per_layer = getattr(net, name)
        if len(set(per_layer)) > 1:
            raise ValueError(f"net has different values of {name} in its layers, {per_layer}; {remedy}.")
    if isinstance(net, MLP):
        return net.replace(widths=widths)
    if not net.activations:
        raise ValueError(f"net has a single layer and no activation for other depths; {remedy}.")
    alike = {name: getattr(net, name)[0] for name in (*HYPERPARAMETERS, "weights")}
    return MLP(widths, net.activations[0], **alike)


def _whole(name: str, values: Sequence[int], lowest: int) -> list[int]:
    given = np.atleast_1d(values)
    if given.size == 0:
        raise ValueError(f"{name} must be whole numbers of at least {lowest}, got none.")
    return [int(as_count(f"each of {name}", value, lowest=lowest)) for value in given.tolist()]
