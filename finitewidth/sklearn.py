"""`fw.sklearn` by its short path, for `import finitewidth.sklearn`: one module with two names."""

import sys

from finitewidth.interface.adapters import sklearn
from finitewidth.interface.adapters.sklearn import *  # noqa: F403 (type checkers follow this line)

sys.modules[__name__] = sklearn
