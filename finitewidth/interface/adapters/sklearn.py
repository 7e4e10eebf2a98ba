"""Infinitely wide trained networks as scikit-learn estimators.

    from finitewidth.sklearn import WideNetworkRegressor

    model = WideNetworkRegressor(depth=3, activation=("tanh", "relu")).fit(X, y)
    mean, std = model.predict(X_test, return_std=True)

Hidden widths do not appear, since they are infinite. `network` takes any layers, for images as well:

    layers = [fw.Conv(64), "relu", fw.Flatten(), fw.Dense(1)]
    model = fw.sklearn.WideNetworkClassifier(network=layers).fit(images, labels)

Regression is also done by Bayes' rule, at infinite width or through order 1/n of a width:

    model = fw.sklearn.WideNetworkRegressor(inference="posterior", width=200, noise=0.01).fit(X, y)
"""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from finitewidth.core.display.user_warnings import warn
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.layers.dense import Dense
from finitewidth.network.losses.probabilities import one_hot, outputs_of
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.training.bayes.fitted_posterior import FittedPosterior, most_likely_noise
from finitewidth.training.infinite.fitting import Fitted, fit
from finitewidth.training.infinite.leave_one_out import ExtrapolationWarning, fit_by_leave_one_out, left_out

__all__ = ["WideNetworkClassifier", "WideNetworkRegressor"]

_FAR = 2.0  # times the largest distance of a training input to the nearest other one


@dataclass(kw_only=True, eq=False, repr=False)
class _WideNetwork(BaseEstimator):
    """The parameters that regression and classification share, which scikit-learn reads off their fields."""

    depth: int = 3
    activation: Any = "relu"
    C_b: Any = 0.0
    C_W: Any = 2.0
    lambda_b: Any = 1.0
    lambda_W: Any = 1.0
    ridge: float | str = "loo"
    algorithm: AbstractAlgorithm | None = None
    network: Any = None
    scale_inputs: bool = True

    fitted_: Fitted | FittedPosterior = field(init=False)
    ridge_: float = field(init=False)
    input_scale_: float = field(init=False)

    def _train(self, X: np.ndarray, Y: np.ndarray) -> Fitted | FittedPosterior:
        net = self._network(X, Y)
        algorithm = GradientFlow() if self.algorithm is None else self.algorithm
        X = self._inputs(X, net)
        ridge = _as_number("ridge", self.ridge, "loo")
        if ridge is None:
            fitted, self.ridge_ = fit_by_leave_one_out(net, X, Y, algorithm)
        else:
            fitted, self.ridge_ = fit(net, X, Y, algorithm=algorithm, ridge=ridge), ridge
        return fitted

    def _take_scale(self, X: np.ndarray) -> None:
        """Remember the scale of the inputs, one number for all components, which keeps all angles."""
        size = float(np.sqrt(np.mean(X**2))) if self.scale_inputs else 1.0
        self.input_scale_ = size if 0 < size < np.inf else 1.0

    def _inputs(self, X: np.ndarray, net: Network) -> np.ndarray:
        return X.reshape(-1, *net.input_shape) / self.input_scale_

    def _network(self, X: np.ndarray, Y: np.ndarray) -> Network:
        net = self._perceptron(X, Y) if self.network is None else self._with_outputs(Y.shape[1])
        if X.shape[1] != math.prod(net.input_shape):
            raise ValueError(
                f"X has {X.shape[1]} features, but network takes inputs of shape {net.input_shape}; change X "
                "or input_shape."
            )
        return net

    def _perceptron(self, X: np.ndarray, Y: np.ndarray) -> MLP:
        if not (isinstance(self.depth, int | np.integer) and self.depth >= 1):
            raise ValueError(f"depth must be a whole number of at least 1, got {self.depth!r}; use 3.")
        widths = (X.shape[1], *[1] * (self.depth - 1), Y.shape[1])
        rates = {"lambda_b": self.lambda_b, "lambda_W": self.lambda_W}
        return MLP(widths, self.activation, C_b=self.C_b, C_W=self.C_W, **rates)

    def _with_outputs(self, outputs: int) -> Network:
        """The network with a last layer of so many neurons; no kernel depends on their number."""
        net = self.network if isinstance(self.network, Network) else Network(self._input_shape, *self.network)
        *hidden, last = net.layers
        if net.outputs == outputs:
            return net
        if not isinstance(last, Dense):
            raise ValueError(
                f"network has {net.outputs} outputs for {outputs} targets, and its last layer is a "
                f"{type(last).__name__}; end it with fw.Dense({outputs})."
            )
        return Network(net.input_shape, *hidden, dataclasses.replace(last, width=outputs))

    def _take_shape(self, X) -> None:
        """Remember the shape of one input, which is that of the network, or of X where layers are given."""
        if self.network is None:
            return
        if isinstance(self.network, Network):
            self._input_shape = self.network.input_shape
        elif isinstance(self.network, list | tuple):
            self._input_shape = np.shape(X)[1:]
        else:
            raise ValueError(
                f"network must be an fw.Network or a list of layers, got {self.network!r}; use "
                "[fw.Dense(1), 'relu', fw.Dense(1)]."
            )

    def _rows(self, X) -> Any:
        """X as flat rows, if it has positions and a network that takes them."""
        if self.network is None or np.ndim(X) < 3:
            return X
        shape = np.shape(X)
        if shape[1:] != self._input_shape:
            raise ValueError(
                f"X has inputs of shape {shape[1:]}, but network takes {self._input_shape}, channels last; "
                "reshape X or change input_shape."
            )
        return np.asarray(X).reshape(shape[0], math.prod(shape[1:]))

    def _checked(self, X) -> np.ndarray:
        check_is_fitted(self)
        rows = np.asarray(validate_data(self, self._rows(X), reset=False, dtype=np.float64))
        return self._inputs(rows, self.fitted_.net)


def _as_number(name: str, value: Any, word: str) -> float | None:
    """The parameter as a number, zero or positive; None if it is the word that leaves the choice to us."""
    if isinstance(value, str) and value == word:
        return None
    if isinstance(value, str) or not (np.isscalar(value) and 0 <= value < np.inf):  # type: ignore[operator]
        raise ValueError(f'{name} must be "{word}" or a number, zero or positive, got {value!r}.')
    return float(value)  # type: ignore[arg-type]


@dataclass(kw_only=True, eq=False, repr=False)
class WideNetworkRegressor(MultiOutputMixin, RegressorMixin, _WideNetwork):
    """Regression by infinitely wide networks that are trained on the squared loss, or by Bayes' rule.

    `predict(X, return_std=True)` has the standard deviation of a new target, with its noise. For trained
    networks it is how far they differ from each other. Far from the training inputs they all may be wrong in
    the same way: an `fw.warnings.ExtrapolationWarning` says so.

    Args:
        depth: The number of layers with weights.
        activation: One for all hidden layers, or one for each: a name, an `fw.Activation` or a function.
        C_b: The variance of biases, a number or one for each layer.
        C_W: The variance of weights times their fan-in, likewise.
        lambda_b: The learning rate of biases, likewise.
        lambda_W: The learning rate of weights, likewise.
        ridge: A number that is added to the diagonal of the training NTK. "loo" takes the one with the least
            error on samples left out, which is known in closed form; `ridge_` has it.
        algorithm: How and how long networks are trained; by default to the end.
        network: An `fw.Network`, or a list of layers, in the place of depth, activation and hyperparameters.
            Its last layer gets as many outputs as there are targets. For a network with positions X has shape
            (N, H, W, C) or (N, T, C); flat rows, which other steps of a pipeline make, are given that shape.
        scale_inputs: Whether inputs are divided by the root mean square of all components of the training
            inputs (`input_scale_`), so that C_b and lambda_b mean the same for all units.
        normalize_y: Whether targets are shifted and scaled to mean 0 and variance 1, each output by itself.
            Predictions are given in the units of y.
        inference: "training", or "posterior" for the predictions of `fw.bayes.posterior`, for which ridge,
            algorithm and learning rates do not matter.
        noise: The variance of targets, in units of the normalized ones. "auto" estimates it: for trained
            networks from samples left out, for the posterior as the noise with the largest evidence at
            infinite width. `noise_` has the number, or one for each output. With 0 the spread of the networks
            is left.
        width: That of all hidden layers, for the posterior through order 1/n; infinite by default.

    ```python
    from finitewidth.sklearn import WideNetworkRegressor

    WideNetworkRegressor(ridge=0.1).fit(X, Y).predict(X_test, return_std=True)
    ```
    """

    normalize_y: bool = True
    inference: str = "training"
    noise: float | str = "auto"
    width: int | None = None

    noise_: Any = field(init=False)

    def _train(self, X: np.ndarray, Y: np.ndarray) -> Fitted | FittedPosterior:
        if self.inference == "training" and self.width is None:
            return super()._train(X, Y)
        if self.inference != "posterior":
            raise ValueError(
                f'inference must be "training" at infinite width (width=None), or "posterior", got '
                f"{self.inference!r} with width={self.width!r}; fw.predict trains networks of a width."
            )
        net = self._network(X, Y)
        X = self._inputs(X, net)
        noise = self.noise if self.noise != "auto" else most_likely_noise(net, X, Y)
        return FittedPosterior.of(net, X, Y, noise, self.width)  # type: ignore[arg-type]

    def fit(self, X, y) -> "WideNetworkRegressor":
        """Train on inputs (N, n_features) or those of the network, and targets (N,) or (N, n_outputs)."""
        self._take_shape(X)
        X, y = validate_data(self, self._rows(X), y, dtype=np.float64, multi_output=True, y_numeric=True)
        X, y = np.asarray(X), np.asarray(y, dtype=np.float64)
        self._one_output = y.ndim == 1
        Y = y.reshape(len(y), -1)
        self._offset, spread = (Y.mean(axis=0), Y.std(axis=0)) if self.normalize_y else (0.0, np.ones(1))
        self._unit = np.where(spread > 0, spread, 1.0)
        Y = (Y - self._offset) / self._unit
        self._take_scale(X)
        self.fitted_ = self._train(X, Y)
        self.noise_ = self._noise_of(self.fitted_, Y)
        return self

    def _noise_of(self, fitted: Fitted | FittedPosterior, Y: np.ndarray) -> Any:
        if isinstance(fitted, FittedPosterior):
            return fitted.noise
        noise = _as_number("noise", self.noise, "auto")
        return left_out(fitted, Y).noise if noise is None else noise

    def predict(self, X, return_std: bool = False):
        """Mean predictions and, with `return_std`, standard deviations of new targets."""
        X = self._checked(X)
        if not return_std:
            return self._shaped(self.fitted_.mean(X) * self._unit + self._offset)
        _warn_of_far_inputs(self.fitted_.X, X)
        mean, std = self.fitted_.mean_and_std(X)
        if isinstance(self.fitted_, Fitted):
            std = np.sqrt(std[:, None] ** 2 + self.noise_) * np.ones(mean.shape[1])
        return self._shaped(mean * self._unit + self._offset), self._shaped(std * self._unit)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self._one_output else values


@dataclass(kw_only=True, eq=False, repr=False)
class WideNetworkClassifier(ClassifierMixin, _WideNetwork):
    """Classification by infinitely wide networks that are trained on smoothed labels.

    At the end of training the cross-entropy and the squared loss lead to the same outputs; `predict_proba` is
    the softmax of these outputs, divided by a temperature.

    Args:
        depth: The number of layers with weights.
        activation: One for all hidden layers, or one for each: a name, an `fw.Activation` or a function.
        C_b: The variance of biases, a number or one for each layer.
        C_W: The variance of weights times their fan-in, likewise.
        lambda_b: The learning rate of biases, likewise.
        lambda_W: The learning rate of weights, likewise.
        ridge: A number that is added to the diagonal of the training NTK, as for the regressor.
        algorithm: How and how long networks are trained; by default to the end.
        smoothing: The probability that a label leaves for the other classes. It scales all outputs, and so
            changes neither the class with the largest output nor probabilities at the temperature "loo".
        network: An `fw.Network` or a list of layers, as for the regressor.
        scale_inputs: Whether inputs are scaled to mean square one, as for the regressor.
        temperature: "loo" takes the temperature with the smallest log loss on samples left out, so that
            probabilities are frequencies; `temperature_` has it.

    ```python
    from finitewidth.sklearn import WideNetworkClassifier

    WideNetworkClassifier(ridge=0.1, temperature=1.0).fit(X, [0, 1, 0]).predict(X_test)
    ```
    """

    smoothing: float = 0.1
    temperature: float | str = "loo"

    temperature_: float = field(init=False)

    def fit(self, X, y) -> "WideNetworkClassifier":
        """Train on inputs (N, n_features) or those of the network, and class labels (N,)."""
        self._take_shape(X)
        X, y = validate_data(self, self._rows(X), y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; pass two classes or more.")
        if not 0 < self.smoothing < 1:
            raise ValueError(
                f"smoothing must lie between 0 and 1, got {self.smoothing!r}; without smoothing the trained "
                "outputs would be infinite."
            )
        targets = outputs_of(one_hot(labels, len(self.classes_), smoothing=self.smoothing))
        self._take_scale(np.asarray(X))
        fitted = self.fitted_ = self._train(np.asarray(X), targets)
        assert isinstance(fitted, Fitted)  # the regressor alone knows Bayes
        chosen = _as_number("temperature", self.temperature, "loo")
        if chosen is None:
            chosen = _calibrated(targets - left_out(fitted, targets).residuals, labels)
        self.temperature_ = chosen
        return self

    def decision_function(self, X) -> np.ndarray:
        """Mean outputs (M, classes); for two classes their difference (M,)."""
        X = self._checked(X)
        mean = self.fitted_.mean(X)
        return mean[:, 1] - mean[:, 0] if len(self.classes_) == 2 else mean

    def predict_proba(self, X) -> np.ndarray:
        """The softmax of the mean outputs over the temperature (M, classes)."""
        X = self._checked(X)
        return softmax(self.fitted_.mean(X) / self.temperature_, axis=-1)

    def predict(self, X) -> np.ndarray:
        """The class with the largest mean output."""
        X = self._checked(X)
        return self.classes_[np.argmax(self.fitted_.mean(X), axis=1)]


def _warn_of_far_inputs(X_train: np.ndarray, X: np.ndarray) -> None:
    """Warn of inputs that no sample left out is like, so that nothing says how good their spread is."""
    if len(X_train) < 2:
        return
    neighbors = NearestNeighbors().fit(X_train.reshape(len(X_train), -1))
    gaps = neighbors.kneighbors(n_neighbors=1)[0]  # of each training input to the nearest other one
    distances = neighbors.kneighbors(X.reshape(len(X), -1), n_neighbors=1)[0]
    far = int(np.sum(distances > _FAR * gaps.max()))
    if far:
        warn(
            f"{far} of {len(X)} inputs lie more than twice as far from every training input as any of these "
            "does from its nearest neighbor: standard deviations there are those between networks, and say "
            "little about the distance to the truth; add training inputs there, or do not trust them.",
            ExtrapolationWarning,
        )


def _calibrated(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The temperature with the smallest log loss, for labels that are wrong once in N + classes each.

    Without such labels it would be zero where all samples are classified correctly.
    """
    samples, classes = outputs.shape
    truth = one_hot(labels, classes, smoothing=(classes - 1) / (samples + classes))

    def log_loss(log_temperature: float) -> float:
        scaled = outputs / np.exp(log_temperature)
        return float(np.mean(logsumexp(scaled, axis=1) - np.sum(truth * scaled, axis=1)))

    best: Any = minimize_scalar(log_loss, bounds=(math.log(1e-3), math.log(1e3)), method="bounded")
    return float(np.exp(best.x))
