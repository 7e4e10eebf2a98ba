"""The figure of a record, for its method `plot`."""

from typing import Any

from matplotlib.figure import Figure

from finitewidth.interface.figures import plots


def drawn(figure: str, record: Any, **options: Any) -> Figure:
    """The figure of that name in `fw.plots`, from one record and what else it takes."""
    return getattr(plots, figure)(record, **options)
