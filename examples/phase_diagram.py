"""Draw where deep networks can be trained: phase diagrams of tanh and gelu with their critical points.

    python examples/phase_diagram.py [directory]

writes phase_diagram.png into the directory, docs/figures if none is given.
"""

import sys
from pathlib import Path

import numpy as np

import finitewidth as fw
from finitewidth.interface.plots import save_phase_diagrams

GRIDS = {  # activation: C_b, C_W
    "tanh": (np.linspace(0.0, 0.3, 200), np.linspace(0.5, 2.5, 200)),
    "gelu": (np.linspace(0.0, 0.5, 200), np.linspace(1.7, 2.2, 200)),
}


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    save_phase_diagrams([fw.phase_diagram(name, *grid) for name, grid in GRIDS.items()], directory)
    print(directory / "phase_diagram.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "figures")
