"""Does finite width help or hurt? Expected test loss over depth and width of critical tanh networks.

    python examples/depth_and_width.py [figure.png]

Six of the patients in scikit-learn's diabetes data train, six are asked about. Where the coefficient of L/n
is negative, networks of finite width do better than infinitely wide ones.
"""

import sys

from sklearn.datasets import load_diabetes

import finitewidth as fw
from finitewidth.interface.learning_figures import save_expected_loss

TRAINING, TEST = 6, 6
DEPTHS, WIDTHS = (2, 3, 4, 5, 6), (32, 128)


def sweep() -> fw.ExpectedLoss:
    """Every depth needs its statistics once; widths are free."""
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    Y = ((y - y.mean()) / y.std())[:, None]
    rows, asked = slice(TRAINING), slice(TRAINING, TRAINING + TEST)
    return fw.expected_loss(
        lambda widths: fw.MLP.critical(widths, "tanh"),
        X[rows],
        Y[rows],
        X[asked],
        Y[asked],
        depths=DEPTHS,
        widths=WIDTHS,
    )


def main(path: str = "depth_and_width.png") -> None:
    found = sweep()
    print(
        "depth  infinite width  "
        + "  ".join(f"width {n:<6.0f}" for n in found.widths)
        + "  coefficient of L/n"
    )
    for index, depth in enumerate(found.depths):
        finite = "  ".join(f"{value:12.4f}" for value in found.total[index])
        print(
            f"{depth:5.0f}  {found.infinite_total[index]:14.4f}  {finite}  {found.coefficient[index]:18.4f}"
        )
    save_expected_loss(found, path)
    print(f"figure written to {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
