"""One existing torch model, measured, beside the theory's prediction for networks like it.

Everything is measured in double precision on the CPU from copies of the parameters, so that a gradient as
small as 1e-30 is measured too and the model is not changed.
"""

import io
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from finitewidth.core.estimate import Estimate
from finitewidth.critical.audit import Audit, audit
from finitewidth.critical.findings import Finding, losses
from finitewidth.critical.one_input import layer_by_layer
from finitewidth.critical.tuning import products_above
from finitewidth.interface.adapters.torch_graph import Chain, LinearLayer, Piece
from finitewidth.interface.report.advice import print_audit
from finitewidth.network.mlp import MLP, Activations
from finitewidth.network.network import Network

_ROWS = 32  # samples that are measured
_OUTPUTS = 16  # output neurons whose gradients are taken
_SHOWN = 12  # layers in the printed table
_COMPATIBLE = 4  # standard errors; layers that differ by less count as drawn with one variance


class Curves(NamedTuple):
    """One number for each layer, (L,): a mean over samples, and over output neurons if there are several."""

    signal: np.ndarray  # mean square of the preactivations, K in theory
    gradient: (
        np.ndarray
    )  # squared norm of d output / d preactivations, in theory the product of chi_perp above
    ntk: np.ndarray  # the layer's contribution to the NTK with lambda_b = lambda_W = 1; they sum to it


@dataclass(frozen=True, eq=False)
class ModuleAudit:
    """The verdict on one model, measured and predicted."""

    layers: tuple[str, ...]  # names, from input to output
    C_b: Estimate  # (L,), mean squares of biases, with the sampling error of Gaussian entries
    C_W: Estimate  # (L,), mean squares of weights times fan-in
    measured: Curves = field(repr=False)
    predicted: Curves = field(repr=False)  # at infinite width, for networks with the variances of `net`
    findings: tuple[Finding, ...]  # measured losses: signals or gradients that explode or vanish
    theory: Audit = field(repr=False)  # the result of fw.audit for `net`

    @property
    def net(self) -> Network:
        """The network of the prediction, with one variance for all layers that are compatible with it."""
        return self.theory.net

    @property
    def healthy(self) -> bool:
        """Whether signals, differences of inputs and gradients survive, as measured and as predicted."""
        return not self.findings and self.theory.healthy

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=120, no_color=True, highlight=False)
        verdict = [str(finding) for finding in self.findings]
        depth = len(self.layers)
        for line in verdict or [f"signals and gradients survive all {depth} layers"]:
            console.print(f"measured   {line}", soft_wrap=True)
        console.print(_table(self))
        console.print("predicted for networks with these variances", soft_wrap=True)
        print_audit(self.theory, console)
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def _table(verdict: ModuleAudit) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 1))
    for title in ("layer", "C_b", "C_W", "signal", "theory", "gradient", "theory", "NTK", "theory"):
        table.add_column(title, justify="left" if title == "layer" else "right", no_wrap=True)
    depth = len(verdict.layers)
    for l in sorted({round(x) for x in np.linspace(0, depth - 1, min(depth, _SHOWN))}):
        pairs = zip(verdict.measured, verdict.predicted, strict=True)
        numbers = [f"{curve[l]:.2e}" for pair in pairs for curve in pair]
        variances = [f"{e.value[l]:.3g} ± {e.stderr[l]:.1g}" for e in (verdict.C_b, verdict.C_W)]
        table.add_row(f"{l + 1} {verdict.layers[l]}", *variances, *numbers)
    return table


def as_sample(chain: Chain, sample: Any) -> torch.Tensor:
    """The numbers that enter the first linear layer for up to _ROWS of the inputs, in double precision."""
    n_0 = chain.widths[0]
    try:
        inputs = torch.as_tensor(sample).detach().cpu()
        with torch.no_grad():
            rows = chain.front(inputs)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise ValueError(
            f"sample must be a batch of inputs that the module accepts, one row each ({reason})."
        ) from error
    if rows.ndim < 1 or rows.shape[-1] != n_0 or rows.numel() == 0:
        raise ValueError(
            f"sample has shape {tuple(inputs.shape)} but the first linear layer takes vectors of n_0 = {n_0} "
            "numbers; pass a batch of inputs, one row each."
        )
    rows = rows.reshape(-1, n_0).to(torch.float64)
    if not torch.isfinite(rows).all():
        raise ValueError("sample has NaN or infinity; remove or repair those inputs.")
    if not bool((rows != 0).any()):
        raise ValueError("sample has zeros only, so that nothing enters the module; pass real inputs.")
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).round().astype(int))
    return rows[torch.from_numpy(chosen)]


def audited(chain: Chain, activations: Activations, inputs: torch.Tensor) -> ModuleAudit:
    """Measure a chain on inputs of its first linear layer, and predict the same for networks like it."""
    C_b, C_W = _variances(chain)
    _require_signal(chain, C_b, C_W)
    counts = [layer.weight.numel() for layer in chain.layers]
    pooled = [_pooled(C_b, [layer.weight.shape[0] for layer in chain.layers]), _pooled(C_W, counts)]
    has_bias = tuple(float(layer.bias is not None) for layer in chain.layers)
    net = MLP(chain.widths, activations, C_b=pooled[0], C_W=pooled[1], lambda_b=has_bias)
    scales = (inputs**2).mean(dim=1).numpy()
    measured, separation = _measured(chain, inputs)
    return ModuleAudit(
        tuple(layer.name for layer in chain.layers),
        C_b,
        C_W,
        measured,
        _predicted(net, scales),
        _findings(measured, separation),
        audit(net, input_scale=float(scales.mean())),
    )


def _variances(chain: Chain) -> tuple[Estimate, Estimate]:
    def estimate(tensors: list[torch.Tensor | None], scales: list[int]) -> Estimate:
        squares = [0.0 if t is None else float((t.detach().double() ** 2).mean()) for t in tensors]
        counts = np.array([1 if t is None else t.numel() for t in tensors])
        value = np.array(squares) * np.array(scales)
        return Estimate(value, value * np.sqrt(2 / counts))

    biases = estimate([layer.bias for layer in chain.layers], [1] * len(chain.layers))
    return biases, estimate([layer.weight for layer in chain.layers], list(chain.widths[:-1]))


def _require_signal(chain: Chain, C_b: Estimate, C_W: Estimate) -> None:
    for l, layer in enumerate(chain.layers):
        if not np.isfinite([C_b.value[l], C_W.value[l]]).all():
            raise ValueError(
                f"layer {layer.name!r} has NaN or infinity in its parameters; initialize the module again."
            )
        if C_W.value[l] == 0:
            raise ValueError(
                f"weights of layer {layer.name!r} are all zero, so that no signal passes; initialize them "
                "(fw.torch.initialize_) before the audit."
            )


def _pooled(variance: Estimate, counts: list[int]) -> tuple[float, ...]:
    """One variance for all layers after the first if they are compatible with one, else each layer's own.

    The common value has the smaller error. Small errors matter: a deep network raises an error of C_W to a
    power.
    """
    value, count = variance.value, np.array(counts, dtype=float)
    if len(value) < 2:
        return tuple(value.tolist())
    common = float(np.sum(value[1:] * count[1:]) / np.sum(count[1:]))
    alike = np.abs(value - common) <= _COMPATIBLE * common * np.sqrt(2 / count)
    if not alike[1:].all():
        return tuple(value.tolist())
    return (common if alike[0] else float(value[0]), *[common] * (len(value) - 1))


def _measured(chain: Chain, inputs: torch.Tensor) -> tuple[Curves, np.ndarray]:
    """Signals forward, gradients backward, and the size of a small change of the input at every layer."""
    generator = torch.Generator().manual_seed(0)
    incoming, change = inputs, torch.randn(inputs.shape, dtype=torch.float64, generator=generator)
    slopes, signal, arriving, separation = [], [], [], []
    pieces: list[Piece | None] = [*chain.between, None]
    for layer, piece in zip(chain.layers, pieces, strict=True):
        W, b = _copies(layer)
        arriving.append((b is not None) + (incoming**2).mean(dim=1))
        z, change = incoming @ W.T + (0.0 if b is None else b), change @ W.T
        signal.append(float((z**2).mean()))
        separation.append(float((change**2).mean()))
        if piece is not None:
            incoming, slope = _with_slope(piece, z)
            slopes.append(slope)
            change = change * slope
    gradients = _backward(chain, slopes, len(inputs))
    ntk = [(g * a[:, None]).mean() for g, a in zip(gradients, arriving, strict=True)]
    curves = Curves(
        np.array(signal), np.array([float(g.mean()) for g in gradients]), np.array([float(x) for x in ntk])
    )
    return curves, np.array(separation)


def _copies(layer: LinearLayer) -> tuple[torch.Tensor, torch.Tensor | None]:
    W = layer.weight.detach().cpu().double()
    return W, None if layer.bias is None else layer.bias.detach().cpu().double()


def _with_slope(piece: Piece, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """sigma(z) and sigma'(z), independent of the caller's gradient mode."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = z.clone().requires_grad_()
        value = piece(leaf)
        (slope,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), slope


def _backward(chain: Chain, slopes: list[torch.Tensor], rows: int) -> list[torch.Tensor]:
    """For each layer l the squared norm of d z_i / d z^(l), (rows, outputs)."""
    outputs = min(chain.widths[-1], _OUTPUTS)
    jacobian = torch.eye(chain.widths[-1], dtype=torch.float64)[:outputs].expand(rows, -1, -1)
    norms = [(jacobian**2).sum(dim=2)]
    for layer, slope in zip(chain.layers[:0:-1], slopes[::-1], strict=True):
        jacobian = (jacobian @ _copies(layer)[0]) * slope[:, None, :]
        norms.append((jacobian**2).sum(dim=2))
    return norms[::-1]


def _predicted(net: MLP, scales: np.ndarray) -> Curves:
    """The same three curves at infinite width, where a sample's statistics depend on its norm only."""
    signal, gradient, ntk = [], [], []
    for scale in scales.tolist():
        path = layer_by_layer(net, scale)
        above = products_above(path.perpendicular)
        signal.append(path.K)
        gradient.append(above)
        ntk.append(above * (np.array(net.lambda_b) + path.arriving))
    return Curves(*(np.mean(curves, axis=0) for curves in (signal, gradient, ntk)))


def _findings(measured: Curves, separation: np.ndarray) -> tuple[Finding, ...]:
    signal, gradient = measured.signal / measured.signal[0], measured.gradient / measured.gradient[-1]
    relative = np.divide(separation / separation[0], signal, out=np.ones_like(signal), where=signal > 0)
    lengths = (
        _length(signal[-1], len(signal)),
        _length(relative[-1], len(signal)),
        _length(gradient[0], len(signal)),
    )
    return losses(signal, relative, gradient, lengths)


def _length(factor: float, depth: int) -> float:
    """The correlation length, in layers, of an exponential that changes by this factor over the depth."""
    with np.errstate(divide="ignore"):
        return float(depth / np.abs(np.log(factor)))
