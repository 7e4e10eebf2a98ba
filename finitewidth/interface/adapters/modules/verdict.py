"""The verdict on one torch model: what was measured in it, beside the theory of networks like it."""

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import as_count
from finitewidth.critical.architectures.one_signal import contributions_to_ntk
from finitewidth.critical.architectures.weights import Weights, with_weights
from finitewidth.critical.audit import Audit
from finitewidth.critical.audit import audit as audit_network
from finitewidth.critical.findings import Finding, losses
from finitewidth.critical.stream_audit import correlation_length
from finitewidth.interface.adapters.modules.measure import Curves, copied, measured, shuffled
from finitewidth.interface.report.advice import print_audit
from finitewidth.network.foreign.recognition import Given
from finitewidth.network.foreign.torch_notes import notes_of
from finitewidth.network.foreign.torch_read import Read, as_batch, read, with_fixed_gains
from finitewidth.network.foreign.torch_trace import unwrapped
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network

# A model in which a mean square changed by more than this (300 in size) is not called healthy. This is a
# definition, no result: six relu layers of PyTorch's defaults lose 1e4 and train, forty lose 1e30 and do not.
_HARMFUL = 1e5
_ROWS = 32  # samples that are measured
_SHOWN = 12  # layers in the printed table
_COMPATIBLE = 4  # standard errors; layers that differ by less count as drawn with one variance
_CHANCE = 3  # standard deviations between draws: a smaller change is no matter of depth
_ALIKE, _DIFFERENT = 0.5, 1.5  # standard deviations of the logarithm of gradients between draws


@dataclass(frozen=True, eq=False)
class ModuleAudit:
    """The verdict on one model, measured, and predicted where the theory knows all of it.

    `fw.torch.audit` makes it.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    verdict = fw.torch.audit(model, torch.as_tensor(X, dtype=torch.float32))
    verdict.healthy, verdict.width_verdict, verdict.findings
    ```
    """

    layers: tuple[str, ...]  # names, in the order of work
    C_b: Estimate  # (L,), mean squares of biases, with the sampling error of Gaussian entries
    C_W: Estimate  # (L,), mean squares of weights times fan-in
    measured: Curves = field(repr=False)  # signals, gradients, correlation and NTK, layer by layer
    spread: Curves = field(repr=False)  # standard deviations over draws of the logarithms of the first two
    predicted: Curves | None = field(
        repr=False
    )  # at infinite width, for networks with the variances of `net`
    findings: tuple[Finding, ...]  # measured losses: signals or gradients that explode or vanish with depth
    theory: Audit | None = field(repr=False)  # the result of fw.audit for `net`
    unknown: str | None  # the part that the theory does not know
    notes: tuple[str, ...]  # what was passed over: dropout, wrappers, frozen parameters

    @property
    def net(self) -> Network | None:
        """The network of the prediction, with one variance for layers that are compatible with it."""
        return None if self.theory is None else self.theory.net

    @property
    def healthy(self) -> bool:
        """Whether signals, differences of inputs and gradients survive the depth of this model."""
        return all(1 / _HARMFUL < finding.factor < _HARMFUL for finding in self.findings)

    @property
    def width_verdict(self) -> str:
        """Whether the width is enough for the depth: by the theory, or else from other draws."""
        if self.theory is not None and self.theory.report is not None:
            return self.theory.aspect_verdict
        size = float(np.nanmax(self.spread.gradient))
        draws = f"gradients of other draws of these weights differ by {100 * np.expm1(size):.0f} percent"
        if size < _ALIKE:
            return f"enough for the depth ({draws})"
        return f"{'at the edge' if size < _DIFFERENT else 'too narrow for the depth'} ({draws})"

    def _measured(self) -> tuple[str, ...]:
        findings = tuple(str(finding) for finding in self.findings)
        if not self.healthy:
            return findings
        survive = f"signals and gradients survive all {len(self.layers)} layers"
        return (f"{survive}, though weakened" if findings else survive, *findings)

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=140, no_color=True, highlight=False)
        for line in self._measured():
            console.print(f"measured   {line}", soft_wrap=True, markup=False)
        console.print(f"width      {self.width_verdict}", soft_wrap=True, markup=False)
        for note in self.notes:
            console.print(f"note       {note}", soft_wrap=True, markup=False)
        console.print(_table(self))
        if self.theory is None:
            console.print(f"no prediction: {self.unknown}", soft_wrap=True, markup=False)
        else:
            console.print("predicted for networks with these variances", soft_wrap=True)
            print_audit(self.theory, console)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _table(verdict: ModuleAudit) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 1))
    quantities = ("signal", "gradient", "NTK")
    titles = [title for one in quantities for title in (one, *["theory"] * (verdict.predicted is not None))]
    for title in ("layer", "C_b", "C_W", *titles, "correlation"):
        table.add_column(title, justify="left" if title == "layer" else "right", no_wrap=True)
    depth = len(verdict.layers)
    for l in sorted({round(x) for x in np.linspace(0, depth - 1, min(depth, _SHOWN))}):
        sides = [verdict.measured] if verdict.predicted is None else [verdict.measured, verdict.predicted]
        numbers = [_shown(float(side[place][l])) for place in range(3) for side in sides]
        variances = [f"{e.value[l]:.3g} ± {e.stderr[l]:.1g}" for e in (verdict.C_b, verdict.C_W)]
        alike = f"{verdict.measured.correlation[l]:.3f}"
        table.add_row(f"{l + 1} {verdict.layers[l]}", *variances, *numbers, alike)
    return table


def _shown(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2e}"


def audit(module: torch.nn.Module, sample: Any, *, activation: Given = None, draws: int = 8) -> ModuleAudit:
    """Whether signals and gradients survive a module's depth: measured, and predicted.

    Any module can be measured: mean squares of weights, biases and of what each layer gives, gradients of the
    outputs, the correlation of two inputs, and the neural tangent kernel, layer by layer. The module is not
    changed.

    The prediction is that of `fw.audit` for networks whose weights and biases have the same mean squares. A
    module that the theory does not know has none, and `unknown` names the part. `healthy` is about signals:
    nothing grows or falls exponentially by more than a factor 300 (1e5 in the mean square).
    `width_verdict` says whether the width is enough.

    Args:
        module: The module.
        sample: A batch of inputs, of which 32 evenly spaced ones are used.
        activation: Activations that are not recognized, as in `network`.
        draws: Copies of the module with the entries of every parameter in another order, which show how much
            networks of the same initialization differ.

    Returns:
        The verdict, with what was measured and predicted layer by layer.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    fw.torch.audit(model, torch.as_tensor(X, dtype=torch.float32)).findings
    ```
    """
    draws = int(as_count("draws", draws, lowest=2))
    model, wrapper = unwrapped(module)
    try:
        known, unknown = read(module, sample, activation=activation), None
    except ValueError as error:
        if activation is not None:  # what was passed must fit
            raise
        known, unknown = None, str(error)
    _require_finite(model)
    double = copied(model)
    inputs = _chosen(sample, double)
    names, curves = measured(double, inputs)
    C_b, C_W = _variances(double, names)
    _require_signal(names, curves, C_W)
    spread = _spread(double, inputs, draws)
    theory = predicted = None
    if known is not None:
        theory, predicted, unknown = _theory(known, names, inputs)
    notes = known.notes if known is not None else notes_of(model, wrapper, _dropout(model))
    if predicted is not None and known is not None and len(known.net.input_shape) > 1:
        notes = (*notes, "columns of the theory take positions to be alike, which they are not near edges")
    findings = _findings(curves, spread)
    return ModuleAudit(names, C_b, C_W, curves, spread, predicted, findings, theory, unknown, notes)


def _dropout(model: torch.nn.Module) -> list[str]:
    return [name for name, one in model.named_modules() if "Dropout" in type(one).__name__]


def _require_finite(model: torch.nn.Module) -> None:
    for name, tensor in model.named_parameters():
        if getattr(tensor, "is_meta", False) or isinstance(tensor, torch.nn.UninitializedParameter):
            raise ValueError(f"parameter {name!r} has no values yet; run the module on a batch first.")
        if not bool(torch.isfinite(tensor.detach()).all()):
            layer = name.rpartition(".")[0]
            raise ValueError(
                f"layer {layer!r} has NaN or infinity in its parameters; initialize the module again."
            )


def _chosen(sample: Any, double: torch.nn.Module) -> torch.Tensor:
    """Up to _ROWS evenly spaced inputs in double precision."""
    inputs = as_batch(sample, double)
    if inputs.ndim < 2 and inputs.dtype.is_floating_point or inputs.numel() == 0:
        raise ValueError(
            f"sample has shape {tuple(inputs.shape)}; pass a batch of inputs that the module accepts, one "
            "row each."
        )
    if inputs.dtype.is_floating_point:
        if not bool(torch.isfinite(inputs).all()):
            raise ValueError("sample has NaN or infinity; remove or repair those inputs.")
        if not bool((inputs != 0).any()):
            raise ValueError("sample has zeros only, so that nothing enters the module; pass real inputs.")
    chosen = np.unique(np.linspace(0, len(inputs) - 1, min(len(inputs), _ROWS)).round().astype(int))
    return inputs[torch.from_numpy(chosen)]


def _variances(double: torch.nn.Module, names: tuple[str, ...]) -> tuple[Estimate, Estimate]:
    parameters = dict(double.named_parameters())

    def estimate(suffix: str) -> Estimate:
        matrices = suffix == ".weight"
        tensors = [_tensor(parameters, name, suffix) for name in names]
        squares = [
            0.0 if t is None else float((t.detach() ** 2).mean()) * (t[0].numel() if matrices else 1)
            for t in tensors
        ]
        counts = np.array([1 if t is None else t.numel() for t in tensors])
        return Estimate(np.array(squares), np.array(squares) * np.sqrt(2 / counts))

    return estimate(".bias"), estimate(".weight")


def _tensor(parameters: Mapping[str, torch.Tensor], layer: str, suffix: str) -> torch.Tensor | None:
    """The weights or biases of a layer; the first ones of a module such as attention, which has several."""
    layer, kind = re.sub(r" \(\d+\)$", "", layer), suffix.removeprefix(".")  # a number counts repeated calls
    own = [one for name, one in parameters.items() if name.rpartition(".")[0] == layer and kind in name]
    plain = parameters.get(layer) if kind == "weight" else None  # a parameter used as a matrix by itself
    return parameters.get(f"{layer}{suffix}", own[0] if own else plain)


def _require_signal(names: tuple[str, ...], curves: Curves, C_W: Estimate) -> None:
    if curves.gradient[0] > 0 and curves.signal[-1] > 0:
        return
    zero = [name for name, variance in zip(names, C_W.value, strict=True) if variance == 0]
    if zero:
        raise ValueError(
            f"weights of layer {zero[0]!r} are all zero, so that no signal passes; initialize them "
            "(fw.torch.initialize_) before the audit."
        )


def _spread(double: torch.nn.Module, inputs: torch.Tensor, draws: int) -> Curves:
    """Standard deviations over draws of the logarithms of signals and gradients."""
    generator = torch.Generator().manual_seed(0)
    others = [measured(shuffled(double, generator), inputs, brief=True)[1] for _ in range(draws)]
    return Curves(*(_deviation(np.stack(curve)) for curve in zip(*others, strict=True)))


def _deviation(draws: np.ndarray) -> np.ndarray:
    """Of the logarithms, over the draws through which something passes; NaN for fewer than two."""
    passes = draws > 0
    count = passes.sum(axis=0)
    logs = np.log(np.where(passes, draws, 1.0))
    mean = logs.sum(axis=0) / np.maximum(count, 1)
    squares = np.where(passes, (logs - mean) ** 2, 0.0).sum(axis=0)
    return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)


def _theory(
    known: Read, names: tuple[str, ...], inputs: torch.Tensor
) -> tuple[Audit | None, Curves | None, str | None]:
    if tuple(one.name for one in known.weights) != names:
        order = sorted(one.name for one in known.weights) == sorted(names)
        if not order:
            return None, None, "the layers that were measured are not those of the network that was read"
    net = pooled(known)
    rows = known.front(inputs)
    scales = (rows.reshape(len(rows), -1) ** 2).mean(dim=1).numpy()
    try:
        theory = audit_network(net, input_scale=float(scales.mean()))
    except ValueError as error:
        return None, None, str(error)
    curves = _predicted(net, scales, np.array([one.scale**2 for one in known.held]))
    places = [[one.name for one in known.weights].index(name) for name in names]
    return theory, Curves(*(curve[places] for curve in curves)), None


def pooled(known: Read) -> Network:
    """The network with one variance for all layers after the first if they are compatible with one.

    Otherwise layers of one role, which have one shape and names that differ in numbers, share one if they
    are compatible, and others have their own. The common value has the smaller error. Small errors matter: a
    deep network raises an error of C_W to a power.
    """
    weights = [layer for layer in known.net.walked if isinstance(layer, Dense | Conv)]
    tensors = [one.weight for one in known.weights]
    counts = {"C_W": [t.numel() for t in tensors], "C_b": [t.shape[0] for t in tensors]}
    roles = [(re.sub(r"\d+", "", one.name), tuple(one.weight.shape)) for one in known.weights]
    values = {
        name: _pooled(np.array([getattr(layer, name) for layer in weights]), np.array(count, float), roles)
        for name, count in counts.items()
    }
    pairs = iter(zip(values["C_b"], values["C_W"], known.weights, strict=True))

    def change(layer: Weights) -> Weights:
        C_b, C_W, held = next(pairs)
        return replace(layer, C_b=C_b, C_W=C_W, lambda_b=float(held.bias is not None), lambda_W=1.0)

    net = known.net.replace(layers=with_weights(with_fixed_gains(known.net.layers), change))
    if net.not_dense is not None:
        return net
    rates = net.lambda_b, net.lambda_W
    return MLP(net.widths, net.activations or "linear", net.C_b, net.C_W, *rates, weights=net.weights)


def _pooled(value: np.ndarray, count: np.ndarray, roles: list) -> list[float]:
    result, rest = value.copy(), np.arange(1, len(value))
    common = _common(value[rest], count[rest])
    if common is not None:
        error = common * math.sqrt(2 / count[0])
        first = common if abs(value[0] - common) <= _COMPATIBLE * error else float(value[0])
        return [first, *[common] * rest.size]
    for role in dict.fromkeys(roles[1:]):
        group = np.array([place for place in rest if roles[place] == role])
        common = _common(value[group], count[group])
        result[group] = value[group] if common is None else common
    return result.tolist()


def _common(value: np.ndarray, count: np.ndarray) -> float | None:
    """One variance that Gaussian entries may have had in all layers, by chi squared; or None."""
    if not value.size:
        return None
    common = float(np.sum(value * count) / np.sum(count))
    if common == 0:
        return common
    pulls = (value - common) / (common * np.sqrt(2 / count))
    return common if np.sum(pulls**2) <= value.size + _COMPATIBLE * math.sqrt(2 * value.size) else None


def _predicted(net: Network, scales: np.ndarray, factors: np.ndarray) -> Curves:
    """The same curves at infinite width, where a sample's statistics depend on its norm only.

    `factors` are squares of fixed factors behind layers, which are measured before them.
    """
    weights = [layer for layer in net.walked if isinstance(layer, Dense | Conv)]
    C_b, C_W, lambda_b = (
        np.array([getattr(w, name) for w in weights]) for name in ("C_b", "C_W", "lambda_b")
    )
    rows = []
    for scale in scales.tolist():
        gradient, arrived = np.array(contributions_to_ntk(net.layers, net.input_shape, scale)).T
        with np.errstate(divide="ignore", invalid="ignore"):
            signal = C_b + C_W * arrived / gradient
        rows.append((signal / factors, factors * gradient, factors * (lambda_b * gradient + arrived)))
    nothing = np.full(len(weights), np.nan)
    signal, gradient, ntk = np.mean(rows, axis=0)
    return Curves(signal, gradient, ntk, nothing, nothing)


def _findings(curves: Curves, spread: Curves) -> tuple[Finding, ...]:
    """What is lost exponentially; a change that other draws do not share is a matter of width."""
    with np.errstate(divide="ignore", invalid="ignore"):
        signal = _without_zeros(curves.signal / curves.signal[0])
        gradient = _without_zeros(curves.gradient / curves.gradient[-1])
        nearby = _without_zeros(curves.nearby / curves.nearby[0]) / signal
    stream = range(1, len(signal) + 1)
    lengths = [correlation_length(curve, stream, whole=True) for curve in (signal, nearby, gradient)]
    signal, gradient = _beyond_chance(signal, spread.signal), _beyond_chance(gradient, spread.gradient)
    return losses(signal, nearby, gradient, (lengths[0], lengths[1], lengths[2]))


def _without_zeros(curve: np.ndarray) -> np.ndarray:
    """A branch that is switched off at first is no loss: it has the value of the layer before."""
    result = curve.copy()
    for place in np.flatnonzero(~(curve > 0)):
        result[place] = result[place - 1] if place else 1.0
    return result


def _beyond_chance(curve: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The curve without what draws explain, whose logarithms have the standard deviation s.

    A lognormal with a mean of one has the median exp(-s^2/2), and varies around it: 3 s is three standard
    deviations. Where networks of one initialization differ that much, the word on width says it.
    """
    size = np.nan_to_num(spread, nan=0.0, posinf=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        by_chance = np.abs(np.log(curve)) < _CHANCE * size + size**2 / 2
    return np.where(by_chance, 1.0, curve)
