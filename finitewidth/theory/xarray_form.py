"""A theory as an xarray data set with named dimensions, on disk as a Zarr store, and back."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from finitewidth.core.storage.files import drafted, require_assertions, seal, with_checksums
from finitewidth.network.mlp import network_from_dict
from finitewidth.network.network import Network
from finitewidth.theory.tensors import MATRICES, TENSORS, stderr_name

if TYPE_CHECKING:
    import xarray

_SLOTS = ("sample_a", "sample_b", "sample_c", "sample_d")


class Contents(NamedTuple):
    """Everything that a theory holds, in arrays."""

    net: Network
    X: np.ndarray
    order: int
    error: float
    four_leg_error: float
    memory_error: float | None
    layers: dict[int, dict[str, np.ndarray]]  # by layer and name


def to_xarray(theory: Contents) -> "xarray.Dataset":
    """Every statistic over (layer, samples ...), the slots of a tensor in printed order.

    A statistic that a layer does not have, because of a kink below it, is NaN there.
    """
    import xarray

    kept = sorted(theory.layers)
    variables = {}
    names = (*MATRICES, *TENSORS)
    for name in (*names, *map(stderr_name, names)):
        present = [theory.layers[index][name] for index in kept if name in theory.layers[index]]
        if present:
            absent = np.full_like(present[0], np.nan) if len(present) < len(kept) else present[0]
            stacked = np.stack([theory.layers[index].get(name, absent) for index in kept])
            variables[name] = (("layer", *_SLOTS[: stacked.ndim - 1]), stacked)
    variables["X"] = (("sample_a", *input_dimensions(theory.X)), theory.X)
    about = {
        "kind": "finitewidth theory",
        "network": json.dumps(theory.net.to_dict()),
        "order": theory.order,
        "error": theory.error,
        "four_leg_error": theory.four_leg_error,
        "memory_error": "unknown" if theory.memory_error is None else theory.memory_error,
    }
    return xarray.Dataset(variables, coords={"layer": kept}, attrs=about)


def input_dimensions(X: np.ndarray) -> tuple[str, ...]:
    """Names for the axes of one input: its components, or its positions and channels."""
    if X.ndim == 2:
        return ("input",)
    return (*(f"position_{axis}" for axis in range(1, X.ndim - 1)), "channel")


def save(theory: Contents, path: str | Path) -> None:
    """Write to a temporary directory beside `path`, then rename: whole or not at all."""
    path = Path(path)
    if path.suffix != ".zarr":
        raise ValueError(f"path must end in .zarr, got {str(path)!r}; rename it.")
    require_assertions(path)
    if path.exists() and not _is_ours(path):
        raise ValueError(f"path {str(path)!r} exists and is not a theory; choose another.")
    data = to_xarray(theory)
    data.attrs["seal"] = _seal(data)
    encoding = {name: with_checksums() for name in data.variables}
    try:
        with drafted(path) as draft:
            data.to_zarr(draft, mode="w", consolidated=False, encoding=encoding)
    except OSError as error:
        raise ValueError(f"path {str(path)!r} cannot be written: {error.strerror}; choose another.") from None


def _seal(data: "xarray.Dataset") -> str:
    about = {name: value for name, value in data.attrs.items() if name != "seal"}
    return seal({str(name): np.asarray(value) for name, value in data.variables.items()}, about)


def _is_ours(path: Path) -> bool:
    try:
        return _open(path).attrs.get("kind") == "finitewidth theory"
    except ValueError:
        return False


def _open(path: Path) -> "xarray.Dataset":
    import xarray

    try:
        return xarray.open_zarr(path, consolidated=False, chunks=None)
    except FileNotFoundError:
        raise ValueError(f"path {str(path)!r} does not exist; check the name.") from None
    except Exception as error:  # zarr raises many kinds for damaged stores
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"path {str(path)!r} is not a readable store ({reason}).") from None


def load(path: str | Path) -> Contents:
    """The contents that `save` wrote."""
    require_assertions(Path(path))
    data = _open(Path(path))
    about = data.attrs
    if about.get("kind") != "finitewidth theory":
        raise ValueError(f"path {str(path)!r} holds no theory; load it with what saved it.")
    try:
        if _seal(data) != about.get("seal"):
            raise ValueError("it is not what was saved")
    except Exception as error:  # a chunk that is missing or damaged
        raise ValueError(f"path {str(path)!r} is damaged ({error}); solve again and save it.") from None
    net = network_from_dict(json.loads(about["network"]))
    arrays = {str(name): np.asarray(data[name]) for name in data.data_vars}
    X = arrays.pop("X")
    layers = {
        int(index): {name: value[i] for name, value in arrays.items() if not np.isnan(value[i]).all()}
        for i, index in enumerate(data["layer"].values)
    }
    left_out = about.get("memory_error", 0.0)
    errors = about["error"], about["four_leg_error"], None if left_out == "unknown" else left_out
    return Contents(net, X, about["order"], *errors, layers)
