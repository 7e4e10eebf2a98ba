"""The answers of `criticality` and `audit` as text and as JSON, from records; nothing is computed here."""

import math
import textwrap
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import finitewidth
from finitewidth.core.estimate import Estimate
from finitewidth.core.json_values import json_value
from finitewidth.critical.activations.classification import Criticality
from finitewidth.critical.architectures.two_inputs import TwoInputs
from finitewidth.critical.audit import Audit
from finitewidth.critical.mutual_information import Information
from finitewidth.critical.one_input import OneInput, is_dense
from finitewidth.interface.report.network_line import describe
from finitewidth.network.layers.weights import HYPERPARAMETERS
from finitewidth.network.network import Network

_MEANING = {
    "p_0": "kernel K",
    "p_perp": "separation of nearby inputs",
    "p_Theta": "neural tangent kernel Theta",
}


def print_criticality(point: Criticality, fitted: Mapping, console: Console) -> None:
    """Class, critical point, exponents and recommended settings."""
    _line(console, "activation", str(point.activation.name))
    _line(console, "class", point.universality_class)
    if point.C_W is not None:
        K_star = "any, kept as it is" if point.K_star is None else f"{point.K_star:.9g}"
        _line(console, "point", f"C_b = {point.C_b:.9g}, C_W = {point.C_W:.9g}, K* = {K_star}")
        state = "converged" if point.converged else "NOT converged"
        _line(console, "residual", f"{point.residual:.0e} ({state})")
    elif not point.converged:
        _line(console, "search", "failed: a critical point is not excluded")
    if point.constants:
        _line(
            console,
            "constants",
            ", ".join(f"{name.replace('_', ' ')} = {value:.8g}" for name, value in point.constants.items()),
        )
    console.print(f"\n{escape(point.explanation)}", highlight=False)
    if point.exponents:
        console.print(_exponent_table(point, fitted))
    for line in recommended(point):
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)


def _exponent_table(point: Criticality, fitted: Mapping) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 1))
    table.add_column("falls with depth as l^-p", no_wrap=True)
    table.add_column("p stated", justify="right")
    if fitted:
        table.add_column("p fitted", justify="right")
    for names in _rows(point.exponents, fitted):
        stated = point.exponents.get(names[0])
        row = [_quantity(names), "-" if stated is None else f"{stated + 0.0:.6g}"]
        if fitted:
            row.append(_estimate(fitted[names[0]]) if names[0] in fitted else "-")
        table.add_row(*row)
    return table


def _rows(stated: Mapping, fitted: Mapping) -> list[list[str]]:
    """Names in rows: one name each, or all tensors of one stated exponent together if nothing was fitted."""
    means = [[name] for name in stated if name in _MEANING]
    tensors = [name for name in {**stated, **fitted} if name not in _MEANING]
    if fitted:
        return means + [[name] for name in tensors]
    return means + [[n for n in tensors if stated[n] == p] for p in sorted({stated[n] for n in tensors})]


def _quantity(names: list[str]) -> str:
    if names[0] in _MEANING:
        return f"{names[0]:8s} {_MEANING[names[0]]}"
    return f"{'ratio of' if len(names) == 1 else 'ratios of'} {' '.join(names)} to what they correct"


def _estimate(estimate: Estimate) -> str:
    return f"{float(estimate.value):.4f} ± {float(estimate.stderr):.1g}"


def recommended(point: Criticality) -> list[str]:
    """Recommended settings in words."""
    if point.universality_class in ("none", "unstable"):
        return []
    lines = [
        "Set, for a network of L layers:",
        f"  variance of biases {point.C_b:.9g}, of weights {point.C_W:.9g} / fan-in",
    ]
    if point.universality_class == "half-stable":
        lines.append(
            f"  first layer: biases 0, weights {point.K_star:.9g} / (fan-in x mean square of an input "
            f"component)"
        )
    lines.append(f"  learning rates of layer l: {_rates(point)}")
    named = point.activation.family is not None
    name = f'"{point.activation.name}"' if named else point.activation.name
    return [*lines, f"  in Python: fw.MLP.critical(widths, {name})"]


def _rates(point: Criticality) -> str:
    if point.universality_class != "K*=0":
        return "biases lambda_b / L, weights (lambda_W / L) / fan-in"
    p_0, p_perp = point.exponents["p_0"], point.exponents["p_perp"]
    biases = _powers("lambda_b", -p_perp, p_perp - 1)
    weights = _powers("lambda_W", p_0 - p_perp, p_perp - 1)
    return f"biases {biases}, weights {weights} / fan-in"


def _powers(name: str, of_l: float, of_L: float) -> str:
    parts = [f"{base}^{power:.4g}" for base, power in (("l", of_l), ("L", of_L)) if abs(power) > 1e-12]
    return " ".join([name, *parts])


def criticality_document(point: Criticality, fitted: Mapping) -> dict[str, Any]:
    """The document of `criticality --json`."""
    exponents = {}
    for name in {**point.exponents, **fitted}:
        exponents[name] = {"stated": point.exponents.get(name)}
        if name in fitted:
            exponents[name] |= {"fitted": float(fitted[name].value), "error": float(fitted[name].stderr)}
    return {
        "finitewidth": finitewidth.__version__,
        "command": "criticality",
        **_point(point),
        "stable": point.stable,
        "attracts_from": point.attracts_from,
        "constants": dict(point.constants),
        "exponents": exponents,
        "residual": json_value(point.residual),
        "converged": point.converged,
        "other_fixed_point": point.other_fixed_point,
        "explanation": point.explanation,
        "remedy": None if point.remedy is None else _point(point.remedy),
        "recommended": recommended(point),
    }


def _point(point: Criticality) -> dict[str, Any]:
    return {
        "activation": point.activation.name,
        "universality_class": point.universality_class,
        "C_b": point.C_b,
        "C_W": point.C_W,
        "K_star": point.K_star,
    }


def print_audit(audit: Audit, console: Console) -> None:
    """Verdict first, then numbers, then recommended settings."""
    net = audit.net
    _line(console, "network", describe(net))
    _line(console, "verdict", _verdict(audit))
    for finding in audit.findings:
        _line(console, "depth", str(finding))
    if not audit.findings:
        _line(console, "depth", f"signals and gradients survive all {net.depth} layers")
    _line(console, "length", _lengths(audit))
    _line(console, "width", f"order 1/n of kernels and NTKs at initialization: {audit.aspect_verdict}")
    if audit.deepest is not None:
        _line(console, "", f"trusted up to layer {audit.deepest}")
    if audit.report is not None:
        largest = sorted(audit.report.rows, key=lambda row: -abs(row.ratio))[:5]
        shown = ", ".join(f"{row.name} {row.ratio:.2g}" for row in largest)
        _line(console, "ratios", f"largest of the output layer, 1/n included: {shown}")
    for line in audit.spread.sentences if audit.spread is not None else ():
        _line(console, "seeds", line)
    if audit.information is not None:
        _line(console, "outputs", audit.information.reading)
    for line in audit.steps:
        _line(console, "layers", line)
    for line in audit.advice:
        _line(console, "instead", line)


def _verdict(audit: Audit) -> str:
    """On signals, and in one word on the expansion in 1/n."""
    signals = "are lost" if audit.findings else "survive"
    expansion = "is not known" if audit.report is None else f"is {audit.report.verdict}"
    state = "healthy" if audit.healthy else "needs attention"
    return f"{state}: signals {signals}, and order 1/n of kernels and NTKs at initialization {expansion}"


def _lengths(audit: Audit) -> str:
    parallel, perp = audit.correlation_length_parallel, audit.correlation_length_perp
    forgotten = parallel == 0 and isinstance(audit.path, TwoInputs)
    norms = "forgotten in one step, since they are normalized" if forgotten else _layers(parallel)
    text = f"correlation lengths: norms {norms}, directions and gradients {_layers(perp)}"
    return text if audit.depth_limit is None else f"{text}; lost after about {audit.depth_limit} layers"


def _layers(length: float) -> str:
    return "infinite (critical)" if math.isinf(length) else f"{length:.3g} layers"


def audit_document(audit: Audit) -> dict[str, Any]:
    """The document of `audit --json`."""
    net, report = audit.net, audit.report
    return {
        "finitewidth": finitewidth.__version__,
        "command": "audit",
        "network": _network(net),
        "input_scale": audit.input_scale,
        "healthy": audit.healthy,
        "findings": [{**json_value(vars(f)), "text": str(f)} for f in audit.findings],
        "correlation_length_parallel": json_value(audit.correlation_length_parallel),
        "correlation_length_perp": json_value(audit.correlation_length_perp),
        "depth_limit": audit.depth_limit,
        "aspect_verdict": audit.aspect_verdict,
        "verdict": None if report is None else report.verdict,
        "uncertainty": None if report is None else report.uncertainty,
        "expansion_parameter": None if report is None else report.expansion_parameter,
        "deepest_trusted_layer": audit.deepest,
        "ratios": {} if report is None else {row.name: row.ratio for row in report.rows},
        "information": None if audit.information is None else _information(audit.information),
        "layers": _layers_of(audit.path),
        "advice": list(audit.advice),
        "critical_point": _point(audit.point),
        **({"steps": list(audit.steps)} if isinstance(audit.path, TwoInputs) else {}),
    }


def _information(information: Information) -> dict[str, Any]:
    return {
        "variance_of_variance": information.v,
        "aspect_ratio": information.aspect_ratio,
        "best_aspect_ratio": json_value(information.best_aspect_ratio),
        "within_range": information.within_range,
        "text": information.reading,
    }


def _layers_of(path: OneInput | TwoInputs) -> list[dict[str, Any]]:
    names = {"K": path.K, "Theta": path.Theta, "chi_parallel": path.parallel, "chi_perp": path.perpendicular}
    if isinstance(path, TwoInputs):
        names["correlation"] = path.correlation
    return [
        {"layer": l, **json_value(dict(zip(names, numbers, strict=True)))}
        for l, numbers in enumerate(zip(*names.values(), strict=True), start=1)
    ]


def _network(net: Network) -> dict[str, Any]:
    """Widths, activation and hyperparameters; functions of the user's, which `to_dict` refuses, by name."""
    if not is_dense(net):
        return net.to_dict()
    names = [str(activation.name) for activation in net.activations]
    return {
        "widths": list(net.widths),
        "activation": net.activation_name if len(set(names)) < 2 else names,
        **{name: list(getattr(net, name)) for name in HYPERPARAMETERS},
    }


def _line(console: Console, name: str, text: str) -> None:
    """A name and its text; a terminal gets lines that end with words, indented below the text."""
    indent = " " * 11
    if console.is_terminal:
        room = max(40, console.width - len(indent))
        text = f"\n{indent}".join(textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False))
    console.print(f"[bold]{name:10s}[/bold] {escape(text)}", highlight=False, soft_wrap=True)
