"""Infinitely wide trained networks as scikit-learn estimators.

    import finitewidth as fw

    model = fw.sklearn.WideNetworkRegressor(depth=3, activation=("tanh", "relu")).fit(X, y)

`depth` counts layers with parameters; `activation` is one for all hidden layers, or one for each of the
`depth - 1`. Hidden widths do not appear, since they are infinite.
"""

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.algorithms.gradient_flow import GradientFlow
from finitewidth.network.losses.probabilities import one_hot, outputs_of, softmax
from finitewidth.network.mlp import MLP
from finitewidth.training.infinite.fitting import Fitted, fit


class _WideNetwork(BaseEstimator):
    """The parameters that regression and classification share."""

    fitted_: Fitted

    def __init__(
        self,
        *,
        depth: int = 3,
        activation: Any = "relu",
        C_b: Any = 0.0,
        C_W: Any = 2.0,
        lambda_b: Any = 1.0,
        lambda_W: Any = 1.0,
        ridge: float = 1e-3,
        algorithm: AbstractAlgorithm | None = None,
    ):
        self.depth = depth
        self.activation = activation
        self.C_b = C_b
        self.C_W = C_W
        self.lambda_b = lambda_b
        self.lambda_W = lambda_W
        self.ridge = ridge
        self.algorithm = algorithm

    def _train(self, X: np.ndarray, Y: np.ndarray) -> None:
        if not (isinstance(self.depth, int | np.integer) and self.depth >= 1):
            raise ValueError(f"depth must be a whole number of at least 1, got {self.depth!r}; use 3.")
        widths = (X.shape[1], *[1] * (self.depth - 1), Y.shape[1])
        rates = {"lambda_b": self.lambda_b, "lambda_W": self.lambda_W}
        net = MLP(widths, self.activation, C_b=self.C_b, C_W=self.C_W, **rates)
        algorithm = GradientFlow() if self.algorithm is None else self.algorithm
        self.fitted_ = fit(net, X, Y, algorithm=algorithm, ridge=self.ridge)

    def _checked(self, X) -> np.ndarray:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64))


class WideNetworkRegressor(MultiOutputMixin, RegressorMixin, _WideNetwork):
    """Regression by infinitely wide networks that are trained on the squared loss."""

    def fit(self, X, y) -> "WideNetworkRegressor":
        """Train on inputs (N, n_features) and targets (N,) or (N, n_outputs)."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        self._one_output = y.ndim == 1
        self._train(np.asarray(X), y.reshape(len(y), -1))
        return self

    def predict(self, X, return_std: bool = False):
        """Mean predictions and, with `return_std`, standard deviations over the ensemble."""
        X = self._checked(X)
        if not return_std:
            return self._shaped(self.fitted_.mean(X))
        mean, std = self.fitted_.mean_and_std(X)
        return self._shaped(mean), self._shaped(np.repeat(std[:, None], mean.shape[1], axis=1))

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self._one_output else values


class WideNetworkClassifier(ClassifierMixin, _WideNetwork):
    """Classification by infinitely wide networks that are trained on smoothed labels.

    At the end of training the cross-entropy and the squared loss lead to the same outputs; `predict_proba` is
    their softmax. `smoothing` is the probability that a label leaves for the other classes; it does not
    change which class has the largest output.
    """

    def __init__(
        self,
        *,
        depth: int = 3,
        activation: Any = "relu",
        C_b: Any = 0.0,
        C_W: Any = 2.0,
        lambda_b: Any = 1.0,
        lambda_W: Any = 1.0,
        ridge: float = 1e-3,
        algorithm: AbstractAlgorithm | None = None,
        smoothing: float = 0.1,
    ):
        super().__init__(
            depth=depth,
            activation=activation,
            C_b=C_b,
            C_W=C_W,
            lambda_b=lambda_b,
            lambda_W=lambda_W,
            ridge=ridge,
            algorithm=algorithm,
        )
        self.smoothing = smoothing

    def fit(self, X, y) -> "WideNetworkClassifier":
        """Train on inputs (N, n_features) and class labels (N,)."""
        X, y = validate_data(self, X, y, dtype=np.float64)
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
        self._train(np.asarray(X), targets)
        return self

    def decision_function(self, X) -> np.ndarray:
        """Mean outputs (M, classes); for two classes their difference (M,)."""
        X = self._checked(X)
        mean = self.fitted_.mean(X)
        return mean[:, 1] - mean[:, 0] if len(self.classes_) == 2 else mean

    def predict_proba(self, X) -> np.ndarray:
        """The softmax of the mean outputs (M, classes)."""
        X = self._checked(X)
        return softmax(self.fitted_.mean(X))

    def predict(self, X) -> np.ndarray:
        """The class with the largest mean output."""
        X = self._checked(X)
        return self.classes_[np.argmax(self.fitted_.mean(X), axis=1)]
