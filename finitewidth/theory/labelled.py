"""A theory as an xarray data set with named dimensions, on disk as a Zarr store, and back."""

import json
from pathlib import Path

import numpy as np
import xarray

from finitewidth.core.storage import drafted, seal, with_checksums
from finitewidth.network.mlp import MLP
from finitewidth.theory.solve import MATRICES, TENSORS, Layer, Theory

_SLOTS = ("sample_a", "sample_b", "sample_c", "sample_d")


def to_xarray(theory: Theory) -> xarray.Dataset:
    """Every statistic over (layer, samples ...), the slots of a tensor in printed order."""
    kept = sorted(theory.layers)
    names = [name for name in (*MATRICES, *TENSORS) if name in theory.layers[kept[0]].arrays]
    variables = {}
    for name in names:
        stacked = np.stack([theory.layers[index].arrays[name] for index in kept])
        variables[name] = (("layer", *_SLOTS[: stacked.ndim - 1]), stacked)
    variables["X"] = (("sample_a", "input"), theory.X)
    about = {
        "kind": "finitewidth theory",
        "network": json.dumps(theory.net.to_dict()),
        "order": theory.order,
        "error": theory.error,
        "four_leg_error": theory.four_leg_error,
    }
    return xarray.Dataset(variables, coords={"layer": kept}, attrs=about)


def save(theory: Theory, path: str | Path) -> None:
    """Write to a temporary directory beside `path`, then rename: whole or not at all."""
    path = Path(path)
    if path.suffix != ".zarr":
        raise ValueError(f"path must end in .zarr, got {str(path)!r}; rename it.")
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


def _seal(data: xarray.Dataset) -> str:
    about = {name: value for name, value in data.attrs.items() if name != "seal"}
    return seal({str(name): np.asarray(value) for name, value in data.variables.items()}, about)


def _is_ours(path: Path) -> bool:
    try:
        return _open(path).attrs.get("kind") == "finitewidth theory"
    except ValueError:
        return False


def _open(path: Path) -> xarray.Dataset:
    try:
        return xarray.open_zarr(path, consolidated=False, chunks=None)
    except FileNotFoundError:
        raise ValueError(f"path {str(path)!r} does not exist; check the name.") from None
    except Exception as error:  # zarr raises many kinds for damaged stores
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"path {str(path)!r} is not a readable store ({reason}).") from None


def load(path: str | Path) -> Theory:
    """The theory that `save` wrote."""
    data = _open(Path(path))
    about = data.attrs
    if about.get("kind") != "finitewidth theory":
        raise ValueError(f"path {str(path)!r} holds no theory; load it with what saved it.")
    try:
        if _seal(data) != about.get("seal"):
            raise ValueError("it is not what was saved")
    except Exception as error:  # a chunk that is missing or damaged
        raise ValueError(f"path {str(path)!r} is damaged ({error}); solve again and save it.") from None
    net = MLP.from_dict(json.loads(about["network"]))
    arrays = {str(name): np.asarray(data[name]) for name in data.data_vars}
    X = arrays.pop("X")
    layers = {
        int(index): Layer(net, int(index), {name: value[i] for name, value in arrays.items()})
        for i, index in enumerate(data["layer"].values)
    }
    return Theory(net, X, about["order"], about["error"], about["four_leg_error"], layers)
