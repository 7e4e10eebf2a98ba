"""Two algorithms that fit the same data differ at finite width: how each weighs the modes of the NTK.

    python examples/inductive_bias.py [--output figure.png]

Six of scikit-learn's diabetes patients train, two are asked about. The table gives the projector that knows
the algorithm over the one that does not, at the slowest and the fastest mode, and the correction of order
1/n.
"""

from collections.abc import Sequence

from figure_options import figure_options
from sklearn.datasets import load_diabetes

import finitewidth as fw

TRAINING, TEST, WIDTH = 6, 2, 64


def compare(training: int) -> fw.InductiveBias:
    """All algorithms on one problem, with the same statistics."""
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    Y = ((y - y.mean()) / y.std())[:, None]
    net = fw.MLP.critical((X.shape[1], WIDTH, WIDTH, 1), "tanh")
    rows, asked = slice(training), slice(training, training + TEST)
    return fw.inductive_bias(fw.finite_width(net, X[rows], Y[rows], X[asked]))


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "inductive_bias", arguments)
    found = compare(3 if options.quick else TRAINING)
    print(found.table())
    fw.plots.save(fw.plots.inductive_bias(found), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
