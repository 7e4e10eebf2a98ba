"""Draw where deep networks can be trained: phase diagrams of tanh and gelu with their critical points.

python examples/phase_diagram.py [--output figure.png]
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

RANGES = {"tanh": ((0.0, 0.3), (0.5, 2.5)), "gelu": ((0.0, 0.5), (1.7, 2.2))}  # of C_b and C_W


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "phase_diagram", arguments)
    points = 20 if options.quick else 200
    diagrams = [
        fw.critical.phase_diagram(name, *(np.linspace(*ends, points) for ends in ranges))
        for name, ranges in RANGES.items()
    ]
    fw.plots.save(fw.plots.phase_diagrams(diagrams), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
