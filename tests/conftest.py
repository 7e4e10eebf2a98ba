"""Every test runs in double precision, and with JAX's implicit promotion of types forbidden."""

from pathlib import Path

import jax
import pytest

import finitewidth  # noqa: F401  (switches double precision on)

jax.config.update("jax_numpy_dtype_promotion", "strict")

# what one test has compiled serves the others, in both workers; a bounded cache is one that is locked
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "compiled"))
jax.config.update("jax_compilation_cache_max_size", 2**32)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


@pytest.fixture
def key():
    """The same random numbers on every day."""
    return jax.random.key(20260215)
