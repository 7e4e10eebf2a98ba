"""Outputs of trained networks between and beyond two training points, for several activations.

    python examples/starpolation.py [--output figure.png]

Critical networks are trained on two inputs of equal norm at a right angle, with targets 1 and -0.4, and
evaluated on the line through the inputs. The outputs of deep linear networks are a straight line; the others
are curved.
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

ACTIVATIONS = ("linear", "relu", "tanh", "gelu")
PLUS, MINUS = np.array([1.4, 0.0]), np.array([0.0, 1.4])


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "starpolation", arguments)
    s = np.linspace(-1.0, 2.0, 13 if options.quick else 121)
    lines = [
        fw.textbook.starpolate(fw.MLP.critical((2, 1, 1, 1, 1), name), PLUS, MINUS, [1.0], [-0.4], s)
        for name in ACTIVATIONS
    ]
    fw.plots.save(fw.plots.starpolation(lines), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
