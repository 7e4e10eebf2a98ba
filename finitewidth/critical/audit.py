r"""Whether signals and gradients survive a network's depth, and whether its width is enough.

Off criticality differences and gradients change as $e^{\pm l/\xi}$ with the correlation lengths $\xi$ of the
fixed point that the kernel flows to. At criticality the aspect ratio remains: fluctuations between networks
grow as depth over width, and their size is the largest dimensionless ratio of the 1/n tensors. Every layer is
judged by its own activation.
"""

import math
import numbers
from dataclasses import dataclass, field

import numpy as np

from finitewidth.core.display.numbers import number
from finitewidth.core.display.records import shown
from finitewidth.critical.activations.classification import Criticality, criticality
from finitewidth.critical.activations.susceptibilities import CRITICAL
from finitewidth.critical.architectures.explanation import steps_of_layers
from finitewidth.critical.architectures.two_inputs import TwoInputs, follow_inputs
from finitewidth.critical.aspect_ratio import ALLOWED, longer_skips
from finitewidth.critical.explanation import settings_in_words, steps_in_words
from finitewidth.critical.findings import LOST, Finding, losses
from finitewidth.critical.initialization import critical_points, is_critical
from finitewidth.critical.mutual_information import Information
from finitewidth.critical.one_input import OneInput, is_dense, layer_by_layer, layers_repeated, readers
from finitewidth.critical.phases import fixed_point
from finitewidth.critical.seed_spread import SeedSpread, seed_spread
from finitewidth.critical.stream_audit import stream_advice, stream_findings, stream_lengths
from finitewidth.critical.tuning import critical_network
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.network.network import Network
from finitewidth.theory import one_input, one_input_with_skips
from finitewidth.theory.ratios import Report, ratios
from finitewidth.theory.solve import solve

_SLOW_LAYERS = 64  # kinked activations other than two straight lines are solved layer by layer
_MOST_POSITIONS = 12  # of networks that are solved on pairs of positions
_SLOW_BODIES = 20  # bodies of several layers are solved pair by pair of layers


@shown(
    "healthy",
    "findings",
    "aspect_verdict",
    "correlation_length_parallel",
    "correlation_length_perp",
    "advice",
    "net",
)
@dataclass(frozen=True, eq=False)
class Audit:
    """The verdict on one network, as `fw.audit` gives it.

    ```python
    verdict = fw.audit(fw.MLP((2, *[100] * 29, 1), "tanh", C_W=0.8))
    verdict.healthy, verdict.findings, verdict.advice
    ```
    """

    net: Network
    input_scale: float  # mean square of the input components
    findings: tuple[Finding, ...]  # what explodes or vanishes, and where; none for a healthy network
    path: OneInput | TwoInputs = field(
        repr=False
    )  # K, Theta, susceptibilities of each layer at infinite width
    correlation_length_parallel: float  # layers over which differences of norm change by e
    correlation_length_perp: float  # layers over which gradients change by e
    report: Report | None = field(repr=False)  # ratios of the output layer; None where they cannot be had
    report_missing: str | None  # the reason
    aspect_verdict: str  # whether the width is enough for the depth, in words
    deepest: int | None  # the last layer that is trusted at these widths, None if all are
    points: tuple[Criticality, ...] = field(repr=False)  # of the activation on each hidden layer
    advice: tuple[str, ...]  # remedies in words
    steps: tuple[str, ...] = field(repr=False)  # the initialization in words, where layers differ in kind
    spread: SeedSpread | None = field(default=None, repr=False)  # between seeds, layer by layer

    @property
    def point(self) -> Criticality:
        """The critical point of the network's activation, of the first one where they differ."""
        return self.points[0]

    @property
    def depth_limit(self) -> int | None:
        """Layers after which gradients have changed by a factor 1000; None at criticality."""
        length = self.correlation_length_perp
        return None if math.isinf(length) else max(1, round(length * math.log(LOST)))

    @property
    def information(self) -> Information | None:
        """What outputs know of each other; None where ratios cannot be had."""
        if self.report is None:
            return None
        ratio = next(row.ratio for row in self.report.rows if row.name == "V")
        shift = next((row.ratio for row in self.report.rows if row.name == "G1"), 0.0)
        return Information(self.net, float(self.path.K[-1]) * (1 + shift), ratio)

    @property
    def healthy(self) -> bool:
        """Whether nothing explodes or vanishes and the width is enough for the depth."""
        return not self.findings and (self.report is None or self.report.verdict == "trusted")


@takes_models
def audit(net: Network, *, input_scale=1.0) -> Audit:
    """The verdict on a network: what explodes or vanishes and where, whether the width is enough, a remedy.

    Whether the width is enough is judged where order 1/n is known (`fw.solve`), for up to 12 positions.
    `spread` says how much kernels and NTKs differ between seeds, layer by layer, and what sets it: width,
    depth or the number of heads.

    Args:
        net: Any network, or a model that `fw.network_of` reads.
        input_scale: The mean square of the input components.

    Returns:
        `findings` are sentences, none for a healthy network. `steps` says how each layer of a network with
        different activations or other layers is initialized, and whether that is critical.

    ```python
    fw.audit(fw.MLP((2, *[100] * 29, 1), "tanh", C_W=0.8)).findings
    ```
    """
    if not (isinstance(input_scale, numbers.Real) and math.isfinite(input_scale) and input_scale > 0):
        raise ValueError(f"input_scale must be a finite number above 0, got {input_scale!r}.")
    if not is_dense(net):
        return _audit_of_stream(net, float(input_scale))
    points = critical_points(net)
    path = layer_by_layer(net, float(input_scale))
    lengths = _correlation_lengths(net, path)
    findings = _findings(net, path, *lengths)
    report, deepest, missing, spread = _aspect(net, float(input_scale), path)
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
        points=points,
        advice=_advice(net, float(input_scale), points, findings, report),
        steps=steps_in_words(net, path) if _differ(net) else (),
        spread=spread,
    )


def _audit_of_stream(net: Network, input_scale: float) -> Audit:
    """The verdict on a network with other layers than dense ones, from inputs that are taken through it."""
    path = follow_inputs(net, input_scale)
    findings = stream_findings(net, path)
    report, deepest, missing, spread = _aspect(net, input_scale, path)
    activations = [layer for layer in net.walked if isinstance(layer, Activation)]
    return Audit(
        net,
        input_scale,
        findings,
        path,
        *stream_lengths(path),
        report=report,
        report_missing=missing,
        aspect_verdict=_aspect_verdict(report, missing, lost=bool(findings)),
        deepest=deepest,
        points=tuple(criticality(activation) for activation in activations or [as_activation("linear")]),
        advice=_advice_on_stream(net, input_scale, findings, report, spread),
        steps=steps_of_layers(net, input_scale),
        spread=spread,
    )


def _differ(net: Network) -> bool:
    return len(set(net.activations)) > 1


def _correlation_lengths(net: Network, path: OneInput) -> tuple[float, float]:
    """Of norms and of directions, in layers: at the fixed point of the last layers, or on the way there.

    The longer of the two counts. A critical network approaches its fixed point for ever, with chi - 1 falling
    as 1/l; a half-stable one does not leave K* within any practical depth.
    """
    if _differ(net):
        return _mean_correlation_lengths(net, path)
    end = np.flatnonzero(np.isfinite(path.parallel))[-1]
    goal = fixed_point(readers(net)[-1], net.C_b[-1], net.C_W[-1], float(path.K[end]))
    parallel = max(_length(float(path.parallel[end])), _length(goal.parallel))
    return parallel, max(_length(float(path.perpendicular[end])), _length(goal.perpendicular))


def _mean_correlation_lengths(net: Network, path: OneInput) -> tuple[float, float]:
    """The same from the geometric mean of chi over the layers, each with its own activation.

    The fixed point is that of the whole stack of layers, repeated. Critical networks without a half-stable
    activation approach K = 0, where all susceptibilities are one.
    """
    if is_critical(net) and all(point.universality_class != "half-stable" for point in critical_points(net)):
        return math.inf, math.inf
    goal = layers_repeated(net, float(path.K[0]))
    parallel = max(_length(_mean(path.parallel)), _length(_mean(goal.parallel)))
    return parallel, max(_length(_mean(path.perpendicular)), _length(_mean(goal.perpendicular)))


def _mean(chi: np.ndarray) -> float:
    """The geometric mean over the steps between layers, as far as the kernel is finite."""
    steps = np.abs(chi[:-1][np.isfinite(chi[:-1])])
    with np.errstate(divide="ignore"):
        return float(np.exp(np.mean(np.log(steps)))) if steps.size else math.nan


def _length(chi: float) -> float:
    if math.isnan(chi):  # the kernel grows without end
        return 0.0
    rate = abs(math.log(abs(chi))) if chi != 0 else math.inf
    return 1 / rate if rate > CRITICAL else math.inf


def _findings(net: Network, path: OneInput, parallel: float, perp: float) -> tuple[Finding, ...]:
    names = tuple(str(activation.name) for activation in net.activations) if _differ(net) else ()
    lengths = (parallel, perp, perp)
    signal = path.K / path.K[0] if path.K[0] > 0 else np.ones(net.depth)
    chi = np.where(np.isfinite(path.perpendicular), path.perpendicular, np.nan)[:-1]
    if not np.isfinite(chi).all():  # beyond double precision the signal's finding says it all
        return losses(signal, np.ones(net.depth), np.ones(net.depth), lengths, names)
    angle = np.concatenate([[1.0], np.cumprod(chi)])
    nearby = angle * path.K[0] / path.K
    return losses(signal, nearby, angle[-1] / angle, lengths, names)


def _aspect(
    net: Network, input_scale: float, path: OneInput | TwoInputs
) -> tuple[Report | None, int | None, str | None, SeedSpread | None]:
    """Ratios of the output layer, the last layer that is trusted, what prevents both, and the spread."""
    if not np.isfinite(path.K).all():
        return None, None, "the kernel grows beyond double precision", None
    if path.K.min() < 1e-100 or path.Theta.min() < 1e-100:
        return None, None, "the signal is lost, so ratios to it mean nothing", None
    X = _one_input(net, input_scale)
    try:
        if long := _takes_long(net):
            return None, None, long, None
        theory = solve(net, X)
    except ValueError as error:
        return None, None, str(error), None
    reports = [ratios(theory.layer(l)) for l in range(1, net.depth + 1)]
    beyond = [report.layer for report in reports if report.verdict != "trusted"]
    return reports[-1], beyond[0] - 1 if beyond else None, None, seed_spread(net, X, theory)


def _one_input(net: Network, input_scale: float) -> np.ndarray:
    """Components of this mean square, which differ from position to position."""
    if len(net.input_shape) == 1:
        return np.full((1, *net.input_shape), math.sqrt(input_scale))
    values = np.random.default_rng(0).standard_normal((1, *net.input_shape))
    return values * math.sqrt(input_scale / np.mean(values**2))


def _takes_long(net: Network) -> str | None:
    """Why one input through the network is not a matter of seconds, if it is not."""
    if net.unknown_layer is not None:
        positions = math.prod(net.input_shape[:-1])
        if positions > _MOST_POSITIONS:
            return f"order 1/n of {positions} positions would take long; call fw.solve"
        return None
    if not net.ladder.has_skips and net.depth > _SLOW_LAYERS and not one_input.applies(net):
        return f"more than {_SLOW_LAYERS} layers of an activation with kinks would take long"
    if net.ladder.has_skips and net.depth > _SLOW_BODIES and not one_input_with_skips.applies(net):
        return f"more than {_SLOW_BODIES} layers in residual bodies of several layers would take long"
    return None


def _aspect_verdict(report: Report | None, missing: str | None, *, lost: bool) -> str:
    if report is None:
        return f"not known: {missing}"
    largest = f"largest ratio {number(report.expansion_parameter, 2)}"
    trusted = "fluctuations between networks are small corrections"
    meaning = {
        "trusted": "but depth is lost on signals that do not arrive" if lost else trusted,
        "doubtful": "fluctuations between networks are no longer small",
        "meaningless": "too deep for this width, networks differ from each other by more than their mean",
    }
    return f"{report.verdict} ({largest}: {meaning[report.verdict]})"


def _advice(
    net: Network,
    input_scale: float,
    points: tuple[Criticality, ...],
    findings: tuple[Finding, ...],
    report: Report | None,
) -> tuple[str, ...]:
    if findings:  # the ratios will change with the initialization
        return (_advice_on_initialization(net, input_scale) if _differ(net) else _advice_on_point(points[0]),)
    return _advice_on_width(report)


def _advice_on_width(report: Report | None, more: str = "") -> tuple[str, ...]:
    if report is None or report.verdict == "trusted":
        return ()
    wider = number(report.expansion_parameter / ALLOWED, 2)
    return (f"make the hidden layers about {wider} times wider, or the network as much shallower{more}",)


def _advice_on_stream(
    net: Network,
    input_scale: float,
    findings: tuple[Finding, ...],
    report: Report | None,
    spread: SeedSpread | None,
) -> tuple[str, ...]:
    if findings:
        return (stream_advice(net, input_scale),)
    if report is None or report.verdict == "trusted":
        return ()
    if net.unknown_layer is not None and spread is not None:
        return (spread.remedy,)
    return _advice_on_width(report, longer_skips(net, input_scale))


def _advice_on_point(point: Criticality) -> str:
    if point.C_W is None or point.universality_class == "unstable":
        return point.explanation
    return (
        f"set C_b = {point.C_b:.9g} and C_W = {point.C_W:.9g}, the critical point of "
        f"{point.activation.name}: fw.MLP.critical(widths, activation)"
    )


def _advice_on_initialization(net: Network, input_scale: float) -> str:
    """C_b and C_W of the critical network with these activations, or the reason why there is none."""
    try:
        critical = critical_network(net.widths, net.activations, input_scale=input_scale)
    except ValueError as error:
        return str(error)
    settings = "; ".join(settings_in_words(critical))
    return f"use fw.MLP.critical(widths, activation), which sets {settings}"
