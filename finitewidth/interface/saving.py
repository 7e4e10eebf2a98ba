"""Figures on disk, in the house style."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

FILE_TYPES = (".svg", ".png", ".pdf")


@contextmanager
def house_style() -> Iterator[None]:
    """Figures that are drawn and written inside have the look of the house."""
    with as_file(files("finitewidth.interface") / "finitewidth.mplstyle") as style:
        rules = matplotlib.rc_params_from_file(style, use_default_template=False)
    with matplotlib.rc_context(rules):
        yield


def write_figure(figure: Figure, path: Path) -> None:
    """As the file type that `path` ends in; no date inside, so that the same run writes the same bytes."""
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})


def save_figure(draw: Callable[[], Figure], path: str | Path) -> None:
    """Draw and write, as the file type that `path` ends in."""
    path = Path(path)
    if path.suffix not in FILE_TYPES:
        raise ValueError(f"path must end in .svg, .png or .pdf, got {str(path)!r}; rename it.")
    with house_style():
        figure = draw()
        try:
            write_figure(figure, path)
        except OSError as error:
            raise ValueError(f"path {str(path)!r} cannot be written: {error.strerror}.") from None
