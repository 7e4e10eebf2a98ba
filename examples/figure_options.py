"""Command-line options of all scripts that draw a figure."""

import argparse
from collections.abc import Sequence
from pathlib import Path

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"


def figure_options(about: str, name: str, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """--quick and --output, by default docs/figures/<name>.png."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small version of the figure, in seconds")
    parser.add_argument("--output", type=Path, default=FIGURES / f"{name}.png", help="where the figure goes")
    return parser.parse_args(arguments)
