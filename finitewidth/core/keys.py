"""Keys, the source of all randomness."""

import numbers

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def as_key(key) -> Array:
    """The JAX key for a whole number, for a key, or for the raw data of a key."""
    if isinstance(key, numbers.Integral) and not isinstance(key, bool):
        if not 0 <= int(key) < 2**63:
            raise ValueError(f"key must be a whole number from 0 to 2^63 - 1, got {key}; use key=0.")
        return jax.random.key(int(key))
    if isinstance(key, jax.Array) and key.ndim == 0 and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return key
    if getattr(key, "shape", None) == (2,) and getattr(key, "dtype", None) == jnp.uint32:
        return jax.random.wrap_key_data(jnp.asarray(key))
    raise ValueError(f"key must be a whole number or a JAX key, got {key!r}; use key=0.")


def as_seed(key) -> tuple[int, ...]:
    """The whole numbers behind a key, for generators of NumPy."""
    return tuple(np.asarray(jax.random.key_data(as_key(key))).ravel().tolist())
