"""Kernel regression on handwritten digits: what do convolutions add to a perceptron?

    python examples/cnn_digits.py [training images] [test images]

By default 500 images of scikit-learn's digits are the training set, and 797 others the test set. Each network
is used twice: with the NTK, as networks trained on the squared error, and with the kernel K, as Bayesian
inference. One evaluation of the kernels serves both. The averages compare all positions of an image with all
positions of another one, and take most of the time.
"""

import sys
import time
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import finitewidth as fw

SHAPE, RIDGE = (8, 8, 1), 1e-4  # the ridge in units of the mean diagonal of the kernel
CONVOLUTIONS = [fw.Conv(64, C_W=2.17), "relu"] * 3  # above 2, since zeros at the edges take something away
BLOCK = fw.Residual("relu", fw.Conv(64, C_W=0.4), gamma=0.9)
NETWORKS = {
    "perceptron": [fw.Flatten(), *[fw.Dense(64, C_W=2.0), "relu"] * 3],
    "convolutions, flattened": [*CONVOLUTIONS, fw.Flatten()],
    "residual convolutions, flattened": [fw.Conv(64, C_W=2.0), *[BLOCK] * 5, "relu", fw.Flatten()],
    "convolutions, averaged": [*CONVOLUTIONS, fw.GlobalAveragePool()],
}


class Row(NamedTuple):
    """Test accuracies of one network in percent, and the seconds that its kernels took."""

    network: str
    trained: float
    bayesian: float
    seconds: float

    def __str__(self) -> str:
        return f"| {self.network} | {self.trained:.1f} | {self.bayesian:.1f} | {self.seconds:.1f} |"


def load(training: int, tested: int) -> tuple[np.ndarray, ...]:
    """Images with a mean square of one over the training images, and their labels."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = pixels[order].reshape(-1, *SHAPE), labels[order]
    images = images / np.sqrt(np.mean(images[:training] ** 2))
    return images[:training], labels[:training], images[-tested:], labels[-tested:]


def row(name: str, training: int, tested: int) -> Row:
    """Accuracies with the NTK and with the kernel."""
    X, labels, X_test, labels_test = load(training, tested)
    net, Y = fw.Network(SHAPE, *NETWORKS[name], fw.Dense(10)), fw.losses.one_hot(labels, 10) - 0.1
    start = time.perf_counter()
    train, cross = fw.kernels(net, X), fw.kernels(net, X_test, X)
    seconds = time.perf_counter() - start
    accuracies = []
    for within, between in ((train.Theta, cross.Theta), (train.K, cross.K)):
        ridge = RIDGE * np.trace(within) / training
        outputs = between @ np.linalg.solve(within + ridge * np.eye(training), Y)
        accuracies.append(100 * float(np.mean(outputs.argmax(axis=1) == labels_test)))
    return Row(name, *accuracies, seconds)


def main(training: int = 500, tested: int = 797) -> list[Row]:
    """Print the table, row by row."""
    print("| network | trained (NTK) | Bayesian (K) | seconds |\n| --- | --- | --- | --- |")
    rows = []
    for name in NETWORKS:
        rows.append(row(name, training, tested))
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
