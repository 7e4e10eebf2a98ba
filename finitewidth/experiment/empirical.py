r"""The NTK of one model, block by block: $\hat H_{ia,jb} = \sum_\theta \lambda\, \partial_\theta z_{ia}
\partial_\theta z_{jb}$ for output neurons i, j and samples a, b.

Samples are taken in blocks that fit into memory: the Jacobian of all samples exists at once only where it
fits. How a block is computed is in `ntk_blocks.py`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.inputs import ArrayLike, as_inputs, as_number
from finitewidth.core.precision import require_double_precision
from finitewidth.experiment.functions import Function, as_function, as_parameters
from finitewidth.experiment.ntk_blocks import AbstractBlocks, Model, StructuredBlocks, cheaper_blocks
from finitewidth.experiment.partition import MEMORY_BUDGET
from finitewidth.network.network import Network


def ntk(
    f: Function,
    parameters: Any,
    X: ArrayLike,
    X_other: ArrayLike | None = None,
    *,
    rates: Any = None,
    average_outputs: bool = False,
    memory: float = MEMORY_BUDGET,
) -> Float[np.ndarray, "..."]:
    r"""The NTK of one model.

    Args:
        f: A network, or any function `f(parameters, X)` with outputs (N, n_L) or (N,) that JAX can
            differentiate, such as a Flax or Equinox model. It must treat each sample on its own.
        parameters: Those of `fw.empirical.initialize` for a network, else any structure of arrays.
        X: Inputs (N, n_0).
        X_other: Inputs (M, n_0) of the other side; X by default.
        rates: Learning rates $\lambda$, numbers or arrays in the structure of the parameters or in a prefix
            of it; 1 by default, and those of the network for a network.
        average_outputs: Whether to average over output neurons, $\sum_i \hat H_{ia,ib} / n_L$, which
            estimates Theta.
        memory: A bound on the memory of a block, in bytes; the result comes on top.

    Returns:
        An array (n_L, N, n_L, M), or (N, M) with `average_outputs`.

    ```python
    fw.empirical.ntk(net, fw.empirical.initialize(net, key=0), X)
    ```
    """
    require_double_precision()
    if not as_number(memory) > 0:
        raise ValueError(f"memory must be a positive number of bytes, got {memory!r}; use memory=1e9.")
    function, initial = as_function(f), as_parameters(parameters)
    rows = _as_samples(f, X, "X")
    columns = None if X_other is None else _as_samples(f, X_other, "X_other")
    counts = (len(rows), len(rows if columns is None else columns))
    if isinstance(f, Network) and rates is None:
        blocks: AbstractBlocks = StructuredBlocks.of(f, initial, counts, memory)
    else:
        model = Model(_one_output_axis(function, initial, rows), initial, _as_rates(rates, initial))
        blocks = cheaper_blocks(model, rows, counts, average_outputs, memory)
    return _gathered(blocks, rows, columns, bool(average_outputs))


def _gathered(
    blocks: AbstractBlocks, X: Array, X_other: Array | None, average: bool
) -> Float[np.ndarray, "..."]:
    """The whole kernel; where the columns are the rows, one half is computed and mirrored."""
    columns, n = X if X_other is None else X_other, blocks.outputs
    H = np.zeros((len(X), len(columns)) if average else (n, len(X), n, len(columns)))
    for a in _slices(0, len(X), blocks.rows):
        x = _filled(X[a], blocks.rows)
        for i in _slices(0, n, blocks.neurons):
            seen = blocks.seen(x, i.start)
            for b in _slices(a.start if X_other is None else 0, len(columns), blocks.columns):
                y = x if X_other is None and a == b else _filled(columns[b], blocks.columns)
                if average:
                    part = np.asarray(blocks.traced(seen, y, i.start))
                    H[a, b] += part[: a.stop - a.start, : b.stop - b.start] / n
                else:
                    part = np.asarray(blocks.kernel(seen, y))
                    H[i, a, :, b] = part[: i.stop - i.start, : a.stop - a.start, :, : b.stop - b.start]
    if X_other is None:
        _mirror(H)
    return H


def _mirror(H: np.ndarray) -> None:
    """Fill in columns below rows from those above."""
    for a in range(1, H.shape[-1]):
        if H.ndim == 2:
            H[a, :a] = H[:a, a]
        else:
            H[:, a, :, :a] = H[:, :a, :, a].transpose(2, 0, 1)


def _slices(start: int, stop: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, stop)) for first in range(start, stop, size))


def _filled(x: Array, size: int) -> Array:
    """A block of the full size, its last sample repeated: blocks of one size compile once."""
    missing = size - x.shape[0]
    return x if missing == 0 else jnp.concatenate([x, jnp.repeat(x[-1:], missing, axis=0)])


# --- what a user may pass -----------------------------------------------------------------------------


def _as_samples(f: Function, X, name: str) -> Array:
    """Samples along the first axis; those of a function may be of any shape, and whole numbers too."""
    if isinstance(f, Network):
        return jnp.asarray(as_inputs(X, f.input_shape, name=name))
    array = np.asarray(X)
    if array.dtype == object or array.ndim < 1 or len(array) == 0:
        raise ValueError(f"{name} must be an array with samples along its first axis, got {X!r}.")
    return jnp.asarray(array, jnp.float64 if np.issubdtype(array.dtype, np.floating) else None)


def _one_output_axis(f: Callable, parameters: Any, X: Array) -> Callable:
    """f with outputs (N, n_L); a function of one output may leave the last axis out."""
    z = jax.eval_shape(f, parameters, X)
    shape = getattr(z, "shape", None)
    if shape is None or len(shape) not in (1, 2) or shape[0] != len(X):
        raise ValueError(
            f"f must give outputs of shape ({len(X)}, n_L) or ({len(X)},) for {len(X)} samples, got "
            f"{z if shape is None else shape}; reshape them."
        )
    return f if len(shape) == 2 else _Column(f)


@dataclass(frozen=True)
class _Column:
    """A function of one output with an axis for it; a class, so that equal ones compile once."""

    f: Callable

    def __call__(self, parameters: Any, X: Array) -> Array:
        return self.f(parameters, X)[:, None]


def _as_rates(rates: Any, parameters: Any) -> Any:
    """A rate for each array of the parameters, from rates for parts of their structure."""
    if rates is None:
        rates = 1.0
    try:
        whole = jax.tree.broadcast(rates, parameters)
        fit = jax.tree.map(
            lambda r, p: jnp.broadcast_shapes(jnp.shape(r), p.shape) == p.shape, whole, parameters
        )
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"rates must have the structure of the parameters or a prefix of it: {error}"
        ) from None
    values = jax.tree.map(lambda rate: jnp.asarray(rate, jnp.float64), whole)
    if not all(jax.tree.leaves(fit)):
        raise ValueError("rates has an array that does not fit the shape of its parameters; use one number.")
    if not all(bool(jnp.all(leaf >= 0)) for leaf in jax.tree.leaves(values)):
        raise ValueError("rates must be numbers of at least 0.")
    return values
