"""A Gaussian average with an estimate of its error."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float


class Average(eqx.Module):
    """Values of a Gaussian average and an upper estimate of their largest absolute error."""

    value: Float[Array, "..."] | Float[np.ndarray, "..."]
    error: float
