"""`fw.torch` by its short path, for `import finitewidth.torch`: one module with two names."""

import sys

from finitewidth.interface.adapters import torch
from finitewidth.interface.adapters.torch import *  # noqa: F403 (type checkers follow this line)

sys.modules[__name__] = torch
