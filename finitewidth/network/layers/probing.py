"""Checks of a user's activation at a few points: it is traceable, elementwise, real and finite."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_EVERY = 9  # one in so many points is also evaluated alone

# points that no symmetry and no round number is likely to meet
NEAR = np.concatenate([np.linspace(-39.87, 39.31, 61), np.linspace(-3.03, 2.97, 64)])
_FAR = np.array([-1.07e6, -1013.0, -131.0, 127.0, 1019.0, 1.03e6])  # where a function may be infinite


class Probe(NamedTuple):
    """Values of a function at the points near zero, at 1 and -1, and far away."""

    near: np.ndarray
    up: float  # at 1
    down: float  # at -1
    far: np.ndarray

    @property
    def slopes(self) -> tuple[float, float] | None:
        """(a_plus, a_minus) if the function is a_plus z above zero and a_minus z below, else None."""
        z, values = np.concatenate([NEAR, _FAR]), np.concatenate([self.near, self.far])
        exact = np.where(z > 0, self.up * z, -self.down * z)
        return (self.up, -self.down) if np.allclose(values, exact, rtol=1e-14, atol=0.0) else None


def probe(function: Callable, name: str) -> Probe:
    """Evaluate a function, or refuse it with the reason why it cannot be an activation."""
    z = np.concatenate([NEAR, [1.0, -1.0], _FAR])
    _check_signature(function, z.shape, name)
    both = jax.jit(lambda z: (function(z), jax.vmap(function)(z[::_EVERY])))
    values, scalar = (np.asarray(part) for part in both(z))
    near, units, far = np.split(values, [NEAR.size, NEAR.size + 2])
    _check_finite(np.concatenate([near, units]), z, name)
    if not np.allclose(values[::_EVERY], scalar, rtol=1e-10, atol=1e-12, equal_nan=True):
        raise ValueError(
            f"activation {name!r} must be elementwise, but its value at one entry depends on the "
            "others; let every entry depend on that entry alone."
        )
    return Probe(near, float(units[0]), float(units[1]), far)


def _check_signature(function: Callable, shape: tuple[int, ...], name: str) -> None:
    """Shapes and type of the result, without evaluating the function."""
    try:
        together, scalar = (
            jax.eval_shape(function, jax.ShapeDtypeStruct(given, jnp.float64)) for given in (shape, ())
        )
    except (jax.errors.JAXTypeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"activation {name!r} cannot be traced by JAX ({reason}); "
            "write it with jax.numpy and no Python branches on z."
        ) from error
    shapes = getattr(together, "shape", None), getattr(scalar, "shape", None)
    if shapes != (shape, ()):
        raise ValueError(
            f"activation {name!r} must be elementwise, but maps shapes {shape} and () to "
            f"{shapes[0]} and {shapes[1]}; return one value for each entry of z."
        )
    if together.dtype != jnp.float64:
        raise ValueError(
            f"activation {name!r} returns {together.dtype}, not float64; return a real floating value "
            "(for a step, jnp.where(z > 0, 1.0, 0.0))."
        )


def _check_finite(values: np.ndarray, z: np.ndarray, name: str) -> None:
    if np.isnan(values).any():
        at = z[np.argmax(np.isnan(values))]
        raise ValueError(
            f"activation {name!r} returns NaN at z = {at:.3g}; define it for every real z "
            "(a jnp.where needs a safe argument in the branch not taken)."
        )
    if np.isinf(values).any():
        at = z[np.argmax(np.isinf(values))]
        raise ValueError(
            f"activation {name!r} is infinite at z = {at:.3g}: it grows too fast for a Gaussian "
            "average; use one with at most exponential growth."
        )
