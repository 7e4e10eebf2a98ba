"""Activations as values: a function with its derivatives, its kinks and its name."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.display.user_warnings import warn
from finitewidth.core.precision import require_double_precision
from finitewidth.network.layers import named, probing
from finitewidth.network.layers.abstract import AbstractLayer, Shape, Values
from finitewidth.network.layers.smoothness import SEARCHED, Jump, find_jumps

_FARTHEST = 2.0**14  # |z| up to which kinks of a user's function are looked for: variances of a million
_FAR = (1e4, 1e6)  # |z| at which growth is seen
HIGHEST_DERIVATIVE = 5  # H1 needs sigma^(5); nothing in the theory needs more


@dataclass(frozen=True, eq=False, repr=False)
class Activation(AbstractLayer):
    """An elementwise function of the preactivation, as the theory and the experiments see it.

    Args:
        function: Any elementwise function that JAX can trace.
        name: What to call it; by default the name of the function.
        kinks: Points where a derivative jumps. Kinks that were not declared are found, added and named in a
            warning.
        family: The family of closed forms of a named activation; None for a function of yours.
        parameters: Those of the family.
        jump_order: The lowest order of a derivative that jumps at a kink; found by the library.
        exact: Formulas of the derivatives, where they do better than automatic differentiation.

    ```python
    import jax.numpy as jnp

    fw.Activation(lambda z: z * jnp.exp(-z * z), name="bump")
    fw.Activation(lambda z: jnp.maximum(z, 0.1 * z), name="bent", kinks=(0.0,))
    ```
    """

    function: Callable[[Array], Array]
    name: str | None = None
    kinks: tuple[float, ...] = ()
    family: str | None = None  # of closed forms; None for a user's function
    parameters: tuple[float, ...] = ()
    jump_order: int | float = math.inf  # lowest derivative order that jumps at a kink; inf if none does
    exact: named.Derivatives | None = None  # where formulas do better than automatic differentiation

    def __post_init__(self):
        if self.family is not None:  # a named activation: its kinks and jumps are known
            return
        require_double_precision()
        if not callable(self.function):
            raise ValueError(
                f"activation must be a name, an Activation or a function of z, got {self.function!r}."
            )
        if isinstance(self.function, Activation):
            raise ValueError("function is already an Activation; pass it as it is.")
        name = self.name or getattr(self.function, "__name__", "activation")
        object.__setattr__(self, "name", name)
        probe = probing.probe(self.function, name)
        self._find_kinks(name)
        slopes = None if any(self.kinks) else probe.slopes  # a kink away from zero sets a scale
        if slopes is not None:  # the closed forms of the family then serve the user's function too
            object.__setattr__(self, "parameters", slopes)

    def _find_kinks(self, name: str) -> None:
        """Set `kinks` and `jump_order`; warn about kinks that were not declared."""
        declared = _as_kinks(self.kinks)
        object.__setattr__(self, "kinks", declared)
        jumps = find_jumps(self.derivatives, name, HIGHEST_DERIVATIVE, places=declared)
        undeclared = _missing_from(declared, jumps)
        if undeclared:
            warn(_undeclared(name, undeclared), KinkWarning)
        kinks = tuple(sorted({*declared, *(j.at for j in undeclared)}))
        object.__setattr__(self, "kinks", kinks)
        object.__setattr__(self, "jump_order", min((j.order for j in jumps), default=math.inf))

    def __call__(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.function(z)

    @functools.cached_property
    def grows_faster_than_linearly(self) -> bool:
        """Whether the function far from zero is no longer bounded by a multiple of its argument."""
        near, far = (np.abs(np.asarray(self(jnp.array([-z, z])))).max() / z for z in _FAR)
        return not far <= 2 * near + 1

    def derivatives(self, z: Float[Array, "..."], highest: int) -> tuple[Array, ...]:
        """sigma(z), sigma'(z), ..., sigma^(highest)(z), by automatic differentiation or exact formulas.

        At a kink and beyond `jump_order` these are the derivatives almost everywhere:
        delta functions are not seen.
        """
        if not 0 <= highest <= HIGHEST_DERIVATIVE:
            raise ValueError(
                f"highest must be a derivative order from 0 to {HIGHEST_DERIVATIVE}, got {highest}."
            )
        return self.exact(z, highest) if self.exact else _tower(self.function, highest)(z)

    def require_known_kinks(self, reach: float) -> None:
        """Refuse a kink of a user's function with |z| up to `reach` that was neither found nor declared."""
        if self.family is None and reach > SEARCHED:
            _search_beyond(self, min(2.0 ** math.ceil(math.log2(reach)), _FARTHEST))

    @property
    def is_smooth(self) -> bool:
        """Whether all derivatives that the theory uses exist everywhere."""
        return self.jump_order > HIGHEST_DERIVATIVE

    @functools.cached_property
    def is_odd(self) -> bool:
        """Whether sigma(-z) = -sigma(z)."""
        z = jnp.asarray(probing.NEAR)
        return bool(np.allclose(self.function(-z), -self.function(z), rtol=1e-14, atol=1e-15))

    @property
    def slopes(self) -> tuple[float, float] | None:
        """(a_plus, a_minus) if sigma is a_plus z above zero and a_minus z below, else None."""
        if self.family in (None, "scale_invariant") and len(self.parameters) == 2:
            return self.parameters[0], self.parameters[1]
        return None

    @property
    def is_scale_invariant(self) -> bool:
        """Whether sigma(c z) = c sigma(z) for every c > 0."""
        return self.slopes is not None

    @property
    def is_homogeneous(self) -> bool:
        return self.is_scale_invariant

    def output_shape(self, shape: Shape) -> Shape:
        """Elementwise: the shape stays."""
        return shape

    def values_behind(self, values: Values) -> Values:
        """An activation stands behind weights: on nothing else is its average Gaussian."""
        if values in (Values.GAUSSIAN, Values.GAINED):
            return Values.ACTIVATED
        where = "comes first" if values is Values.DATA else f"follows {values.value}"
        remedies = {
            Values.ACTIVATED: ", or compose two activations in one function",
            Values.SUMMED: ", or move the activation into the block: z + f(sigma(z))",
            Values.CARRIED: ", or set lambda_gain=0",
        }
        remedy = remedies.get(values, "")
        raise ValueError(f"activation {self.name!r} {where}; put weights before it{remedy}.")

    def to_plain(self) -> str:
        """The name, if it is a named one."""
        if self.family is None:
            raise ValueError(
                f"activation {self.name!r} is a function of yours and cannot be written down; "
                "use a named activation (fw.activations())."
            )
        return str(self.name)

    def _identity(self):
        return (self.family, self.name, self.parameters) if self.family else (self.function, self.kinks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Activation) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __reduce__(self):
        return (as_activation, (self.name,)) if self.family else super().__reduce__()

    def __repr__(self) -> str:
        kinks = f", kinks={self.kinks}" if self.kinks else ""
        return f"Activation({self.name}{kinks})"


class KinkWarning(UserWarning):
    """A kink was found that the user did not declare; it is taken into account.

    ```python
    import warnings
    import jax.numpy as jnp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.KinkWarning)  # or declare it: kinks=(0.0,)
        fw.Activation(lambda z: jnp.maximum(z, 0.1 * z), name="bent")
    ```
    """


def as_activation(activation: "str | Activation | Callable") -> Activation:
    """The Activation that a name, a function of z or an Activation stands for."""
    if isinstance(activation, Activation):
        return activation
    if isinstance(activation, str):
        return Activation(**named.formula(activation)._asdict())
    return Activation(activation)


def shifted(activation: Activation, value: float) -> Activation:
    """sigma(z) - value, with the kinks and jumps that sigma is known to have."""
    exact = activation.exact
    return _made_from(
        activation,
        function=lambda z: activation.function(z) - value,
        name=f"{activation.name} {'-' if value > 0 else '+'} {abs(value):.6g}",
        exact=(lambda z, m: (exact(z, 0)[0] - value, *exact(z, m)[1:])) if exact else None,
    )


@functools.lru_cache(maxsize=256)  # the same function for the same activation, which compiled code knows
@functools.lru_cache(maxsize=64)
def times_slope(activation: Activation) -> Activation:
    """z sigma'(z), with the kinks of sigma: at zero they are as smooth as those of sigma."""
    if activation.slopes is not None:
        return activation
    return _made_from(
        activation,
        function=lambda z: z * activation.derivatives(z, 1)[1],
        name=f"z times the slope of {activation.name}",
        jump_order=activation.jump_order - any(activation.kinks),
        exact=None,
    )


def _made_from(activation: Activation, **changes) -> Activation:
    """A function made from sigma, which has passed the checks of a new activation."""
    made = object.__new__(Activation)
    fields = {field.name: getattr(activation, field.name) for field in dataclasses.fields(Activation)}
    for name, value in {**fields, "family": None, "parameters": (), **changes}.items():
        object.__setattr__(made, name, value)
    return made


def _tower(function: Callable, highest: int) -> Callable:
    """A function of z that gives sigma and its derivatives up to `highest`, sharing their work."""
    if highest == 0:
        return lambda z: (function(z),)
    lower = _tower(function, highest - 1)

    def values_and_derivative(z):
        values, tangents = jax.jvp(lower, (z,), (jnp.ones_like(z),))
        return (*values, tangents[-1])

    return values_and_derivative


# --- kinks --------------------------------------------------------------------------------------


def _as_kinks(kinks: Sequence[float]) -> tuple[float, ...]:
    try:
        values = tuple(float(k) for k in kinks)
    except (TypeError, ValueError):
        raise ValueError(f"kinks must be a sequence of numbers, got {kinks!r}; use kinks=(0.0,).") from None
    if not all(math.isfinite(k) for k in values):
        raise ValueError(f"kinks must be finite numbers, got {kinks!r}.")
    return values


def _missing_from(declared: Sequence[float], jumps: list[Jump]) -> list[Jump]:
    return [j for j in jumps if not any(abs(j.at - kink) < 1e-6 for kink in declared)]


def _undeclared(name: str, jumps: list[Jump]) -> str:
    """The text of the warning about kinks that were not declared."""
    words = [
        "the function itself",
        *(f"its {nth} derivative" for nth in ("first", "second", "third", "fourth")),
    ]
    places = "; ".join(f"z = {j.at:.6g}, where {words[j.order]} jumps by {j.size:.3g}" for j in jumps)
    return (
        f"activation {name!r} has a kink that was not declared: {places}. It is taken into account; "
        f"declare it as kinks={tuple(j.at for j in jumps)}."
    )


@functools.lru_cache(maxsize=256)
def _search_beyond(activation: Activation, reach: float) -> None:
    """Refuse an undeclared kink between the range searched at the beginning and `reach`."""
    jumps = find_jumps(
        activation.derivatives, str(activation.name), HIGHEST_DERIVATIVE, beyond=SEARCHED, reach=reach
    )
    undeclared = [j for j in _missing_from(activation.kinks, jumps) if abs(j.at) > SEARCHED]
    if undeclared:
        kinks = tuple(sorted({*activation.kinks, *(j.at for j in undeclared)}))
        raise ValueError(
            f"activation {activation.name!r} has a kink at z = {undeclared[0].at:.6g} that was not declared "
            f"and that preactivations of this size meet; declare kinks={kinks}, or lower C_W or the inputs."
        )
