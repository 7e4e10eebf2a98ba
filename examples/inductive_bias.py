"""Two algorithms that fit the same data differ at finite width: how each weighs the modes of the NTK.

    python examples/inductive_bias.py [figure.png]

Six of scikit-learn's diabetes patients train, two are asked about. The table gives the projector that knows
the algorithm over the one that does not, at the slowest and the fastest mode, and the correction of order
1/n.
"""

import sys

from sklearn.datasets import load_diabetes

import finitewidth as fw
from finitewidth.interface.learning_figures import save_inductive_bias

TRAINING, TEST, WIDTH = 6, 2, 64


def compare() -> fw.InductiveBias:
    """All algorithms on one problem, with the same statistics."""
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    Y = ((y - y.mean()) / y.std())[:, None]
    net = fw.MLP.critical((X.shape[1], WIDTH, WIDTH, 1), "tanh")
    rows, asked = slice(TRAINING), slice(TRAINING, TRAINING + TEST)
    return fw.inductive_bias(fw.finite_width(net, X[rows], Y[rows], X[asked]))


def main(path: str = "inductive_bias.png") -> None:
    found = compare()
    print(found.table())
    save_inductive_bias(found, path)
    print(f"figure written to {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
