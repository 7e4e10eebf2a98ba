"""Does finite width help or hurt? Expected test loss over depth and width of critical tanh networks.

    python examples/depth_and_width.py [--output figure.png]

Six patients of scikit-learn's diabetes data are the training set, six others the test set. Where the
coefficient of L/n is negative, networks of finite width do better than infinitely wide ones.
"""

from collections.abc import Sequence

from figure_options import figure_options
from sklearn.datasets import load_diabetes

import finitewidth as fw

TRAINING, TEST = 6, 6
DEPTHS, WIDTHS = (2, 3, 4, 5, 6), (32, 128)


def sweep(training: int, test: int, depths: Sequence[int]) -> fw.records.ExpectedLoss:
    """The expected loss; statistics are computed once for each depth and serve all widths."""
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    Y = ((y - y.mean()) / y.std())[:, None]
    rows, others = slice(training), slice(training, training + test)
    return fw.expected_loss(
        lambda widths: fw.MLP.critical(widths, "tanh"),
        X[rows],
        Y[rows],
        X[others],
        Y[others],
        depths=depths,
        widths=WIDTHS,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "depth_and_width", arguments)
    loss = sweep(3, 2, (2, 3)) if options.quick else sweep(TRAINING, TEST, DEPTHS)
    heads = "  ".join(f"width {n:<6.0f}" for n in loss.widths)
    print(f"depth  infinite width  {heads}  coefficient of L/n")
    for index, depth in enumerate(loss.depths):
        finite = "  ".join(f"{value:12.4f}" for value in loss.total[index])
        print(f"{depth:5.0f}  {loss.infinite_total[index]:14.4f}  {finite}  {loss.coefficient[index]:18.4f}")
    fw.plots.save(fw.plots.expected_loss(loss), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
