"""The critical version of a torch module, and drawing its parameters."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from finitewidth.critical.architectures.weights import with_weights
from finitewidth.critical.audit import audit
from finitewidth.critical.tuning import BIAS_SHARE, critical_network, critical_version, held_without_biases
from finitewidth.network.foreign.torch_read import Read, with_fixed_gains
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.weights import as_ensemble
from finitewidth.network.mlp import MLP, Activations
from finitewidth.network.network import Network


def critical(
    known: Read,
    declared: Activation,
    input_scale: float,
    lambda_b: float | None = None,
    lambda_W: float = 1.0,
    bias_share: float | None = None,
) -> tuple[Network, str | None]:
    """The module's network at its critical point, and what is lost where biases are missing.

    Without `lambda_b` biases add `bias_share` of what the weights of their layer add to the NTK.
    """
    if lambda_b is None and bias_share is None:
        bias_share = BIAS_SHARE
    rates = (1.0 if lambda_b is None else lambda_b, lambda_W, input_scale, bias_share)
    net = known.net.replace(layers=with_fixed_gains(known.net.layers))
    if net.not_dense is None:
        activations = shared(net.activations) if net.activations else declared
        tuned: Network = critical_network(net.widths, activations, *rates)
    else:
        tuned = critical_version(net, *rates)
    tuned, loss = _without_missing_biases(known, tuned, input_scale)
    has_bias = iter([one.bias is not None for one in known.weights])
    return _changed(tuned, lambda layer: layer if next(has_bias) else replace(layer, lambda_b=0.0)), loss


def shared(activations: Sequence[Activation]) -> Activations:
    """One activation if all layers have the same, and else one for each."""
    return activations[0] if len(set(activations)) == 1 else tuple(activations)


def weighted(net: Network) -> list[Dense | Conv]:
    """The dense layers and convolutions in the order of signals, bodies before shortcuts."""
    return [layer for layer in net.walked if isinstance(layer, Dense | Conv)]


def _changed(net: Network, change) -> Network:
    if not isinstance(net, MLP):
        return net.replace(layers=with_weights(net.layers, change))
    dense = [change(layer) for layer in net.dense]
    names = ("C_b", "C_W", "lambda_b", "lambda_W")
    return net.replace(**{name: tuple(getattr(layer, name) for layer in dense) for name in names})


def with_ensemble(net: Network, weights: str) -> Network:
    """The network with Gaussian or orthogonal weights in all layers."""
    if as_ensemble("weights", weights) == "gaussian":
        return net
    if not isinstance(net, MLP):
        raise ValueError(
            f"weights='orthogonal' is for networks of dense layers and activations, and this module has "
            f"{net.not_dense}; leave it out."
        )
    return net.replace(weights=weights)


def with_outputs(net: Network, scale: float) -> Network:
    """The network with outputs that are `scale` times as large, by its last weights and biases."""
    if scale == 1:
        return net
    if not isinstance(net.layers[-1], Dense):
        raise ValueError(
            f"output_scale={scale:g} needs a linear layer at the end of the module; add one, or leave "
            "output_scale out."
        )
    last = len(weighted(net)) - 1
    places = iter(range(last + 1))

    def change(layer: Dense | Conv) -> Dense | Conv:
        if next(places) != last:
            return layer
        return replace(layer, C_b=scale**2 * layer.C_b, C_W=scale**2 * layer.C_W)

    return _changed(net, change)


def _without_missing_biases(known: Read, net: Network, input_scale: float) -> tuple[Network, str | None]:
    pairs = zip(known.weights, weighted(net), strict=True)
    missing = [(held, layer.C_b) for held, layer in pairs if held.bias is None and layer.C_b > 0]
    if not missing:
        return net, None
    held, C_b = missing[0]
    behind = [one.bias for one in known.weights[1:]]
    other = held_without_biases(net, input_scale) if not any(b is not None for b in behind) else None
    if other is None:
        raise ValueError(
            f"layer {held.name!r} has no biases, but the critical point of {net.activation_name} needs them "
            f"with variance {C_b:.6g}; make the layer with bias=True, or use an activation that needs none "
            "(tanh, relu)."
        )
    return other, (
        f"layer {held.name!r} has no biases, which the critical point of {net.activation_name} needs with "
        f"variance {C_b:.4g}; {_what_is_lost(other, input_scale)}"
    )


def _what_is_lost(net: Network, input_scale: float) -> str:
    chi = audit(net, input_scale=input_scale).path.perpendicular[:-1]
    factor = float(np.prod(chi[np.isfinite(chi)]))
    return f"the best without them changes squared gradients by a factor {factor:.3g} over all layers."


def draw_(known: Read, net: Network, generator: torch.Generator | None) -> None:
    """Draw all parameters that are not frozen."""
    with torch.no_grad():
        for held, layer in zip(known.held, weighted(net), strict=True):
            weight, bias = held.holder.weight, held.holder.bias
            variance = layer.C_W / held.holder.fan_in / held.scale**2
            _draw_(weight, variance, generator, orthogonal=layer.is_orthogonal)
            if bias is not None:
                _draw_(bias, layer.C_b / held.scale**2, generator)
        for norm in known.norms:
            for name, value in (("weight", 1.0), ("bias", 0.0)):
                tensor = getattr(norm, name, None)
                if tensor is not None and tensor.requires_grad:
                    tensor.fill_(value)


def _draw_(
    parameter: torch.nn.Parameter,
    variance: float,
    generator: torch.Generator | None,
    *,
    orthogonal: bool = False,
) -> None:
    if not parameter.requires_grad:
        return
    if variance == 0:
        parameter.zero_()
        return
    device = "cpu" if generator is None else generator.device
    normals = torch.randn(parameter.shape, dtype=torch.float64, device=device, generator=generator)
    if orthogonal:
        normals = _orthogonal(normals)
    parameter.copy_(normals * math.sqrt(variance))


def _orthogonal(normals: torch.Tensor) -> torch.Tensor:
    """A corner of a Haar-distributed orthogonal matrix, its entries scaled to variance one."""
    if normals.shape[0] < normals.shape[1]:
        return _orthogonal(normals.T).T
    Q, R = torch.linalg.qr(normals)
    signs = torch.where(R.diagonal() < 0, -1.0, 1.0).to(Q.dtype)
    return math.sqrt(len(Q)) * Q * signs
