"""The tab of residual networks: fluctuations over depth for one gamma, and the depth that can be trusted."""

import functools

import numpy as np

from finitewidth.core.json_values import json_value
from finitewidth.critical.aspect_ratio import ALLOWED, Aspect, aspect
from finitewidth.interface.page.values import DEEPEST, BadValues, Values
from finitewidth.theory.ratios import neglected, verdict

GAMMAS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # beside the chosen one


def residual(values: Values) -> dict:
    """The largest ratio of every layer with these skips, and what follows for width and depth."""
    layers = _ratios_of_depth(values.activation, values.gamma)
    ratio = layers.curve / values.width
    beyond = np.flatnonzero(ratio > ALLOWED)
    reached = int(beyond[0]) if beyond.size else None
    here = float(ratio[values.depth - 1])
    needed = max(1, int(np.ceil(layers.curve[values.depth - 1] / ALLOWED)))
    return {
        "gamma": values.gamma,
        "ratio": json_value(ratio),
        "allowed": ALLOWED,
        "deepest": DEEPEST,
        "reached": reached,  # layers; None beyond the deepest
        "here": json_value(here),
        "verdict": verdict(neglected(here)),
        "text": _sentences(values, layers, reached, here, needed),
        "errors": {},
    }


@functools.lru_cache(maxsize=256)
def _ratios_of_depth(activation: str, gamma: float) -> Aspect:
    try:
        return aspect(activation, depth=DEEPEST, gamma=gamma)
    except ValueError as error:
        raise BadValues({"activation": str(error)}) from None


def _sentences(values: Values, layers: Aspect, reached: int | None, here: float, needed: int) -> list[str]:
    skips = f"skips γ = {values.gamma:g}" if values.gamma else "no skips"
    limit = f"all {DEEPEST} layers that this page looks at" if reached is None else f"{reached} layers"
    return [
        f"{values.depth} {values.activation} layers of width {values.width} with {skips}: "
        f"largest ratio {here:.2g}; at most {ALLOWED:g} is trusted.",
        f"At width {values.width} order 1/n is trusted up to {limit}.",
        f"{values.depth} layers need width {needed} or more.",
        f"Critical initialization of each layer: C_b = {layers.C_b:.4g}, C_W = {layers.C_W:.4g}.",
    ]
