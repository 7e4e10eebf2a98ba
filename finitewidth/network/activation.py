"""Activations as values: a function, its derivatives, where its kinks are, and its name."""

import difflib
import functools
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.precision import require_double_precision
from finitewidth.network.layers.abstract import AbstractLayer, Shape
from finitewidth.network.smoothness import SEARCHED, Jump, find_jumps

_FARTHEST = 2.0**14  # |z| up to which kinks of a user's function are looked for: variances of a million
HIGHEST_DERIVATIVE = 5  # H1 needs sigma^(5); nothing in the theory needs more


@dataclass(frozen=True, eq=False, repr=False)
class Activation(AbstractLayer):
    """An elementwise function of the preactivation, as the theory and the experiments see it.

    `function` is any JAX-traceable elementwise function. `kinks` are the points where a
    derivative jumps; kinks that were not declared are found, added and named in a warning.
    """

    function: Callable[[Array], Array]
    name: str | None = None
    kinks: tuple[float, ...] = ()
    family: str | None = None  # which closed forms and which named constructor; None for a user's
    parameters: tuple[float, ...] = ()
    jump_order: int | float = math.inf  # lowest derivative order that jumps at a kink; inf if none does
    exact: Callable[[Array, int], tuple[Array, ...]] | None = None  # derivatives where formulas do better

    def __post_init__(self):
        if self.family is not None:  # named below: its kinks and jumps are known
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
        probed = _check_elementwise(self.function, name)
        declared = _as_kinks(self.kinks)
        object.__setattr__(self, "kinks", declared)
        jumps = find_jumps(self.derivatives, name, HIGHEST_DERIVATIVE, places=declared)
        undeclared = _missing_from(declared, jumps)
        if undeclared:
            warnings.warn(_undeclared(name, undeclared), KinkWarning, stacklevel=3)
        kinks = tuple(sorted({*declared, *(j.at for j in undeclared)}))
        object.__setattr__(self, "kinks", kinks)
        object.__setattr__(self, "jump_order", min((j.order for j in jumps), default=math.inf))
        slopes = None if any(kinks) else _slopes_if_scale_invariant(probed)  # a kink elsewhere sets a scale
        if slopes is not None:  # the closed forms of the family then serve the user's function too
            object.__setattr__(self, "parameters", slopes)

    def __call__(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.function(z)

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
        """Refuse a kink of a user's function that lies farther out than was searched and was not declared."""
        if self.family is None and reach > SEARCHED:
            _search_beyond(self, min(2.0 ** math.ceil(math.log2(reach)), _FARTHEST))

    @property
    def is_smooth(self) -> bool:
        """Whether all derivatives that the theory uses exist everywhere."""
        return self.jump_order > HIGHEST_DERIVATIVE

    @functools.cached_property
    def is_odd(self) -> bool:
        """Whether sigma(-z) = -sigma(z)."""
        z = jnp.asarray(_probe_points())
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

    def output_shape(self, shape: Shape) -> Shape:
        """Elementwise: the shape stays."""
        return shape

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
    """A kink was found that the user did not declare; it is taken into account."""


@functools.lru_cache(maxsize=256)
def _search_beyond(activation: Activation, reach: float) -> None:
    found = find_jumps(
        activation.derivatives, str(activation.name), HIGHEST_DERIVATIVE, beyond=SEARCHED, reach=reach
    )
    undeclared = [j for j in _missing_from(activation.kinks, found) if abs(j.at) > SEARCHED]
    if undeclared:
        kinks = tuple(sorted({*activation.kinks, *(j.at for j in undeclared)}))
        raise ValueError(
            f"activation {activation.name!r} has a kink at z = {undeclared[0].at:.6g} that was not declared "
            f"and that preactivations of this size meet; declare kinks={kinks}, or lower C_W or the inputs."
        )


def _missing_from(declared: Sequence[float], jumps: list[Jump]) -> list[Jump]:
    return [j for j in jumps if not any(abs(j.at - kink) < 1e-6 for kink in declared)]


def _tower(function: Callable, highest: int) -> Callable:
    """A function of z that gives sigma and its derivatives up to `highest`, sharing their work."""
    if highest == 0:
        return lambda z: (function(z),)
    lower = _tower(function, highest - 1)

    def values_and_derivative(z):
        values, tangents = jax.jvp(lower, (z,), (jnp.ones_like(z),))
        return (*values, tangents[-1])

    return values_and_derivative


def _probe_points() -> np.ndarray:
    """Points that no symmetry and no round number is likely to meet."""
    return np.concatenate([np.linspace(-39.87, 39.31, 61), np.linspace(-3.03, 2.97, 64)])


_FAR = np.array([-1.07e6, -1013.0, -131.0, 127.0, 1019.0, 1.03e6])  # where a function may be infinite


def _check_elementwise(function: Callable, name: str) -> np.ndarray:
    """The values at the probe points, far points, 1 and -1, of a function that is what it should be."""
    z = np.concatenate([_probe_points(), [1.0, -1.0], _FAR])
    try:
        together, alone = (
            jax.eval_shape(function, jax.ShapeDtypeStruct(shape, jnp.float64)) for shape in (z.shape, ())
        )
    except (jax.errors.JAXTypeError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"activation {name!r} cannot be traced by JAX ({reason}); "
            "write it with jax.numpy and no Python branches on z."
        ) from error
    shapes = getattr(together, "shape", None), getattr(alone, "shape", None)
    if shapes != (z.shape, ()):
        raise ValueError(
            f"activation {name!r} must be elementwise, but maps shapes {z.shape} and () to "
            f"{shapes[0]} and {shapes[1]}; return one value for each entry of z."
        )
    if together.dtype != jnp.float64:
        raise ValueError(
            f"activation {name!r} returns {together.dtype}, not float64; return a real floating value "
            "(for a step, jnp.where(z > 0, 1.0, 0.0))."
        )
    both = jax.jit(lambda z: (function(z), jax.vmap(function)(z[::9])))
    values, singly = (np.asarray(part) for part in both(z))
    _check_finite(values[: -_FAR.size], z, name)
    if not np.allclose(values[::9], singly, rtol=1e-10, atol=1e-12, equal_nan=True):
        raise ValueError(
            f"activation {name!r} must be elementwise, but its value at one entry depends on the "
            "others; let every entry depend on that entry alone."
        )
    return values


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


def _as_kinks(kinks: Sequence[float]) -> tuple[float, ...]:
    try:
        values = tuple(float(k) for k in kinks)
    except (TypeError, ValueError):
        raise ValueError(f"kinks must be a sequence of numbers, got {kinks!r}; use kinks=(0.0,).") from None
    if not all(math.isfinite(k) for k in values):
        raise ValueError(f"kinks must be finite numbers, got {kinks!r}.")
    return values


def _undeclared(name: str, jumps: list[Jump]) -> str:
    words = [
        "the function itself",
        *(f"its {nth} derivative" for nth in ("first", "second", "third", "fourth")),
    ]
    found = "; ".join(f"z = {j.at:.6g}, where {words[j.order]} jumps by {j.size:.3g}" for j in jumps)
    return (
        f"activation {name!r} has a kink that was not declared: {found}. It is taken into account; "
        f"declare it as kinks={tuple(j.at for j in jumps)}."
    )


def _slopes_if_scale_invariant(probed: np.ndarray) -> tuple[float, ...] | None:
    z = np.concatenate([_probe_points(), _FAR])
    up, down = probed[-_FAR.size - 2 : -_FAR.size].tolist()
    values = np.concatenate([probed[: -_FAR.size - 2], probed[-_FAR.size :]])
    exact = np.where(z > 0, up * z, -down * z)
    return (up, -down) if np.allclose(values, exact, rtol=1e-14, atol=0.0) else None


# --- the named activations -------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


def _named(family: str, function: Callable, name: str, **facts) -> Activation:
    return Activation(function, name=name, family=family, **facts)


def scale_invariant(a_plus: float, a_minus: float, *, name: str | None = None) -> Activation:
    """a_plus z for z > 0 and a_minus z for z < 0."""
    _check_parameters("scale_invariant", a_plus=a_plus, a_minus=a_minus)
    smooth = a_plus == a_minus
    return _named(
        "scale_invariant",
        (lambda z: a_plus * z) if smooth else lambda z: jnp.where(z > 0, a_plus * z, a_minus * z),
        name or f"scale_invariant({_number(a_plus)}, {_number(a_minus)})",
        parameters=(float(a_plus), float(a_minus)),
        kinks=() if smooth else (0.0,),
        jump_order=math.inf if smooth else 1,
    )


def linear() -> Activation:
    """z."""
    return scale_invariant(1.0, 1.0, name="linear")


def relu() -> Activation:
    """max(z, 0)."""
    return scale_invariant(1.0, 0.0, name="relu")


def leaky_relu(slope: float = 0.01) -> Activation:
    """z for z > 0 and slope z for z < 0."""
    _check_parameters("leaky_relu", slope=slope)
    return scale_invariant(1.0, slope, name=f"leaky_relu({_number(slope)})")


def perceptron() -> Activation:
    """1 for z > 0 and 0 below: a kernel, but no NTK."""
    step = lambda z: jnp.where(z > 0, 1.0, 0.0)  # noqa: E731
    return _named("perceptron", step, "perceptron", kinks=(0.0,), jump_order=0)


def sigmoid() -> Activation:
    """1 / (1 + exp(-z))."""
    return _named("sigmoid", jax.nn.sigmoid, "sigmoid", exact=_sigmoid_derivatives)


def tanh() -> Activation:
    """tanh z."""
    return _named("tanh", jnp.tanh, "tanh", exact=_tanh_derivatives)


def sin() -> Activation:
    """sin z."""
    return _named("sin", jnp.sin, "sin")


def erf() -> Activation:
    """The error function of z."""
    return _named("erf", jax.scipy.special.erf, "erf")


def softplus() -> Activation:
    """log(1 + exp z)."""

    def exact(z, highest):
        return (
            (jax.nn.softplus(z), *_sigmoid_derivatives(z, highest - 1)) if highest else (jax.nn.softplus(z),)
        )

    return _named("softplus", jax.nn.softplus, "softplus", exact=exact)


def swish(beta: float = 1.0) -> Activation:
    """z / (1 + exp(-beta z))."""
    _check_parameters("swish", beta=beta)
    name = "swish" if beta == 1 else f"swish({_number(beta)})"

    def exact(z, highest):  # Leibniz: (z g)^(m) = z g^(m) + m g^(m-1)
        g = [beta**m * value for m, value in enumerate(_sigmoid_derivatives(beta * z, highest))]
        return (z * g[0], *(z * g[m] + m * g[m - 1] for m in range(1, highest + 1)))

    def function(z):
        return z * jax.nn.sigmoid(beta * z)

    return _named("swish", function, name, parameters=(float(beta),), exact=exact)


def gelu() -> Activation:
    """z Phi(z) with the Gaussian cumulative Phi, exact."""
    return _named("gelu", lambda z: 0.5 * z * jax.scipy.special.erfc(-z * math.sqrt(0.5)), "gelu")


def mish() -> Activation:
    """z tanh(softplus z)."""
    return _named("mish", lambda z: z * jnp.tanh(jax.nn.softplus(z)), "mish")


def elu(alpha: float = 1.0) -> Activation:
    """z for z > 0 and alpha (exp z - 1) below."""
    _check_parameters("elu", alpha=alpha)
    name = "elu" if alpha == 1 else f"elu({_number(alpha)})"
    order = 2 if alpha == 1 else 1
    return _named(
        "elu", _exponential_linear(alpha), name, parameters=(float(alpha),), kinks=(0.0,), jump_order=order
    )


def selu() -> Activation:
    """The self-normalizing elu of Klambauer et al. (2017)."""
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    elu_part = _exponential_linear(alpha)
    return _named("selu", lambda z: scale * elu_part(z), "selu", kinks=(0.0,), jump_order=1)


def hardtanh() -> Activation:
    """z cut at -1 and 1."""
    return _named("hardtanh", lambda z: jnp.clip(z, -1.0, 1.0), "hardtanh", kinks=(-1.0, 1.0), jump_order=1)


def monomial(degree: float = 3) -> Activation:
    """z to the power `degree`."""
    if not 1 <= degree <= 12 or int(degree) != degree:
        raise ValueError(f"degree of a monomial must be a whole number from 1 to 12, got {degree}.")
    return polynomial(*[0.0] * int(degree), 1.0, name=f"monomial({int(degree)})")


def polynomial(*coefficients: float, name: str | None = None) -> Activation:
    """c_0 + c_1 z + c_2 z^2 + ..."""
    _check_parameters("polynomial", **{f"c_{k}": c for k, c in enumerate(coefficients)})
    if not 1 <= len(coefficients) <= 13:
        raise ValueError(f"polynomial takes 1 to 13 coefficients, got {len(coefficients)}.")

    def horner(z):
        value = jnp.zeros_like(z)
        for c in reversed(coefficients):
            value = value * z + c
        return value

    name = name or f"polynomial({', '.join(map(_number, coefficients))})"
    return _named("polynomial", horner, name, parameters=tuple(map(float, coefficients)))


def _tanh_derivatives(z: Array, highest: int) -> tuple[Array, ...]:
    """Polynomials in t = tanh z: unlike automatic differentiation they keep all digits of small values."""
    t = jnp.tanh(z)
    square = t * t
    slope = 1 - square
    derivatives = (
        t,
        slope,
        -2 * t * slope,
        slope * (6 * square - 2),
        t * slope * (16 - 24 * square),
        slope * (16 - 120 * square * slope),
    )
    return derivatives[: highest + 1]


def _sigmoid_derivatives(z: Array, highest: int) -> tuple[Array, ...]:
    """sigmoid(z) = (1 + tanh(z/2)) / 2."""
    t = _tanh_derivatives(z / 2, highest)
    return (jax.nn.sigmoid(z), *(t[m] / 2 ** (m + 1) for m in range(1, highest + 1)))


def _exponential_linear(alpha: float) -> Callable:
    # the inner where keeps exp from overflowing in the branch that is not taken
    return lambda z: jnp.where(z > 0, z, alpha * jnp.expm1(jnp.where(z > 0, 0.0, z)))


def _check_parameters(family: str, **parameters: float) -> None:
    for name, value in parameters.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} of {family} must be a finite number, got {value}.")


_CONSTRUCTORS: dict[str, Callable[..., Activation]] = {
    "linear": linear,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "scale_invariant": scale_invariant,
    "perceptron": perceptron,
    "sigmoid": sigmoid,
    "tanh": tanh,
    "sin": sin,
    "erf": erf,
    "softplus": softplus,
    "swish": swish,
    "silu": swish,
    "gelu": gelu,
    "mish": mish,
    "elu": elu,
    "selu": selu,
    "hardtanh": hardtanh,
    "monomial": monomial,
    "polynomial": polynomial,
}


def activations() -> tuple[str, ...]:
    """The names that a string may use; some take parameters, as in "leaky_relu(0.2)"."""
    return tuple(_CONSTRUCTORS)


def as_activation(activation: "str | Activation | Callable") -> Activation:
    """The Activation that a name, a function of z or an Activation stands for."""
    if isinstance(activation, Activation):
        return activation
    if isinstance(activation, str):
        return _from_name(activation)
    return Activation(activation)


def shifted(activation: Activation, value: float) -> Activation:
    """sigma(z) - value, with the kinks and jumps that sigma is known to have."""
    exact = activation.exact
    fields = {
        "function": lambda z: activation.function(z) - value,
        "name": f"{activation.name} {'-' if value > 0 else '+'} {abs(value):.6g}",
        "kinks": activation.kinks,
        "family": None,
        "parameters": (),
        "jump_order": activation.jump_order,
        "exact": (lambda z, m: (exact(z, 0)[0] - value, *exact(z, m)[1:])) if exact else None,
    }
    moved = object.__new__(Activation)  # its checks were passed by sigma
    for name, field in fields.items():
        object.__setattr__(moved, name, field)
    return moved


def _from_name(text: str) -> Activation:
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", text)
    name, listed = (match[1].lower(), match[2] or "") if match else (text, "")
    if name not in _CONSTRUCTORS:
        near = difflib.get_close_matches(name, _CONSTRUCTORS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(_CONSTRUCTORS)}."
        raise ValueError(f"activation {text!r} is not known; {hint}")
    arguments = [part.strip() for part in listed.split(",") if part.strip()]
    try:
        return _CONSTRUCTORS[name](*map(float, arguments))
    except (TypeError, ValueError) as error:
        raise ValueError(f"activation {text!r} cannot be made: {error}") from None
