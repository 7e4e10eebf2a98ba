"""The network that is studied: a multilayer perceptron, its initialization and its learning rates."""

import dataclasses
import math
import numbers
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from finitewidth.network.activation import Activation, as_activation

PerLayer = float | Sequence[float]
_WIDEST = 2**53  # whole numbers beyond that are not numbers of double precision
_HYPERPARAMETERS = ("C_b", "C_W", "lambda_b", "lambda_W")


@dataclass(frozen=True, repr=False)
class MLP:
    r"""A multilayer perceptron with Gaussian initialization and tensorial learning rates.

    $$z^{(1)} = b^{(1)} + W^{(1)} x, \qquad z^{(l+1)} = b^{(l+1)} + W^{(l+1)} \sigma(z^{(l)})$$

    for layers $l = 1 \ldots L$ with `widths` $n_0 \ldots n_L$. Biases have variance `C_b`,
    weights `C_W` $/ n_{l-1}$; they learn at rates `lambda_b` and `lambda_W` $/ n_{l-1}$ times the
    global learning rate. Each of the four is a number or one number per layer (PDLT chapters 2 and 8).
    """

    widths: tuple[int, ...]  # n_0 ... n_L
    activation: Activation
    C_b: tuple[float, ...] = 0.0  # type: ignore[assignment]  # one per layer once made
    C_W: tuple[float, ...] = 1.0  # type: ignore[assignment]
    lambda_b: tuple[float, ...] = 1.0  # type: ignore[assignment]
    lambda_W: tuple[float, ...] = 1.0  # type: ignore[assignment]

    def __init__(
        self,
        widths: Sequence[int],
        activation: str | Activation | Callable,
        C_b: PerLayer = 0.0,
        C_W: PerLayer = 1.0,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
    ):
        widths = _as_widths(widths)
        given = {"C_b": C_b, "C_W": C_W, "lambda_b": lambda_b, "lambda_W": lambda_W}
        object.__setattr__(self, "widths", widths)
        object.__setattr__(self, "activation", as_activation(activation))
        for name, value in given.items():
            object.__setattr__(self, name, _as_per_layer(name, value, depth=len(widths) - 1))

    @classmethod
    def ntk_parametrization(
        cls, widths: Sequence[int], activation: str | Activation | Callable, beta: float = 0.1
    ) -> "MLP":
        """The network of Jacot, Gabriel and Hongler (2018): C_W = lambda_W = 1, C_b = lambda_b = beta^2."""
        if not (isinstance(beta, numbers.Real) and math.isfinite(beta)):
            raise ValueError(f"beta must be a finite number, got {beta!r}; Jacot et al. use 0.1.")
        beta = float(beta)
        return cls(widths, activation, C_b=beta**2, C_W=1.0, lambda_b=beta**2, lambda_W=1.0)

    @classmethod
    def critical(
        cls,
        widths: Sequence[int],
        activation: str | Activation | Callable,
        lambda_b=1.0,
        lambda_W=1.0,
        *,
        input_scale=1.0,
    ) -> "MLP":
        r"""The network at its activation's critical point, with learning rates that let all layers learn
        equally.

        `lambda_b` and `lambda_W` are shared out over depth by the equivalence principle (PDLT section 9.4).
        `input_scale`, the mean square of the input components, is used at half-stable points: there the first
        layer has $C_b = 0$, $C_W = K^*/$`input_scale`, so that signals start at K*.
        """
        from finitewidth.critical.tuning import critical_network  # theory answers; it is not known before

        return critical_network(widths, activation, lambda_b, lambda_W, input_scale)

    @property
    def depth(self) -> int:
        """L, the number of layers with parameters."""
        return len(self.widths) - 1

    @property
    def parameter_count(self) -> int:
        """How many biases and weights the network has."""
        return sum(
            (fan_in + 1) * fan_out for fan_in, fan_out in zip(self.widths, self.widths[1:], strict=False)
        )

    def replace(self, **changes) -> "MLP":
        """A copy with some fields changed; a changed depth needs hyperparameters that fit it."""
        unknown = set(changes) - {f.name for f in dataclasses.fields(self)}
        if unknown:
            raise ValueError(
                f"MLP has no field {sorted(unknown)[0]!r}; its fields are {', '.join(_fields(self))}."
            )
        fields = _fields(self)
        if "widths" in changes and len(_as_widths(changes["widths"])) != len(self.widths):
            for name in _HYPERPARAMETERS:  # one value for all layers fits any depth
                fields[name] = _collapsed(fields[name])
        return MLP(**{**fields, **changes})

    def to_dict(self) -> dict:
        """Plain numbers and strings from which `from_dict` makes an equal network."""
        if self.activation.family is None:
            raise ValueError(
                f"activation {self.activation.name!r} is a function of yours and cannot be written down; "
                "use a named activation (fw.activations())."
            )
        hyperparameters = {name: _collapsed(getattr(self, name)) for name in _HYPERPARAMETERS}
        listed = {k: list(v) if isinstance(v, tuple) else v for k, v in hyperparameters.items()}
        return {"widths": list(self.widths), "activation": self.activation.name, **listed}

    @classmethod
    def from_dict(cls, fields: Mapping) -> "MLP":
        """The network that `to_dict` wrote down."""
        known = [f.name for f in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                raise ValueError(f"network has no field {name!r}; its fields are {', '.join(known)}.")
        for name in ("widths", "activation"):
            if name not in fields:
                raise ValueError(f"network needs a field {name!r}; add it.")
        if not isinstance(fields["activation"], str):
            raise ValueError(
                f"activation must be a name, got {fields['activation']!r}; see fw.activations()."
            )
        return cls(**fields)

    def to_toml(self) -> str:
        """The network as a TOML table."""
        import tomli_w

        return tomli_w.dumps({"network": self.to_dict()})

    @classmethod
    def from_toml(cls, text: str) -> "MLP":
        """The network that `to_toml` wrote down."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"network is not valid TOML: {error}.") from None
        if not isinstance(table.get("network"), dict):
            raise ValueError("TOML needs a table [network] with widths and activation; add it.")
        return cls.from_dict(table["network"])

    def __repr__(self) -> str:
        fields = _fields(self)
        shown = ", ".join(f"{name}={_shown(fields[name])}" for name in _HYPERPARAMETERS)
        return f"MLP(widths={self.widths}, activation={self.activation.name!r}, {shown})"


def _fields(net: MLP) -> dict:
    return {f.name: getattr(net, f.name) for f in dataclasses.fields(net)}


def _collapsed(values: tuple[float, ...]) -> float | tuple[float, ...]:
    return values[0] if len(set(values)) == 1 else values


def _shown(values: tuple[float, ...]) -> str:
    collapsed = _collapsed(values)
    if isinstance(collapsed, float):
        return f"{collapsed:.8g}"
    shown = [f"{v:.6g}" for v in values]
    if len(shown) > 6:  # a deep network's repr stays one line
        shown = [*shown[:3], "...", *shown[-2:]]
    return f"({', '.join(shown)})"


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
        if n > _WIDEST:
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
