"""The scikit-learn estimators with their defaults, against those that people use.

Regression on diabetes and classification of digits, five folds each, shuffled with a fixed key. Nothing is
tuned by hand: where a competitor has hyperparameters, an inner cross-validation chooses them on the training
part of each fold. Writes benchmarks/kernels/results/estimators.md.
"""

from pathlib import Path

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_digits
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import finitewidth as fw
from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results" / "estimators.md"
FOLDS = KFold(5, shuffle=True, random_state=0)
BEFORE = {"ridge": 1e-3, "scale_inputs": False}  # the defaults of version 0.1


def kernel_ridge():
    """Kernel ridge regression as one would tune it: scaled data, 30 pairs of hyperparameters."""
    grid = {"alpha": np.logspace(-3, 2, 6), "gamma": np.logspace(-4, 0, 5)}
    search = GridSearchCV(KernelRidge(kernel="rbf"), grid)
    return make_pipeline(StandardScaler(), TransformedTargetRegressor(search, transformer=StandardScaler()))


def gaussian_process():
    kernel = ConstantKernel() * RBF(5.0) + WhiteKernel()
    return make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True))


REGRESSORS = {
    "`WideNetworkRegressor()`": fw.sklearn.WideNetworkRegressor,
    '`WideNetworkRegressor(inference="posterior")`': lambda: fw.sklearn.WideNetworkRegressor(
        inference="posterior"
    ),
    "defaults of version 0.1": lambda: fw.sklearn.WideNetworkRegressor(**BEFORE, noise=0, normalize_y=False),
    "`WideNetworkRegressor()`, scaled data": lambda: make_pipeline(
        StandardScaler(), fw.sklearn.WideNetworkRegressor()
    ),
    "defaults of version 0.1, scaled data": lambda: make_pipeline(
        StandardScaler(), fw.sklearn.WideNetworkRegressor(**BEFORE, noise=0, normalize_y=False)
    ),
    "kernel ridge regression (RBF), defaults": lambda: KernelRidge(kernel="rbf"),
    "kernel ridge regression (RBF), scaled data, tuned": kernel_ridge,
    "Gaussian process of scikit-learn (RBF), scaled data, most likely": gaussian_process,
}
CLASSIFIERS = {
    "`WideNetworkClassifier()`": fw.sklearn.WideNetworkClassifier,
    "defaults of version 0.1": lambda: fw.sklearn.WideNetworkClassifier(**BEFORE, temperature=1.0),
    "logistic regression, scaled data": lambda: make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000)
    ),
    "support vectors (RBF), defaults, calibrated by cross-validation": lambda: CalibratedClassifierCV(
        SVC(), ensemble=False
    ),
}


def regression(make) -> tuple[float, float | None]:
    """R^2 over folds, and the share of targets within two standard deviations, if the model has them."""
    X, y = load_diabetes(return_X_y=True)
    scores, inside = [], []
    for train, test in FOLDS.split(X):
        model = make().fit(X[train], y[train])
        scores.append(r2_score(y[test], model.predict(X[test])))
        if "KernelRidge" not in repr(model):
            mean, std = model.predict(X[test], return_std=True)
            inside += [*(np.abs(y[test] - mean) < 2 * std)]
    return float(np.mean(scores)), float(np.mean(inside)) if inside else None


def classification(make) -> tuple[float, float, float]:
    """Accuracy, log loss, and the calibration error: |confidence - accuracy| over ten bins of confidence."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:1000], y[:1000]
    probabilities = np.empty((len(y), 10))
    for train, test in FOLDS.split(X):
        probabilities[test] = make().fit(X[train], y[train]).predict_proba(X[test])
    right, sure = probabilities.argmax(axis=1) == y, probabilities.max(axis=1)
    bins = np.minimum((10 * sure).astype(int), 9)
    error = sum(abs(np.sum(sure[bins == b] - right[bins == b])) for b in range(10)) / len(y)
    return float(right.mean()), float(log_loss(y, probabilities)), float(error)


def main() -> None:
    lines = [
        "# scikit-learn estimators",
        "",
        f"`python -m benchmarks.kernels.estimators`, {stamp()}. Five folds, shuffled with a fixed key;",
        "hyperparameters of competitors are chosen inside the training part of each fold.",
        "",
        "Diabetes, 442 samples as they come:",
        "",
        "| model | R² | targets within two standard deviations |",
        "|---|---|---|",
    ]
    for name, make in REGRESSORS.items():
        score, inside = regression(make)
        lines.append(f"| {name} | {score:.3f} | {'' if inside is None else f'{100 * inside:.1f} %'} |")
        print(lines[-1], flush=True)
    lines += [
        "",
        "Digits, the first 1000. The calibration error is the mean difference of confidence and accuracy",
        "over ten bins of confidence, weighted by their samples:",
        "",
        "| model | accuracy | log loss | calibration error |",
        "|---|---|---|---|",
    ]
    for name, make in CLASSIFIERS.items():
        accuracy, loss, error = classification(make)
        lines.append(f"| {name} | {100 * accuracy:.1f} % | {loss:.3f} | {error:.3f} |")
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
