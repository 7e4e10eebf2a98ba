r"""The largest curvature of a loss at initialization, by products with Jacobians: of any torch module.

A step $-\eta P\, dL/d\theta$ with relative rates P on the parameters moves outputs by
$-\eta J P J^T\, dL/dz$. Descent is stable while $\eta$ is below two over the largest eigenvalue of
$R^T J P J^T R$, the NTK with these rates times the curvature $H = R R^T$ of the
loss in the outputs:

| loss | curvature of one sample |
|---|---|
| squared, $\frac12\sum(z-y)^2$ | 1; `MSELoss` has 2, over N n_L for the mean |
| cross-entropy | diag(p) - p p^T with the probabilities p of the model; over N for the mean |
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from torch.func import functional_call, jvp, vjp

_STEPS = 30  # of the power iteration
_ENOUGH = 1e-3  # relative change at which it ends


class Root(NamedTuple):
    """R with R R^T = H, for all samples."""

    forth: Callable[[torch.Tensor], torch.Tensor]  # R
    back: Callable[[torch.Tensor], torch.Tensor]  # R^T


class Curvature(NamedTuple):
    """The largest eigenvalue, and the share of each parameter in the mean of the NTK."""

    largest: float
    shares: dict[str, float]  # of names of parameters; they sum to one


def curvature(
    model: nn.Module, inputs: torch.Tensor, rates: dict[str, float], root: Callable[[torch.Tensor], Root]
) -> Curvature:
    """The largest eigenvalue for relative `rates` on the named parameters; `root` makes R of the outputs."""
    held = {name: tensor.detach() for name, tensor in model.named_parameters()}
    moving = {name: held[name] for name in rates}
    fixed = {name: tensor for name, tensor in held.items() if name not in rates}

    def function(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        output = functional_call(model, {**fixed, **parameters}, (inputs,))
        return output.reshape(len(output), -1)

    outputs, back = vjp(function, moving)[:2]
    by_root = root(outputs)

    def scaled(direction: torch.Tensor) -> dict[str, torch.Tensor]:
        (gradients,) = back(by_root.forth(direction))
        return {name: rates[name] * gradient for name, gradient in gradients.items()}

    def moved(direction: torch.Tensor) -> torch.Tensor:
        return by_root.back(jvp(function, (moving,), (scaled(direction),))[1])

    start = torch.randn(outputs.shape, dtype=outputs.dtype, generator=torch.Generator().manual_seed(0))
    return Curvature(_largest(moved, start), _shares(back, outputs, rates))


def _largest(matrix: Callable[[torch.Tensor], torch.Tensor], direction: torch.Tensor) -> float:
    """The largest eigenvalue of a symmetric matrix, by power iteration."""
    largest = 0.0
    for _ in range(_STEPS):
        norm = direction.norm()
        if not norm > 0:
            break
        direction = direction / norm
        image = matrix(direction)
        before, largest = largest, float((image * direction).sum())
        if not largest > 0 or abs(largest - before) < _ENOUGH * largest:
            break
        direction = image
    return largest


def _shares(
    back: Callable, outputs: torch.Tensor, rates: dict[str, float], probes: int = 16
) -> dict[str, float]:
    """Shares in the trace of the NTK, from random signs."""
    generator = torch.Generator().manual_seed(1)
    totals = dict.fromkeys(rates, 0.0)
    for _ in range(probes):
        signs = torch.randint(0, 2, outputs.shape, generator=generator).to(outputs) * 2 - 1
        (gradients,) = back(signs)
        for name, gradient in gradients.items():
            totals[name] += rates[name] * float((gradient**2).sum())
    whole = sum(totals.values()) or 1.0
    return {name: value / whole for name, value in totals.items()}


def squared(factor: float) -> Callable[[torch.Tensor], Root]:
    """The same curvature in every output."""

    def times(direction: torch.Tensor) -> torch.Tensor:
        return direction * factor**0.5

    return lambda outputs: Root(times, times)


def softmax(factor: float) -> Callable[[torch.Tensor], Root]:
    """diag(p) - p p^T times a factor: with s the square roots of p, R = diag(s) (1 - s s^T)."""

    def root(outputs: torch.Tensor) -> Root:
        s = torch.softmax(outputs, dim=1).sqrt()

        def projected(direction: torch.Tensor) -> torch.Tensor:
            return factor**0.5 * (direction - s * (s * direction).sum(dim=1, keepdim=True))

        return Root(lambda direction: s * projected(direction), lambda direction: projected(s * direction))

    return root
