"""`fw.plots` by its short path, for `import finitewidth.plots`: one module with two names."""

import sys

from finitewidth.interface.figures import plots
from finitewidth.interface.figures.plots import *  # noqa: F403 (type checkers follow this line)

sys.modules[__name__] = plots
