"""Handwritten digits by infinitely wide networks: how good are they, and what do ridge and early stopping do?

    python examples/digits.py

600 of the 1797 images of scikit-learn's digits are the training set, 300 choose the stopping time, and the
other 897 are the test set. Nothing is tuned on the test images.
"""

from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import finitewidth as fw

NETWORKS = {
    "linear": dict(activation="linear", C_b=0.0, C_W=1.0),
    "relu": dict(activation="relu", C_b=0.0, C_W=2.0),
    "tanh": dict(activation="tanh", C_b=0.0, C_W=1.0),
}
TIMES = np.geomspace(1e-3, 1e3, 13)


class Data(NamedTuple):
    """Inputs and labels of the three parts."""

    X: np.ndarray
    labels: np.ndarray
    X_validation: np.ndarray
    labels_validation: np.ndarray
    X_test: np.ndarray
    labels_test: np.ndarray


class Row(NamedTuple):
    """Test accuracies of one network in percent."""

    network: str
    end_of_training: float
    ridge: float
    early_stopping: float
    posterior: float

    def __str__(self) -> str:
        return f"| {self.network} | " + " | ".join(f"{value:.1f}" for value in self[1:]) + " |"


def load() -> Data:
    """Pixels with mean zero and a mean square of one over the training images."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order], labels[order]
    images = images - images[:600].mean(axis=0)
    images /= np.sqrt(np.mean(images[:600] ** 2))
    parts = (slice(0, 600), slice(600, 900), slice(900, None))
    return Data(*(array[part] for part in parts for array in (images, labels)))


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    return 100 * float(np.mean(outputs.argmax(axis=1) == labels))


def row(name: str, data: Data) -> Row:
    """One network, four ways to use it."""
    net = fw.MLP((64, 1, 1, 10), **NETWORKS[name])
    Y = fw.losses.one_hot(data.labels, 10) - 0.1  # the outputs of an untrained network have mean zero
    Y_validation = fw.losses.one_hot(data.labels_validation, 10) - 0.1
    test = data.X_test
    ridge = fw.choose_ridge(net, data.X, Y).best_leave_one_out
    path = fw.trajectory(net, data.X, Y, data.X_validation, times=TIMES, order=0)
    time = path.stopping_time(Y_validation).time
    cutoff = 1e-12 if name == "linear" else 0.0  # 600 images have 65 linear features: the NTK is singular
    outputs = (
        fw.fit(net, data.X, Y, cutoff=cutoff).mean(test),
        fw.fit(net, data.X, Y, ridge=ridge).mean(test),
        fw.fit(net, data.X, Y, algorithm=fw.GradientFlow(time)).mean(test),
        fw.bayes.posterior(net, data.X, Y, test, noise=0.01, order=0).mean,
    )
    return Row(name, *(accuracy(one, data.labels_test) for one in outputs))


def table() -> list[str]:
    """All rows, and logistic regression to compare with."""
    data = load()
    rows = [str(row(name, data)) for name in NETWORKS]
    peer = LogisticRegression(C=0.01, max_iter=1000).fit(data.X, data.labels)
    plain = 100 * peer.score(data.X_test, data.labels_test)
    return [*rows, f"| logistic regression on the pixels | {plain:.1f} | | | |"]


if __name__ == "__main__":
    print("| network | end of training | ridge by leave-one-out | early stopping | posterior, noise 0.01 |")
    print("| --- | --- | --- | --- | --- |")
    print("\n".join(table()))
