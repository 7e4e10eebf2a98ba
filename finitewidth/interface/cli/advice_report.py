"""What `criticality` and `audit` print and write, from records; nothing is computed here."""

import math
from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import finitewidth

_MEANING = {
    "p_0": "kernel K",
    "p_perp": "separation of nearby inputs",
    "p_Theta": "neural tangent kernel Theta",
}


def print_criticality(point, fitted: Mapping, console: Console) -> None:
    """Class, point, exponents and what to set."""
    _line(console, "activation", point.activation.name)
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
            ", ".join(f"{name} = {value:.8g}" for name, value in point.constants.items()),
        )
    console.print(f"\n{escape(point.explanation)}", highlight=False)
    if point.exponents:
        console.print(_exponent_table(point, fitted))
    for line in recommended(point):
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)


def _exponent_table(point, fitted: Mapping) -> Table:
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
    """One name to a row, or tensors of the same stated exponent together where nothing was fitted."""
    means = [[name] for name in stated if name in _MEANING]
    tensors = [name for name in {**stated, **fitted} if name not in _MEANING]
    if fitted:
        return means + [[name] for name in tensors]
    return means + [[n for n in tensors if stated[n] == p] for p in sorted({stated[n] for n in tensors})]


def _quantity(names: list[str]) -> str:
    if names[0] in _MEANING:
        return f"{names[0]:8s} {_MEANING[names[0]]}"
    return f"{'ratio of' if len(names) == 1 else 'ratios of'} {' '.join(names)} to what they correct"


def _estimate(estimate) -> str:
    return f"{float(estimate.value):.4f} ± {float(estimate.stderr):.1g}"


def recommended(point) -> list[str]:
    """Settings in words."""
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


def _rates(point) -> str:
    if point.universality_class != "K*=0":
        return "biases lambda_b / L, weights (lambda_W / L) / fan-in"
    p_0, p_perp = point.exponents["p_0"], point.exponents["p_perp"]
    biases = _powers("lambda_b", -p_perp, p_perp - 1)
    weights = _powers("lambda_W", p_0 - p_perp, p_perp - 1)
    return f"biases {biases}, weights {weights} / fan-in"


def _powers(name: str, of_l: float, of_L: float) -> str:
    parts = [f"{base}^{power:.4g}" for base, power in (("l", of_l), ("L", of_L)) if abs(power) > 1e-12]
    return " ".join([name, *parts])


def criticality_document(point, fitted: Mapping) -> dict[str, Any]:
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
        "residual": point.residual if math.isfinite(point.residual) else None,
        "converged": point.converged,
        "other_fixed_point": point.other_fixed_point,
        "explanation": point.explanation,
        "remedy": None if point.remedy is None else _point(point.remedy),
        "recommended": recommended(point),
    }


def _point(point) -> dict[str, Any]:
    return {
        "activation": point.activation.name,
        "universality_class": point.universality_class,
        "C_b": point.C_b,
        "C_W": point.C_W,
        "K_star": point.K_star,
    }


def print_audit(found, console: Console) -> None:
    """Verdict first, then numbers, then what to set."""
    net = found.net
    _line(console, "network", describe(net))
    _line(console, "verdict", "healthy" if found.healthy else "needs attention")
    for finding in found.findings:
        _line(console, "depth", str(finding))
    if not found.findings:
        _line(console, "depth", f"signals and gradients survive all {net.depth} layers")
    _line(console, "length", _lengths(found))
    _line(console, "width", found.aspect_verdict)
    if found.deepest is not None:
        _line(console, "", f"ratios stay below 0.3 up to layer {found.deepest}")
    if found.report is not None:
        largest = sorted(found.report.rows, key=lambda row: -abs(row.ratio))[:5]
        shown = ", ".join(f"{row.name} {row.ratio:.2g}" for row in largest)
        _line(console, "ratios", f"largest of the output layer, 1/n included: {shown}")
    for line in found.steps:
        _line(console, "layers", line)
    for line in found.advice:
        _line(console, "instead", line)


def describe(net) -> str:
    """One line that stays short however deep the network is."""
    runs = [[net.widths[0], 1]]
    for width in net.widths[1:]:
        if width == runs[-1][0]:
            runs[-1][1] += 1
        else:
            runs.append([width, 1])
    widths = ", ".join(f"{width}" if times == 1 else f"{width} x {times}" for width, times in runs)
    # the hyperparameters as the network's own repr shortens them
    rest = repr(net).split("activation=", 1)[1].rstrip(")")
    return f"widths {widths}; {rest.replace('=', ' ').replace(chr(39), '')}"


def _lengths(found) -> str:
    parallel, perp = found.correlation_length_parallel, found.correlation_length_perp
    text = f"correlation lengths: norms {_layers(parallel)}, directions and gradients {_layers(perp)}"
    return text if found.depth_limit is None else f"{text}; lost after about {found.depth_limit} layers"


def _layers(length: float) -> str:
    return "infinite (critical)" if math.isinf(length) else f"{length:.3g} layers"


def audit_document(found) -> dict[str, Any]:
    """The document of `audit --json`."""
    net, report = found.net, found.report
    return {
        "finitewidth": finitewidth.__version__,
        "command": "audit",
        "network": {
            "widths": list(net.widths),
            "activation": net.activation.name,
            **{name: list(getattr(net, name)) for name in ("C_b", "C_W", "lambda_b", "lambda_W")},
        },
        "input_scale": found.input_scale,
        "healthy": found.healthy,
        "findings": [{**{k: _finite(v) for k, v in vars(f).items()}, "text": str(f)} for f in found.findings],
        "correlation_length_parallel": _finite(found.correlation_length_parallel),
        "correlation_length_perp": _finite(found.correlation_length_perp),
        "depth_limit": found.depth_limit,
        "aspect_verdict": found.aspect_verdict,
        "expansion_parameter": None if report is None else report.expansion_parameter,
        "deepest_layer_within_range": found.deepest,
        "ratios": {} if report is None else {row.name: row.ratio for row in report.rows},
        "layers": [
            {
                "layer": l + 1,
                "K": _finite(K),
                "Theta": _finite(Theta),
                "chi_parallel": _finite(a),
                "chi_perp": _finite(b),
            }
            for l, (K, Theta, a, b) in enumerate(zip(*found.path[:4], strict=True))
        ],
        "advice": list(found.advice),
        "critical_point": _point(found.point),
    }


def _finite(value):
    """JSON has no infinity: null stands for it."""
    if isinstance(value, str | int):
        return value
    return float(value) if math.isfinite(value) else None


def _line(console: Console, name: str, text: str) -> None:
    console.print(f"[bold]{name:10s}[/bold] {escape(text)}", highlight=False, soft_wrap=True)
