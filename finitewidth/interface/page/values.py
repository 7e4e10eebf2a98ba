"""The values of the page: names, choices, ranges and defaults, all checked in one function."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints
from urllib.parse import parse_qsl

# activations that are answered within a second; others need the library itself
ACTIVATIONS = (
    "tanh",
    "erf",
    "sin",
    "gelu",
    "swish",
    "mish",
    "softplus",
    "sigmoid",
    "relu",
    "leaky_relu(0.2)",
    "linear",
)
TABS = {
    "network": "Trained networks",
    "residual": "Residual networks",
    "bayes": "Bayes beside descent",
    "extrapolation": "Beyond order 1/n",
}
STARTS = {"critical": "critical point", "own": "own C_b and C_W"}
WEIGHTS = {"gaussian": "Gaussian", "orthogonal": "orthogonal"}
ALGORITHMS = {
    "flow": "flow, to the end",
    "flow_time": "flow, until time t",
    "descent": "descent, in steps",
    "two_step": "two Newton steps",
}
TARGETS = {"sine": "sin 2x", "line": "x", "parabola": "x² - ½", "step": "sign of x"}

MOST_TEXT = 2000  # characters of a query
_MOST_SHOWN = 30  # characters of a bad value that a message repeats
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")


@dataclass(frozen=True)
class Choice:
    """A value that is one of a few words."""

    label: str
    options: Mapping[str, str]  # the word in the address, the words on the page

    def read(self, name: str, text: str) -> str:
        if text in self.options:
            return text
        raise ValueError(f"{name} is {_shown(text)}; choose one of {', '.join(self.options)}.")


@dataclass(frozen=True)
class Number:
    """A value that is a number in a range, and a whole number if `whole`."""

    label: str
    lowest: float
    highest: float
    whole: bool = False
    logarithmic: bool = False  # how a slider moves

    def read(self, name: str, text: str) -> float:
        kind = "a whole number" if self.whole else "a number"
        wanted = f"{name} must be {kind} from {self.lowest:g} to {self.highest:g}"
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"{wanted}, got {_shown(text)}.")
        value = float(text)
        if not self.lowest <= value <= self.highest:  # also infinity, which is the value of 400 digits
            raise ValueError(f"{wanted}, got {_shown(text)}.")
        if self.whole and value != math.floor(value):
            raise ValueError(f"{wanted}, got {_shown(text)}; round it.")
        return int(value) if self.whole else value


def _named(names) -> dict[str, str]:
    return {name: name for name in names}


@dataclass(frozen=True)
class Values:
    """One state of the page, with every value in its range; the fields are its controls, in order."""

    tab: Annotated[str, Choice("tab", TABS)] = "network"
    activation: Annotated[str, Choice("activation", _named(ACTIVATIONS))] = "tanh"
    depth: Annotated[int, Number("depth L", 2, 50, whole=True)] = 3
    width: Annotated[int, Number("width n", 2, 10_000, whole=True, logarithmic=True)] = 32
    gamma: Annotated[float, Number("skips γ", 0.0, 0.99)] = 0.9
    start: Annotated[str, Choice("initialization", STARTS)] = "critical"
    C_b: Annotated[float, Number("C_b", 0.0, 1.0)] = 0.0
    C_W: Annotated[float, Number("C_W", 0.05, 4.0)] = 1.0
    weights: Annotated[str, Choice("weights", WEIGHTS)] = "gaussian"
    lambda_b: Annotated[float, Number("λ_b", 0.0, 10.0)] = 1.0
    lambda_W: Annotated[float, Number("λ_W", 0.01, 10.0)] = 1.0
    algorithm: Annotated[str, Choice("algorithm", ALGORITHMS)] = "descent"  # fifty steps train in a second
    time: Annotated[float, Number("time t", 0.0, 1e4)] = 3.0
    learning_rate: Annotated[float, Number("learning rate η", 1e-6, 10.0, logarithmic=True)] = 0.1
    steps: Annotated[int, Number("steps", 1, 20_000, whole=True, logarithmic=True)] = 50
    target: Annotated[str, Choice("target function", TARGETS)] = "parabola"
    points: Annotated[int, Number("training points", 2, 5, whole=True)] = 4
    noise: Annotated[float, Number("noise s²", 1e-4, 1.0, logarithmic=True)] = 0.1
    members: Annotated[int, Number("networks", 32, 2048, whole=True, logarithmic=True)] = 512

    def to_dict(self) -> dict:
        return asdict(self)

    def used_by(self, kind: str) -> tuple:
        """The values that an answer of this kind depends on: states that differ in others share it."""
        return tuple(value for name, value in asdict(self).items() if name not in _UNUSED[kind])


FIELDS: dict[str, Choice | Number] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Values, include_extras=True).items()
}
DEEPEST = 200  # layers of a residual network, which are computed for one input
_DEPTH_WITH_SKIPS = Number("depth L", 2, DEEPEST, whole=True)
_TRAINING = {"lambda_b", "lambda_W", "algorithm", "time", "learning_rate", "steps"}
_UNUSED = {
    "theory": {"tab", "gamma", "noise", "members"},
    "finite": {"tab", "gamma", "noise", "members"},
    "bayes": {"tab", "gamma", "members"} | _TRAINING,
    "residual": FIELDS.keys() - {"activation", "depth", "width", "gamma"},
}


class BadValues(ValueError):
    """The errors of a request, by the name of the value."""

    def __init__(self, errors: dict[str, str]):
        super().__init__(" ".join(errors.values()))
        self.errors = errors


def read(query: str) -> Values:
    """The values of a query string, with defaults for missing ones; wrong ones raise BadValues."""
    if len(query) > MOST_TEXT:
        raise BadValues(
            {"address": f"the address has {len(query)} characters of values; at most {MOST_TEXT} are read."}
        )
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    try:
        given = parse_qsl(query, keep_blank_values=True, errors="replace", max_num_fields=2 * len(FIELDS))
    except ValueError:
        raise BadValues(
            {"address": f"the address has more than {2 * len(FIELDS)} values; drop some."}
        ) from None
    for name, text in given:
        if name not in FIELDS:
            errors["address"] = f"the address has an unknown value {_shown(name)}; drop it."
        elif name in values or name in errors:
            errors[name] = f"{name} is given twice; keep one."
        else:
            try:
                field = (
                    _DEPTH_WITH_SKIPS if name == "depth" and ("tab", "residual") in given else FIELDS[name]
                )
                values[name] = field.read(name, text.strip())
            except ValueError as error:
                errors[name] = str(error)
    if errors:
        raise BadValues(errors)
    return Values(**values)


def _shown(text: str) -> str:
    """Text of a visitor in a message: short, and without control characters."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def described() -> list[dict]:
    """The controls that the page is to show."""
    defaults = Values().to_dict()
    return [_control(name, field) | {"default": defaults[name]} for name, field in FIELDS.items()]


def presets() -> list[dict]:
    """States that show something at once: name, sentence, query, and whether networks are trained at once."""
    return tomllib.loads((Path(__file__).parent / "presets.toml").read_text(encoding="utf-8"))["preset"]


def _control(name: str, field: Choice | Number) -> dict:
    about = {"name": name} | vars(field)
    if isinstance(field, Choice):
        about["options"] = [{"value": value, "label": label} for value, label in field.options.items()]
    return about
