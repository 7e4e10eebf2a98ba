"""A sampled number with its standard error."""

from typing import NamedTuple

import numpy as np

from finitewidth.core.display.records import shown


@shown("value", "stderr")
class Estimate(NamedTuple):
    """A value and its standard error: two scalars, or two arrays of the same shape."""

    value: np.ndarray
    stderr: np.ndarray
