"""Figures on disk, in the house style."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import ParamSpec

import matplotlib
from matplotlib.figure import Figure

FILE_TYPES = (".svg", ".png", ".pdf")
_DATES = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # fields to leave out

P = ParamSpec("P")


@contextmanager
def house_style() -> Iterator[None]:
    """A context in which figures are drawn and written in the house style."""
    with as_file(files("finitewidth.interface.figures") / "finitewidth.mplstyle") as style:
        rules = matplotlib.rc_params_from_file(style, use_default_template=False)
    with matplotlib.rc_context(rules):
        yield


def in_house_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """The same function, drawing in the house style."""

    @functools.wraps(draw)
    def styled(*arguments: P.args, **options: P.kwargs) -> Figure:
        with house_style():
            return draw(*arguments, **options)

    return styled


def write_figure(figure: Figure, path: Path) -> None:
    """Write the file type that `path` ends in, without a date, so that the same run writes the same bytes."""
    figure.savefig(path, metadata=_DATES.get(path.suffix, {}))


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure, the same bytes each time.

    Args:
        figure: A matplotlib figure.
        path: The file; its ending (.svg, .png or .pdf) says which type.

    ```python
    fw.plots.save(fw.plots.spectrum(fw.textbook.spectrum(net, X)), "spectrum.svg")
    ```
    """
    path = Path(path)
    if path.suffix not in FILE_TYPES:
        raise ValueError(f"path must end in .svg, .png or .pdf, got {str(path)!r}; rename it.")
    with house_style():
        try:
            write_figure(figure, path)
        except OSError as error:
            raise ValueError(f"path {str(path)!r} cannot be written: {error.strerror}.") from None
