"""Mini-batches: which samples a step sees, and with which weights."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.checkpoint import digest

_STREAM = 2**31  # of the key of a network, for its batches; its layers use 0, 1, 2, ...


@dataclass(frozen=True, eq=False, repr=False)
class Batches:
    """Given batches: the weight of each sample in each step, zero outside its batch."""

    masks: Float[np.ndarray, "steps N"]

    @classmethod
    def of(cls, masks) -> "Batches":
        """Check masks as a user gave them."""
        if isinstance(masks, Batches):
            return masks
        try:
            array = np.array(masks, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"batches must be an array (steps, N) of weights, got {masks!r}.") from None
        if array.ndim != 2 or not array.size or not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(
                "batches must be an array (steps, N) of weights of each training sample in each step, zero "
                f"or positive, got shape {array.shape}."
            )
        array.flags.writeable = False
        return cls(array)

    def __len__(self) -> int:
        return len(self.masks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batches) and np.array_equal(self.masks, other.masks)

    def __hash__(self) -> int:
        return hash((self.masks.shape, self.masks.tobytes()))

    def __repr__(self) -> str:
        return f"Batches({self.masks.shape[0]} steps, {self.masks.shape[1]} samples, {digest(self.masks)})"

    def until(self, steps: int) -> "Batches":
        """The first of them."""
        return Batches(self.masks[:steps])

    def numbers(self) -> dict[str, np.ndarray]:
        """The samples of each batch and their weights, (steps, size), filled up by weight 0."""
        size = max(1, int((self.masks > 0).sum(axis=1).max(initial=0)))
        samples = np.argsort(self.masks == 0, axis=1, kind="stable")[:, :size]
        weights = np.take_along_axis(self.masks, samples, axis=1)
        return {"samples": samples.astype(np.float64), "weights": weights}


def shuffled(size: int, step, key: Array, count: int) -> Array:
    """Samples of a batch where each epoch has a new order; a remainder smaller than a batch waits."""
    per_epoch = count // size
    epoch, slot = step // per_epoch, step % per_epoch
    order = jax.random.permutation(jax.random.fold_in(jax.random.fold_in(key, _STREAM), epoch), count)
    return jax.lax.dynamic_slice(order, (slot * size,), (size,))


def with_replacement(size: int, step, key: Array, count: int) -> Array:
    """Samples of a batch that are drawn independently; one may come twice."""
    return jax.random.randint(jax.random.fold_in(jax.random.fold_in(key, _STREAM), step), (size,), 0, count)


def mask_of(samples: Array, weights: Array, count: int) -> Float[Array, " N"]:
    """The weight of each sample in a batch."""
    return jnp.zeros(count).at[samples].add(weights)
