"""Records that show what they hold: one line in a shell, a table in a notebook, arrays with names, a figure.

    @shown("mean", "std", dimensions={"mean": "sample output"}, figure="trained_outputs")
    @dataclass(frozen=True, eq=False)
    class Prediction: ...

The names are attributes or properties. One that does not exist, is None or cannot be had is left out, and so
is an error that is zero everywhere: nothing was sampled, or nothing is neglected.
"""

import html
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from finitewidth.core.display.numbers import number

if TYPE_CHECKING:
    import xarray

T = TypeVar("T", bound=type)

ALSO = ("uncertainty", "verdict")  # shown by every record that has them
ERRORS = ("stderr", "uncertainty", "variance_stderr", "variance_uncertainty")
MOST = 6  # numbers of an array that are all number


def shown(
    *names: str, dimensions: Mapping[str, str] | None = None, figure: str | None = None
) -> Callable[[T], T]:
    """Let records of a class show these values.

    With `dimensions`, the names of the axes of some arrays, they get a `to_xarray`; with `figure`, the name
    of a function of `fw.plots` that takes one record, a `plot`.
    """

    def decorated(kind: T) -> T:
        labels = (*names, *(name for name in ALSO if name not in names))
        methods: dict[str, Any] = {
            "__repr__": lambda self: _line(self, labels),
            "_repr_html_": lambda self: _table(self, labels),
        }
        if dimensions is not None:
            methods["to_xarray"] = _dataset_of(dimensions)
        if figure is not None:
            methods["plot"] = _drawn_by(figure)
        for name, method in methods.items():
            setattr(kind, name, method)
        return kind

    return decorated


def over_samples(matrices: Iterable[str], tensors: Iterable[str]) -> dict[str, str]:
    """The dimensions of matrices between two samples and of tensors between four."""
    pairs = dict.fromkeys(matrices, "sample_a sample_b")
    return pairs | dict.fromkeys(tensors, "sample_a sample_b sample_c sample_d")


# --- text ---------------------------------------------------------------------------------------------


def _values(record: Any, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in names:
        value = _value(record, name)
        if value is None or callable(value) or (name in ERRORS and not np.any(value)):
            continue
        yield name, value


def _value(record: Any, name: str) -> Any:
    try:
        return getattr(record, name, None)
    except ValueError:  # what was not computed says so
        return None


def _line(record: Any, names: tuple[str, ...]) -> str:
    parts = (f"{name}={_text(value)}" for name, value in _values(record, names))
    return f"{type(record).__name__}({', '.join(parts)})"


def _table(record: Any, names: tuple[str, ...]) -> str:
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name.replace("_", " "))}</th>'
        f'<td style="text-align:left">{html.escape(_text(value))}</td></tr>'
        for name, value in _values(record, names)
    )
    return f"<table><caption>{type(record).__name__}</caption>{rows}</table>"


def _text(value: Any, digits: int = 6) -> str:
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if hasattr(value, "value") and hasattr(value, "stderr"):  # an estimate
        return f"{_text(value.value)} ± {_text(value.stderr)}"
    if isinstance(value, int | float | np.number):
        return str(value) if isinstance(value, int | np.integer) else number(float(value), digits)
    if hasattr(value, "shape"):
        return _array(np.asarray(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items()) or "none"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_text, value))})"
    return str(value)


def _array(values: np.ndarray) -> str:
    if values.size == 0:
        return "empty"
    if values.ndim == 0:
        return _text(values[()])
    if values.dtype.kind not in "biuf":
        return f"{_shape(values)} of {values.dtype}"
    if values.size <= MOST:
        return f"[{', '.join(_text(one, 4) for one in values.ravel())}]"
    known = values[~np.isnan(values)]
    if known.size == 0:
        return f"{_shape(values)}, all missing"
    missing = f", {values.size - known.size} missing" if known.size < values.size else ""
    return f"{_shape(values)} from {_text(known.min(), 4)} to {_text(known.max(), 4)}{missing}"


def _shape(values: np.ndarray) -> str:
    return " x ".join(map(str, values.shape))


# --- arrays and figures -------------------------------------------------------------------------------


def _dataset_of(dimensions: Mapping[str, str]) -> Callable[[Any], "xarray.Dataset"]:
    def to_xarray(self) -> "xarray.Dataset":
        """The arrays of this record with named dimensions, as an xarray data set."""
        import xarray

        variables = {}
        for name, value in _values(self, tuple(dimensions)):
            axes = dimensions[name].split()
            if hasattr(value, "stderr"):
                variables[f"{name}_stderr"] = (axes, np.asarray(value.stderr))
                value = value.value
            variables[name] = (axes, np.asarray(value))
        return xarray.Dataset(variables, attrs={"record": repr(self)})

    return to_xarray


def _drawn_by(figure: str) -> Callable[..., Any]:
    def plot(self, **options: Any) -> Any:
        """The figure of this record, as fw.plots draws it; a matplotlib figure."""
        from finitewidth.interface.figures.of_records import drawn  # a door against the flow

        return drawn(figure, self, **options)

    return plot
