"""Between and beyond two training points: what trained networks of several activations answer there.

    python examples/starpolation.py [--output figure.png]

Two inputs of equal norm, a right angle apart, train critical networks with targets 1 and -0.4; they are asked
on the whole line through the inputs. Deep linear networks answer with the straight line, others bend.
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
    found = [
        fw.starpolate(fw.MLP.critical((2, 1, 1, 1, 1), name), PLUS, MINUS, [1.0], [-0.4], s)
        for name in ACTIVATIONS
    ]
    fw.plots.save(fw.plots.starpolation(found), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
