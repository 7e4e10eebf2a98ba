"""Self-attention over the positions of a sequence or an image."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from finitewidth.core.inputs import as_count
from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values, shown
from finitewidth.network.layers.weights import as_variance, check_weights

SCALINGS = ("linear", "root")
MIXINGS = ("sum", "concatenate")


@dataclass(frozen=True)
class Positions:
    r"""Random features of positions, with covariance $R_{pq} = v\, e^{-|p-q|^2 / 2 \ell^2}$.

    Keys see the features; values do not. They do not learn.

    Args:
        mixing: "sum" adds the features to the channels, "concatenate" makes them equally many further
            channels.
        variance: v.
        length: $\ell$; 0 makes positions independent.

    ```python
    fw.SelfAttention(64, positions=fw.Positions(length=2.0))
    ```
    """

    mixing: str = "sum"
    variance: float = 1.0
    length: float = 0.0

    def __post_init__(self):
        if self.mixing not in MIXINGS:
            raise ValueError(f'mixing must be "sum" or "concatenate", got {self.mixing!r}.')
        for name in ("variance", "length"):
            object.__setattr__(self, name, as_variance(name, getattr(self, name)))

    def kernel(self, shape: tuple[int, ...]) -> Float[np.ndarray, "P P"]:
        """R between all positions of a grid of this shape."""
        places = np.indices(shape).reshape(len(shape), -1).T.astype(float)
        squares = ((places[:, None] - places[None, :]) ** 2).sum(axis=-1)
        near = (squares == 0).astype(float) if self.length == 0 else np.exp(-squares / (2 * self.length**2))
        return self.variance * near

    def __repr__(self) -> str:
        return shown(self)


@dataclass(frozen=True, repr=False)
class SelfAttention(AbstractLayer):
    r"""Attention of all positions to all.

    $$z_p = b + W_O \sum_q a_{pq} W_V x_q, \qquad
      a_{pq} = \mathrm{softmax}_q(\sigma_{QK}\, k_p \cdot k_q / d)$$

    for keys k of d components. $W_V$ has variance 1 times its number of inputs; weights and biases learn at
    rates equal to their variances, and keys do not learn.

    With `scaling="root"` scores are those of transformers, $\sigma_{QK}\, q_p \cdot k_q / \sqrt d$ with
    queries q that are independent of keys, and both learn at rates equal to their variances. Attention is
    then random in wide networks too. Outputs are Gaussian if heads are many, and the theory is that of
    infinitely many. It averages over random scores, with the standard error `Kernels.sampling_error`.

    At order 1/n heads are drawn as they are, with their number and their width: see `fw.solve`.

    Args:
        width: The number of channels behind it.
        C_OV: The variance of $W_O$ times its number of inputs.
        C_b: The variance of biases.
        sigma_QK: The factor of the scores.
        positions: Features of positions, or None.
        scaling: "linear" divides scores by d, "root" by its root.
        heads: Each head has keys, attention and values of its own, of d components.
        head_width: d; width/heads by default.
        draws: The number of random scores that the theory averages over, for "root", and of the heads that
            each of the eight repetitions at order 1/n draws.
        key: Their randomness.

    ```python
    attention = fw.Residual(fw.SelfAttention(64, positions=fw.Positions(length=2.0)))
    fw.Network((5, 3), fw.Dense(64), attention, fw.LayerNorm(), fw.GlobalAveragePool(), fw.Dense(1))
    ```
    """

    width: int
    C_OV: float = 1.0
    C_b: float = 0.0
    sigma_QK: float = 1.0
    positions: Positions | None = None
    scaling: str = "linear"
    heads: int = 1
    draws: int = 1024
    key: int = 0
    head_width: int | None = None

    def __post_init__(self):
        check_weights(self, ("C_OV", "C_b", "sigma_QK"))
        for name, lowest in (("heads", 1), ("draws", 2), ("key", 0)):
            object.__setattr__(self, name, as_count(name, getattr(self, name), lowest=lowest))
        if self.head_width is not None:
            width = as_count("head_width", self.head_width, lowest=1)
            object.__setattr__(self, "head_width", width)
        elif self.width % self.heads:
            raise ValueError(
                f"heads must divide width={self.width}, got {self.heads}; change one, or give head_width."
            )
        if not (self.positions is None or isinstance(self.positions, Positions)):
            raise ValueError(f"positions must be None or an fw.Positions, got {self.positions!r}.")
        if self.scaling not in SCALINGS:
            raise ValueError(f'scaling must be "linear" or "root", got {self.scaling!r}.')

    @property
    def components(self) -> int:
        """d, the number of components of keys and values of a head."""
        return self.width // self.heads if self.head_width is None else self.head_width

    @property
    def has_weights(self) -> bool:
        return True

    @property
    def has_fixed_rates(self) -> bool:
        return True

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2 or math.prod(shape[:-1]) < 1:
            raise ValueError(
                f"SelfAttention needs samples with positions before the channels, got shape {shape}; use "
                "input_shape=(T, C), and put it before fw.Flatten()."
            )
        return (*shape[:-1], self.width)

    def values_behind(self, values: Values) -> Values:
        return Values.GAUSSIAN

    def to_plain(self) -> dict[str, Any]:
        plain = super().to_plain()
        for name, usual in (("heads", 1), ("draws", 1024), ("key", 0)):
            if plain[name] == usual:
                del plain[name]
        if self.positions is not None:
            plain["positions"] = dataclasses.asdict(self.positions)
        return plain

    @classmethod
    def from_plain(cls, fields: dict[str, Any]) -> "SelfAttention":
        positions = fields.get("positions")
        given = Positions(**positions) if isinstance(positions, Mapping) else positions
        return cls(**{**fields, "positions": given})
