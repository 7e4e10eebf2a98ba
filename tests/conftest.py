"""Every test runs in double precision, and with JAX's implicit promotion of types forbidden."""

import jax
import pytest

import finitewidth  # noqa: F401  (switches double precision on)

jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture
def key():
    """The same random numbers on every day."""
    return jax.random.key(20260215)
