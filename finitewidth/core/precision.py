"""Double precision, which every computation needs, is switched on and checked here."""

import os
import sys


def enable_double_precision() -> None:
    """Switch on float64 without importing JAX, unless the user has set JAX_ENABLE_X64."""
    if "jax" in sys.modules:
        if "JAX_ENABLE_X64" not in os.environ:
            sys.modules["jax"].config.update("jax_enable_x64", True)
    else:
        os.environ.setdefault("JAX_ENABLE_X64", "1")


def require_double_precision() -> None:
    """Refuse to compute in single precision."""
    import jax

    if not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "finitewidth needs double precision, but jax_enable_x64 is off; remove JAX_ENABLE_X64=0 "
            'from the environment or call jax.config.update("jax_enable_x64", True).'
        )
