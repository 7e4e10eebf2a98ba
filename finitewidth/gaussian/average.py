"""A Gaussian average with what is known about its error."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float


class Average(eqx.Module):
    """Values of a Gaussian average and an estimate, from above, of their largest absolute error."""

    value: Float[Array, "..."] | Float[np.ndarray, "..."]
    error: float
