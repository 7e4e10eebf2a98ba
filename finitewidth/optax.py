"""`fw.optax` by its short path, for `import finitewidth.optax`: one module with two names."""

import sys

from finitewidth.interface.adapters import optax
from finitewidth.interface.adapters.optax import *  # noqa: F403 (type checkers follow this line)

sys.modules[__name__] = optax
