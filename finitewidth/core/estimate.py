"""A number that was sampled, with its standard error."""

from typing import NamedTuple

import numpy as np


class Estimate(NamedTuple):
    """A value and its standard error, scalars or arrays of one shape."""

    value: np.ndarray
    stderr: np.ndarray
