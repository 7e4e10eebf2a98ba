r"""Whether signals and gradients survive a network's depth, and whether its width is enough.

Off criticality differences and gradients change as $e^{\pm l/\xi}$ with the correlation lengths $\xi$ of the
fixed point that the kernel flows to. At criticality what is left is the aspect ratio: fluctuations between
networks grow as depth over width, and the largest dimensionless ratio of the 1/n tensors says how far they
have come.
"""

import math
import numbers
from dataclasses import dataclass, field

import numpy as np

from finitewidth.critical.classification import Criticality, criticality
from finitewidth.critical.one_input import Trajectory, trajectory
from finitewidth.critical.phase_diagram import fixed_point
from finitewidth.network.activation import Activation
from finitewidth.network.mlp import MLP
from finitewidth.theory.ratios import HOPELESS, TRUSTED, Report, ratios
from finitewidth.theory.solve import solve

LOST = 1e3  # a signal or gradient that changed by this factor, exponentially, is lost
_ENDLESS = 1e6  # correlation lengths beyond are criticality
_SLOW_LAYERS = 64  # kinked activations other than two straight lines are solved layer by layer


@dataclass(frozen=True)
class Finding:
    """One thing that goes wrong: what, how, from which layer on, and the number behind it."""

    what: str  # "signal", "gradient", "nearby inputs"
    how: str  # "explodes", "vanishes", "separate", "merge"
    layer: int
    factor: float  # the largest change on the way
    correlation_length: float

    def __str__(self) -> str:
        place = (
            f"in layer {self.layer} and below" if self.what == "gradient" else f"from layer {self.layer} on"
        )
        size = f"by a factor {self.factor:.2g}" if math.isfinite(self.factor) else "beyond double precision"
        length = (
            f"; correlation length {self.correlation_length:.3g} layers"
            if self.correlation_length < _ENDLESS
            else ""
        )
        subject = self.what if self.what == "nearby inputs" else f"the {self.what}"
        return f"{subject} {self.how} {place} ({size}{length})"


@dataclass(frozen=True, eq=False)
class Audit:
    """The verdict on one network."""

    net: MLP
    input_scale: float
    findings: tuple[Finding, ...]
    path: Trajectory = field(repr=False)  # K, Theta, susceptibilities of each layer at infinite width
    correlation_length_parallel: float
    correlation_length_perp: float
    report: Report | None = field(repr=False)  # ratios of the output layer; None where they cannot be had
    report_missing: str | None  # and why
    aspect_verdict: str
    deepest: int | None  # the layer up to which ratios stay within range at these widths, None if all
    point: Criticality = field(repr=False)
    advice: tuple[str, ...]

    @property
    def depth_limit(self) -> int | None:
        """Layers after which gradients have changed by a factor 1000; None at criticality."""
        length = self.correlation_length_perp
        return None if math.isinf(length) else max(1, round(length * math.log(LOST)))

    @property
    def healthy(self) -> bool:
        """Whether nothing explodes or vanishes and the width is enough for the depth."""
        return not self.findings and (self.report is None or self.report.expansion_parameter < TRUSTED)


def audit(net: MLP, *, input_scale=1.0) -> Audit:
    """What explodes or vanishes, at which layer, whether the width is enough, and what to set instead.

    `input_scale` is the mean square of the input components.
    """
    if not (isinstance(input_scale, numbers.Real) and math.isfinite(input_scale) and input_scale > 0):
        raise ValueError(f"input_scale must be a finite number above 0, got {input_scale!r}.")
    point = criticality(net.activation)
    path = trajectory(net, float(input_scale))
    lengths = _correlation_lengths(net, path)
    findings = _findings(path, net.depth, *lengths)
    report, deepest, missing = _aspect(net, float(input_scale), path)
    return Audit(
        net,
        float(input_scale),
        findings,
        path,
        *lengths,
        report=report,
        report_missing=missing,
        aspect_verdict=_aspect_verdict(report, missing, lost=bool(findings)),
        deepest=deepest,
        point=point,
        advice=_advice(net, point, findings, report),
    )


def _correlation_lengths(net: MLP, path: Trajectory) -> tuple[float, float]:
    """Of norms and of directions, in layers: at the fixed point of the last layers, or on the way there.

    The longer of the two counts. A critical network is on its way for ever, with chi - 1 falling as 1/l; a
    half-stable one does not leave K* within any practical depth.
    """
    end = np.flatnonzero(np.isfinite(path.parallel))[-1]
    goal = fixed_point(net.activation, net.C_b[-1], net.C_W[-1], float(path.K[end]))
    parallel = max(_length(float(path.parallel[end])), _length(goal.parallel))
    return parallel, max(_length(float(path.perpendicular[end])), _length(goal.perpendicular))


def _length(chi: float) -> float:
    if math.isnan(chi):  # the kernel grows without end
        return 0.0
    rate = abs(math.log(abs(chi))) if chi != 0 else math.inf
    return 1 / rate if rate > 1 / _ENDLESS else math.inf


def _findings(path: Trajectory, depth: int, parallel: float, perp: float) -> tuple[Finding, ...]:
    signal = path.K / path.K[0] if path.K[0] > 0 else np.ones(depth)
    chi = np.where(np.isfinite(path.perpendicular), path.perpendicular, np.nan)[:-1]
    if not np.isfinite(chi).all():  # beyond double precision the signal's finding says it all
        return losses(signal, np.ones(depth), np.ones(depth), (parallel, perp, perp))
    angle = np.concatenate([[1.0], np.cumprod(chi)])
    nearby = angle * path.K[0] / path.K
    return losses(signal, nearby, angle[-1] / angle, (parallel, perp, perp))


def losses(
    signal: np.ndarray, nearby: np.ndarray, gradient: np.ndarray, lengths: tuple[float, float, float]
) -> tuple[Finding, ...]:
    """What is lost on the way through the layers, from curves over depth and their correlation lengths.

    Signals and separations of nearby inputs are relative to the first layer's, gradients to the output's.
    """
    depth = len(signal)
    found = _lost("signal", ("explodes", "vanishes"), signal, lengths[0], depth)
    found += _lost("nearby inputs", ("separate", "merge"), nearby, lengths[1], depth)
    from_output = _lost("gradient", ("explodes", "vanishes"), gradient[::-1], lengths[2], depth)
    found += [
        Finding(f.what, f.how, depth + 1 - f.layer, f.factor, f.correlation_length) for f in from_output
    ]
    return tuple(found)


def _lost(what: str, hows: tuple[str, str], curve: np.ndarray, length: float, depth: int) -> list[Finding]:
    """What changed by more than a factor LOST, and exponentially: within a length below half the depth."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.log(np.where(np.isnan(curve), np.inf, curve))
    beyond = np.flatnonzero(np.abs(size) > math.log(LOST))
    if not beyond.size or 2 * length > depth:
        return []
    how = hows[0] if size[beyond[0]] > 0 else hows[1]
    worst = int(np.argmax(np.abs(size)))
    return [Finding(what, how, int(beyond[0]) + 1, float(curve[worst]), length)]


def _aspect(net: MLP, input_scale: float, path: Trajectory) -> tuple[Report | None, int | None, str | None]:
    """Ratios of the output layer, and the first layer whose ratios leave the range."""
    activation: Activation = net.activation
    if not np.isfinite(path.K).all():
        return None, None, "the kernel grows beyond double precision"
    if path.K.min() < 1e-100 or path.Theta.min() < 1e-100:
        return None, None, "the signal is lost, so ratios to it mean nothing"
    two_lines = activation.is_smooth or activation.is_scale_invariant
    if not two_lines and net.depth > _SLOW_LAYERS:
        return None, None, f"more than {_SLOW_LAYERS} layers of an activation with kinks would take long"
    X = np.full((1, net.widths[0]), math.sqrt(input_scale))
    try:
        theory = solve(net, X)
    except ValueError as error:
        return None, None, str(error)
    reports = [ratios(theory.layer(l)) for l in range(1, net.depth + 1)]
    beyond = [r.layer for r in reports if r.expansion_parameter >= TRUSTED]
    return reports[-1], beyond[0] - 1 if beyond else None, None


def _aspect_verdict(report: Report | None, missing: str | None, *, lost: bool) -> str:
    if report is None:
        return f"not known: {missing}"
    size = report.expansion_parameter
    number = f"largest ratio {size:.2g}"
    if size < TRUSTED and lost:
        return f"the width is enough ({number}), but depth is lost on signals that do not arrive"
    if size < TRUSTED:
        return f"effectively deep ({number}: fluctuations between networks are small corrections)"
    if size < HOPELESS:
        return f"at the edge ({number}: fluctuations between networks are no longer small)"
    return f"too deep for this width ({number}: networks differ from each other by more than their mean)"


def _advice(
    net: MLP, point: Criticality, findings: tuple[Finding, ...], report: Report | None
) -> tuple[str, ...]:
    advice = []
    if findings:
        if point.C_W is None or point.universality_class == "unstable":
            advice.append(point.explanation)
        else:
            advice.append(
                f"set C_b = {point.C_b:.9g} and C_W = {point.C_W:.9g}, the critical point of "
                f"{net.activation.name}: "
                "fw.MLP.critical(widths, activation)"
            )
    if report is not None and report.expansion_parameter >= TRUSTED:
        factor = report.expansion_parameter / TRUSTED
        if not findings:  # otherwise the ratios will change with the initialization
            advice.append(
                f"make the hidden layers about {factor:.2g} times wider, or the network as much shallower"
            )
    return tuple(advice)
