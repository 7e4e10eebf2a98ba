"""Kernels of many architectures by neural-tangents, which `data/make_neural_tangents.py` has written down."""

import functools
import json
from typing import NamedTuple

import numpy as np

from helpers.paths import DATA

# rows of the distinct inputs: X repeats one and has a multiple of another, X_other has inputs of X in it
FIRST, SECOND = (0, 1, 2, 3, 0, 4), (1, 5, 3, 7, 6, 5)


class Reference(NamedTuple):
    """A network as plain numbers and strings, with its kernels between distinct inputs."""

    name: str
    network: dict  # as `fw.Network.from_dict` takes it
    inputs: np.ndarray
    K: np.ndarray
    Theta: np.ndarray

    @property
    def X(self) -> np.ndarray:
        return self.inputs[list(FIRST)]

    @property
    def X_other(self) -> np.ndarray:
        return self.inputs[list(SECOND)]

    def of_X(self) -> tuple[np.ndarray, np.ndarray]:
        """K and Theta of X."""
        return self.K[np.ix_(FIRST, FIRST)], self.Theta[np.ix_(FIRST, FIRST)]

    def between(self) -> tuple[np.ndarray, np.ndarray]:
        """K and Theta between X and X_other."""
        return self.K[np.ix_(FIRST, SECOND)], self.Theta[np.ix_(FIRST, SECOND)]

    @property
    def tolerances(self) -> tuple[float, float]:
        """Of K and Theta; for a kink Theta between parallel sites has the square root of a rounding error."""
        text = json.dumps(self.network)
        return 1e-10, 1e-7 if "relu" in text or "scale_invariant" in text else 1e-10


@functools.cache
def references() -> dict[str, Reference]:
    """All of them by name."""
    with np.load(DATA / "neural_tangents.npz") as arrays:
        names = [key.removesuffix("/network") for key in arrays.files if key.endswith("/network")]
        return {name: _read(arrays, name) for name in names}


def _read(arrays, name: str) -> Reference:
    network = json.loads(str(arrays[f"{name}/network"]))
    shape = "x".join(map(str, network["input_shape"]))
    return Reference(name, network, arrays[f"inputs/{shape}"], arrays[f"{name}/K"], arrays[f"{name}/Theta"])
