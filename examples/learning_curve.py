"""How the error of wide networks falls with the number of digits that they learn.

    python examples/learning_curve.py [--output figure.png]

Expected over random subsets of 1797 digits from one spectrum, without drawing any; beside it kernel
prediction from drawn subsets, and real networks of width 128, whose mean over eight networks is scored. Their
descent has the same ridge.
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options
from sklearn.datasets import load_digits

import finitewidth as fw

WIDTH, NOISE, STEPS, NETWORKS, DRAWS = 128, 1.0, 400, 8, 3
TRAINED = (10, 30, 100)


def digits(count: int) -> tuple[np.ndarray, np.ndarray]:
    data = load_digits()
    X = data.data / data.data.std()
    return (X - X.mean())[:count], np.eye(10)[data.target[:count]] - 0.1


def trained(net: fw.MLP, X: np.ndarray, Y: np.ndarray, N: int, draws: int) -> fw.Estimate:
    """The test error of the mean over networks, averaged over random subsets; 200 points are tested."""
    errors = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(X))
        inside, outside = order[:N], order[N : N + 200]
        eta = 1 / (fw.textbook.spectrum(net, X[inside]).eigenvalues[-1] + NOISE)
        descent = fw.GradientDescent(eta, STEPS, momentum=0.9, ridge=NOISE)
        ensemble = fw.train_ensemble(
            net, X[inside], Y[inside], X[outside], algorithm=descent, members=NETWORKS, key=draw
        )
        mean = ensemble.mean.value - Y[outside]
        errors.append(np.mean(mean**2 - ensemble.mean.stderr**2))  # without what few networks add
    return fw.Estimate(np.asarray(np.mean(errors)), np.std(errors, ddof=1) / np.sqrt(draws))


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "learning_curve", arguments)
    X, Y = digits(120 if options.quick else 1797)
    width, sizes = (16, (10, 40)) if options.quick else (WIDTH, (10, 30, 100, 300, 1000))
    net = fw.MLP((64, width, width, 10), "relu", C_W=2.0, lambda_b=0.1)
    curve = fw.learning_curve(net, X, Y, sizes, noise=NOISE, subsets=2 if options.quick else 8, key=1)
    networks = [] if options.quick else [(N, trained(net, X, Y, N, DRAWS)) for N in TRAINED]
    fw.plots.save(fw.plots.learning_curve(curve, networks), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
