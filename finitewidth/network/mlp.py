"""Multilayer perceptrons: networks of dense layers with an activation between every two."""

import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.weights import HYPERPARAMETERS, WIDEST, as_ensemble
from finitewidth.network.network import Network, network_table

PerLayer = float | Sequence[float]
ActivationLike = str | Activation | Callable
Activations = ActivationLike | Sequence[ActivationLike]  # one, or one for each hidden layer
_FIELDS = ("widths", "activation", *HYPERPARAMETERS, "weights")


class MLP(Network):
    r"""A multilayer perceptron with its initialization and learning rates by layer (PDLT chapter 2).

    $$z^{(1)} = b^{(1)} + W^{(1)} x, \qquad z^{(l+1)} = b^{(l+1)} + W^{(l+1)} \sigma_l(z^{(l)})$$

    Args:
        widths: $n_0 \ldots n_L$, from the number of input components to that of outputs.
        activation: One activation, or one for each hidden layer.
        C_b: The variance of biases, a number or one number per layer; likewise the others.
        C_W: The variance of weights times $n_{l-1}$.
        lambda_b: The learning rate of biases, relative to the global one.
        lambda_W: The learning rate of weights times $n_{l-1}$, relative to the global one.
        weights: "gaussian" or "orthogonal" (`fw.Dense`), one for all layers or one for each.

    ```python
    fw.MLP((2, 64, 64, 1), ("tanh", "gelu"), C_b=0.1, C_W=1.2)
    fw.MLP.critical((2, 64, 64, 1), "tanh")  # critical values and learning rates
    fw.MLP((2, 64, 64, 1), "tanh", weights=("orthogonal", "orthogonal", "gaussian"))
    ```
    """

    activation: Activation | tuple[Activation, ...]  # one, or one for each hidden layer where they differ

    def __init__(
        self,
        widths: Sequence[int],
        activation: Activations,
        C_b: PerLayer = 0.0,
        C_W: PerLayer = 1.0,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
        weights: str | Sequence[str] = "gaussian",
    ):
        widths = _as_widths(widths)
        depth = len(widths) - 1
        given = dict(zip(HYPERPARAMETERS, (C_b, C_W, lambda_b, lambda_W), strict=True))
        chosen = _as_activations(activation, depth - 1)
        values = [_as_per_layer(name, value, depth) for name, value in given.items()]
        drawn = _as_ensembles(weights, depth)
        dense = [Dense(*fields) for fields in zip(widths[1:], *values, drawn, strict=True)]
        declared = chosen or _as_activations(activation, 1)  # kept for copies of another depth
        object.__setattr__(self, "activation", _collapsed(declared))
        super().__init__(widths[0], *_interleaved(dense, chosen))

    @classmethod
    def ntk_parametrization(  # type: ignore[override]  # widths and an activation instead of layers
        cls, widths: Sequence[int], activation: Activations, beta: float = 0.1
    ) -> "MLP":
        """The network of Jacot, Gabriel and Hongler (2018): C_W = lambda_W = 1, C_b = lambda_b = beta^2."""
        if not (isinstance(beta, numbers.Real) and math.isfinite(beta)):
            raise ValueError(f"beta must be a finite number, got {beta!r}; Jacot et al. use 0.1.")
        beta = float(beta)
        return cls(widths, activation, C_b=beta**2, C_W=1.0, lambda_b=beta**2, lambda_W=1.0)

    @classmethod
    def standard_parametrization(  # type: ignore[override]  # widths and an activation instead of layers
        cls, widths: Sequence[int], activation: Activations, C_b: PerLayer = 0.0, C_W: PerLayer = 1.0
    ) -> "MLP":
        """The network that one learning rate trains, as in PyTorch: lambda_b = 1, lambda_W = n_{l-1}."""
        return cls(widths, activation, C_b=C_b, C_W=C_W, lambda_W=tuple(map(float, _as_widths(widths)[:-1])))

    @classmethod
    def critical(  # type: ignore[override]  # widths and activation instead of layers
        cls,
        widths: Sequence[int],
        activation: Activations,
        lambda_b=1.0,
        lambda_W=1.0,
        *,
        input_scale=1.0,
        bias_share=None,
        weights="gaussian",
    ) -> "MLP":
        r"""The network at its critical point, with learning rates that let all layers learn equally.

        Each layer is set by the activation before it. `lambda_b` and `lambda_W` are shared out over depth by
        the equivalence principle (PDLT section 9.4). `bias_share` takes the place of `lambda_b`: biases add
        this share of what the weights of their layer add to the NTK (`fw.critical.shares`). A tenth trains
        better than lambda_b = 1. `input_scale`, the mean square of the input components, is used for that,
        and at half-stable points: there the first layer has $C_b = 0$, $C_W = K^*/$`input_scale`, so that
        signals start at K*. `weights` are "gaussian" or "orthogonal", which have the same critical point.

        Where activations differ and one of them is half-stable, the kernel is held at its K*: every $C_W$
        keeps gradients ($\chi_\perp = 1$) and every $C_b \ge 0$ restores K. A K* that cannot be reached is
        refused. `fw.audit(net).steps` says of each layer what was set and whether the step is critical.
        """
        from finitewidth.critical.tuning import critical_network  # theory answers; it is not known before

        net = critical_network(widths, activation, lambda_b, lambda_W, input_scale, bias_share)
        return net.replace(weights=weights)

    def replace(self, **changes) -> "MLP":  # type: ignore[override]  # fields of its own
        """A copy with some fields changed; a changed depth needs fields that fit it."""
        unknown = set(changes) - set(_FIELDS)
        if unknown:
            raise ValueError(f"MLP has no field {sorted(unknown)[0]!r}; its fields are {', '.join(_FIELDS)}.")
        fields = {name: getattr(self, name) for name in _FIELDS}
        if "widths" in changes and len(_as_widths(changes["widths"])) != len(self.widths):
            for name in (*HYPERPARAMETERS, "weights"):  # one value for all layers fits any depth
                fields[name] = _collapsed(fields[name])
        return MLP(**{**fields, **changes})

    def with_widths(self, widths: Sequence[int]) -> "MLP":
        """The same layers with other widths n_0 ... n_L."""
        return self.replace(widths=widths)

    def to_dict(self) -> dict:
        """Plain numbers and strings from which `from_dict` makes an equal network."""
        several = isinstance(self.activation, tuple)
        written = [a.to_plain() for a in (self.activation if several else (self.activation,))]  # type: ignore[union-attr]
        hyperparameters = {name: _collapsed(getattr(self, name)) for name in HYPERPARAMETERS}
        if self.has_orthogonal_weights:  # Gaussian weights are not written down
            hyperparameters["weights"] = _collapsed(self.weights)
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in hyperparameters.items()}
        return {"widths": list(self.widths), "activation": written if several else written[0], **listed}

    @classmethod
    def from_dict(cls, fields: Mapping) -> "MLP":
        """The network that `to_dict` wrote down."""
        for name in fields:
            if name not in _FIELDS:
                raise ValueError(f"network has no field {name!r}; its fields are {', '.join(_FIELDS)}.")
        for name in ("widths", "activation"):
            if name not in fields:
                raise ValueError(f"network needs a field {name!r}; add it.")
        named = fields["activation"]
        for name in named if isinstance(named, list | tuple) else [named]:
            if not isinstance(name, str):
                raise ValueError(f"activation must be a name, got {name!r}; see fw.activations().")
        return cls(**fields)

    @classmethod
    def from_toml(cls, text: str) -> "MLP":
        """The network that `to_toml` wrote down."""
        return cls.from_dict(network_table(text, "widths and activation"))

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return MLP, tuple(getattr(self, name) for name in _FIELDS)

    def __repr__(self) -> str:
        several = isinstance(self.activation, tuple)
        names = [a.name for a in self.activation] if several else self.activation.name  # type: ignore[union-attr]
        shown = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in HYPERPARAMETERS)
        if self.has_orthogonal_weights:
            shown += f", weights={_collapsed(self.weights)!r}"
        named = f"({', '.join(map(repr, _shortened(names)))})" if several else repr(names)  # type: ignore[arg-type]
        return f"MLP(widths={self.widths}, activation={named}, {shown})"


def network_from_dict(fields: Mapping) -> Network:
    """The network that `to_dict` of an MLP or of any network wrote down."""
    return MLP.from_dict(fields) if "widths" in fields else Network.from_dict(fields)


def _interleaved(dense: Sequence[Dense], activations: Sequence[Activation]) -> list[AbstractLayer]:
    pairs = itertools.zip_longest(dense, activations)
    return [layer for pair in pairs for layer in pair if layer is not None]


def _as_activations(activation: Activations, count: int) -> tuple[Activation, ...]:
    """One for each of `count` hidden layers."""
    if isinstance(activation, str | Activation) or not isinstance(activation, Sequence):
        return (as_activation(activation),) * count
    if len(activation) != count:
        raise ValueError(
            f"activation has {len(activation)} entries for {count} hidden layers; give one, or one for each "
            "hidden layer."
        )
    return tuple(as_activation(one) for one in activation)


def _as_ensembles(weights: str | Sequence[str], count: int) -> tuple[str, ...]:
    """One for each of `count` layers."""
    if isinstance(weights, str) or not isinstance(weights, Sequence):
        return (as_ensemble("weights", weights),) * count
    if len(weights) != count:
        raise ValueError(
            f"weights has {len(weights)} entries for {count} layers; give one, or one for each layer."
        )
    return tuple(as_ensemble("weights", one) for one in weights)


def _collapsed(values: tuple):
    """One value where all layers have the same."""
    return values[0] if len(set(values)) == 1 else values


def _shortened(shown: list[str]) -> list[str]:
    """A deep network's repr stays one line."""
    return shown if len(shown) <= 6 else [*shown[:3], "...", *shown[-2:]]


def _shown(values: tuple[float, ...]) -> str:
    collapsed = _collapsed(values)
    if isinstance(collapsed, float):
        return f"{collapsed:.8g}"
    return f"({', '.join(_shortened([f'{v:.6g}' for v in values]))})"


def _as_widths(widths: Sequence[int]) -> tuple[int, ...]:
    try:
        values = tuple(widths)
        whole = all(int(n) == n for n in values)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"widths must be whole numbers n_0, ..., n_L, got {widths!r}; use (2, 64, 1)."
        ) from None
    if not whole:
        raise ValueError(f"widths must be whole numbers, got {widths!r}; round them.")
    if len(values) < 2:
        raise ValueError(
            f"widths must name the input and at least one layer, got {widths!r}; use (2, 64, 1)."
        )
    for index, n in enumerate(values):
        if n < 1:
            raise ValueError(f"widths must be at least 1, but n_{index} is {n}; give every layer a neuron.")
        if n > WIDEST:
            raise ValueError(f"widths must be at most 2^53, but n_{index} is larger; make it smaller.")
    return tuple(int(n) for n in values)


def _as_per_layer(name: str, value: PerLayer, depth: int) -> tuple[float, ...]:
    try:
        if isinstance(value, str):
            raise TypeError
        values = (float(value),) * depth if np.ndim(value) == 0 else tuple(map(float, value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be a number or one number per layer, got {value!r}.") from None
    if len(values) != depth:
        raise ValueError(
            f"{name} has {len(values)} values for {depth} layers; give one number, or one for each layer."
        )
    for layer, v in enumerate(values, start=1):
        if not (math.isfinite(v) and v >= 0):
            raise ValueError(f"{name} must be finite and at least 0, but layer {layer} has {v:g}; change it.")
    return values
