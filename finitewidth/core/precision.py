"""Double precision, which every computation needs, is switched on and checked here."""

import os
import sys

from finitewidth.core.display.user_warnings import warn


def enable_double_precision() -> None:
    """Switch on float64 without importing JAX, unless the user has set JAX_ENABLE_X64."""
    jax = sys.modules.get("jax")
    if jax is None:
        os.environ.setdefault("JAX_ENABLE_X64", "1")
    elif "JAX_ENABLE_X64" not in os.environ and not jax.config.read("jax_enable_x64"):
        if _has_arrays():
            warn(
                "importing finitewidth switches JAX to float64, and JAX already holds arrays in float32; "
                "import finitewidth first, or set JAX_ENABLE_X64=0 and call it inside "
                "`with jax.enable_x64(True):`.",
                UserWarning,
            )
        jax.config.update("jax_enable_x64", True)


def _has_arrays() -> bool:
    """Whether JAX holds arrays; a JAX that has not begun to work is left alone."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    begun = getattr(bridge, "backends_are_initialized", lambda: True)
    return bool(begun() and sys.modules["jax"].live_arrays())


def keep_double_precision() -> None:
    """Begin a thread in double precision: `with jax.enable_x64(True)` is local to the thread that says it."""
    import jax

    if not jax.config.read("jax_enable_x64"):
        jax.enable_x64(True).__enter__()


def require_double_precision() -> None:
    """Refuse to compute in single precision."""
    import jax

    if not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "finitewidth needs double precision, but jax_enable_x64 is off; remove JAX_ENABLE_X64=0 "
            'from the environment, call jax.config.update("jax_enable_x64", True), or compute inside '
            "`with jax.enable_x64(True):`."
        )
