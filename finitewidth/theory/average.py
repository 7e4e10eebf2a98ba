"""A Gaussian average with what is known about its error."""

import equinox as eqx
from jaxtyping import Float


class Average(eqx.Module):
    """Values of a Gaussian average and an estimate, from above, of their largest absolute error."""

    value: Float[object, "..."]
    error: float
