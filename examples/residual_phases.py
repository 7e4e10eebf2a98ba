"""Draw which skips and weights let residual networks be deep: phase diagrams of tanh and relu over gamma.

python examples/residual_phases.py [--output figure.png]
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

LARGEST = {"tanh": 2.0, "relu": 2.2}  # of C_W


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "residual_phases", arguments)
    points = 12 if options.quick else 120
    diagrams = [
        fw.critical.phase_diagram(
            name, 0.0, np.linspace(0.01, largest, points), gamma=np.linspace(0, 1, points)
        )
        for name, largest in LARGEST.items()
    ]
    fw.plots.save(fw.plots.phase_diagrams(diagrams), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
