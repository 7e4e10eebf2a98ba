"""A sampled number with its standard error."""

from typing import NamedTuple

import numpy as np

from finitewidth.core.display.records import shown


@shown("value", "stderr")
class Estimate(NamedTuple):
    """A value and its standard error: two scalars, or two arrays of the same shape.

    ```python
    fw.Estimate(np.float64(0.31), np.float64(0.02))  # shown as 0.31 ± 0.02
    ```
    """

    value: np.ndarray  # the estimate
    stderr: np.ndarray  # its standard error
