"""Algorithms that fit the same data differ at finite width: the weight that each gives to modes of the NTK.

    python examples/inductive_bias.py [--output figure.png]

Six patients of scikit-learn's diabetes data are the training set, two others the test set. The table gives
the ratio of the projector that depends on the algorithm to the one that does not, at the slowest and the
fastest mode, and the correction of order 1/n.
"""

from collections.abc import Sequence

from figure_options import figure_options
from sklearn.datasets import load_diabetes

import finitewidth as fw

TRAINING, TEST, WIDTH = 6, 2, 64


def compare(training: int) -> fw.records.InductiveBias:
    """All algorithms on one problem, with the same statistics."""
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    Y = ((y - y.mean()) / y.std())[:, None]
    net = fw.MLP.critical((X.shape[1], WIDTH, WIDTH, 1), "tanh")
    rows, others = slice(training), slice(training, training + TEST)
    return fw.textbook.inductive_bias(fw.prepare(net, X[rows], Y[rows], X[others]))


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "inductive_bias", arguments)
    bias = compare(3 if options.quick else TRAINING)
    print(bias.table())
    fw.plots.save(fw.plots.inductive_bias(bias), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
