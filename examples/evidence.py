"""Depths, widths and activations ranked by the evidence of one data set.

python examples/evidence.py [--output figure.png]
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

X = np.linspace(-1.5, 1.5, 6)[:, None] * np.array([[1.0, 0.5]]) + np.array([[0.3, -0.4]])
Y = 0.6 * np.sin(2 * X[:, :1])


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "evidence", arguments)
    ranking = fw.bayes.rank(candidates(options.quick), X, Y, noise=0.02)
    print(ranking)
    fw.plots.save(fw.plots.evidence_of_networks(ranking), options.output)
    print(f"figure written to {options.output}")


def candidates(quick: bool) -> list[fw.MLP]:
    """Depths, widths and activations with biases of one variance."""
    variances = {"tanh": 1.3, "gelu": 1.9, "relu": 2.0}
    depths, widths = ((2,), (16, 64)) if quick else ((2, 3, 5), (16, 128))
    return [
        fw.MLP((2, *[width] * (depth - 1), 1), name, C_b=0.05, C_W=C_W)
        for name, C_W in variances.items()
        for depth in depths
        for width in widths
    ]


if __name__ == "__main__":
    main()
