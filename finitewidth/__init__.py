"""The effective theory of deep neural networks, made computable.

Public names are listed in `__init__.pyi` and imported at first use, so that `import finitewidth` takes
milliseconds.
"""

import lazy_loader

from finitewidth.core.precision import enable_double_precision

enable_double_precision()  # before anything imports JAX

__version__ = "0.2.0"

__getattr__, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]
