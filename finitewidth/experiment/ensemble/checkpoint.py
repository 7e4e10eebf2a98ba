"""The store of an ensemble on disk: moments of batches as plain arrays, members' outputs, and the results.

The store itself, its lock and its lists of finished tasks are those of `finitewidth.core.checkpoint`.
"""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from jaxtyping import Float

from finitewidth.core.checkpoint import Store, array, open_group, writable
from finitewidth.core.storage.files import with_checksums
from finitewidth.experiment.partition import Partition
from finitewidth.experiment.streaming import JointMoments, Moments, Rows

if TYPE_CHECKING:
    import xarray


def flattened(totals: dict[str, Any]) -> dict[str, np.ndarray]:
    """Moments as one array for each of their parts, `name.part`."""
    arrays: dict[str, Any] = {}
    for name, value in totals.items():
        if isinstance(value, Moments | JointMoments | Rows):
            arrays |= {f"{name}.{part}": whole for part, whole in value._asdict().items()}
        else:
            arrays[name] = value
    return {name: np.asarray(value, dtype=np.float64) for name, value in arrays.items()}


def restored(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The moments that `flattened` turned into arrays."""
    totals: dict[str, Any] = {}
    nested: dict[str, dict[str, np.ndarray]] = {}
    for name, value in arrays.items():
        whole, _, part = name.partition(".")
        if part:
            nested.setdefault(whole, {})[part] = value
        else:
            totals[name] = value
    for name, parts in nested.items():
        kind = next(one for one in (Moments, JointMoments, Rows) if set(one._fields) == set(parts))
        totals[name] = kind(**parts)
    return totals


def keep_members(parts: Partition, store: Store, batch: int, arrays: dict[str, Any]) -> None:
    """Take the members' outputs out of a batch and write them to an array over all members."""
    if "member_outputs" not in arrays:
        return
    outputs, start = arrays.pop("member_outputs"), batch * parts.batch_size
    shape, dimensions = (parts.members, *outputs.shape[1:]), ("member", "record", "sample", "output")
    with writable(store.path):
        whole = array(store, "member_outputs", shape, parts.batch_size, dimensions)
        whole[start : start + len(outputs)] = outputs


def read_members(path: str | Path, count: int | None) -> Float[np.ndarray, "members record sample output"]:
    """The outputs of the first `count` members, or of all."""
    whole = zarr.open_group(path, mode="r")["member_outputs"]
    assert isinstance(whole, zarr.Array)
    return np.asarray(whole[:count])


def write_results(store: Store, results: "xarray.Dataset") -> None:
    """Write the results beside the batches; the store is finished when all of them are there."""
    if store.group.attrs.get("finished"):
        return
    results = results.assign_attrs(configuration=store.group.attrs["configuration"])  # with the version
    with writable(store.path), warnings.catch_warnings():
        # variables that a killed run had already written keep their encoding
        new = {name: with_checksums() for name in results.variables if str(name) not in store.group}
        results.to_zarr(store.path, mode="a", consolidated=False, encoding=new)
        open_group(store.path).attrs["finished"] = True
        # consolidated metadata are beyond the standard, but xarray asks for them
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(store.path)
