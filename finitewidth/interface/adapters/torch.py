"""PyTorch: critical initialization, learning rates for every layer, and a verdict on a model.

    import finitewidth as fw

    fw.torch.initialize_(model)
    optimizer = torch.optim.SGD(fw.torch.parameter_groups(model, learning_rate=0.1))
    print(fw.torch.audit(model, inputs))

A model is any torch.nn.Module that computes a multilayer perceptron, however it is written: it is traced, and
its layers and activations are recognized by the values that they compute. Each hidden layer may have its own
activation. Operations before the first linear layer (flattening, scaling by fixed numbers) count as
preparation of the inputs; a softmax, log_softmax or sigmoid at the end counts as part of the loss.
"""

import math
import numbers
from typing import Any

try:
    import torch
except ImportError:
    raise ImportError('fw.torch needs PyTorch; pip install "finitewidth[torch]".') from None

from finitewidth.critical.tuning import BIAS_SHARE
from finitewidth.interface.adapters.torch_activations import Given, activations_of
from finitewidth.interface.adapters.torch_audit import ModuleAudit, as_sample, audited
from finitewidth.interface.adapters.torch_graph import Chain, read
from finitewidth.network.mlp import MLP

__all__ = ["ModuleAudit", "audit", "initialize_", "network", "parameter_groups"]


def network(
    module: torch.nn.Module,
    *,
    activation: Given = None,
    input_scale: float = 1.0,
    lambda_b: float | None = None,
    lambda_W: float = 1.0,
    bias_share: float | None = None,
) -> MLP:
    """The critical network (`fw.MLP.critical`) with the widths and the activations of a module.

    `activation` is needed only for activations that are not recognized: one for all hidden layers, or one for
    each, where None stands for a recognized one. It is compared with the values that the module computes. Two
    linear layers with nothing between them have the activation "linear". `input_scale` is the mean square of
    the numbers that enter the first linear layer. A layer without biases has C_b = lambda_b = 0; it is
    refused if the critical point needs biases.

    Without `lambda_b`, biases add `bias_share` of what the weights of their layer add to the NTK, by default
    a tenth. With `lambda_b` they learn as in `fw.MLP.critical`, whose own default, lambda_b = 1, had up
    to 2.3 times the loss (benchmarks/results/advice.md).
    """
    return _critical(read(module), activation, input_scale, lambda_b, lambda_W, bias_share)


def _critical(
    chain: Chain,
    activation: Given,
    input_scale: Any,
    lambda_b: Any = None,
    lambda_W: Any = 1.0,
    bias_share: Any = None,
) -> MLP:
    activations = activations_of(chain, activation)
    if lambda_b is None and bias_share is None:
        bias_share = BIAS_SHARE
    rates = {
        "lambda_b": 1.0 if lambda_b is None else lambda_b,
        "lambda_W": lambda_W,
        "bias_share": bias_share,
    }
    net = MLP.critical(chain.widths, activations, **rates, input_scale=input_scale)
    for l, (layer, C_b) in enumerate(zip(chain.layers, net.C_b, strict=True)):
        if layer.bias is None and C_b > 0:
            name = net.activations[l - 1].name if l else net.activation_name
            raise ValueError(
                f"layer {layer.name!r} has no biases, but the critical point of {name} needs them with "
                f"variance {C_b:.6g}; make the layer with bias=True, or use an activation that needs none "
                "(tanh, relu)."
            )
    pairs = zip(chain.layers, net.lambda_b, strict=True)
    return net.replace(lambda_b=tuple(rate if layer.bias is not None else 0.0 for layer, rate in pairs))


def initialize_(
    module: torch.nn.Module,
    *,
    activation: Given = None,
    input_scale: float = 1.0,
    generator: torch.Generator | None = None,
) -> MLP:
    """Draw all weights and biases of a module at its critical point, in place, and return that network.

    Weights are normal with variance C_W/fan-in, biases with variance C_b. Numbers are drawn in double
    precision on the device of `generator` (the CPU without one) and then converted to the module's dtype and
    device, so that one generator gives the same network on every device. For the other arguments see
    `network`.
    """
    if not (generator is None or isinstance(generator, torch.Generator)):
        raise ValueError(
            f"generator must be a torch.Generator, got {generator!r}; use "
            "torch.Generator().manual_seed(seed)."
        )
    chain = read(module)
    net = _critical(chain, activation, input_scale)
    with torch.no_grad():
        for l, layer in enumerate(chain.layers):
            _draw_(layer.weight, net.C_W[l] / net.widths[l], generator)
            if layer.bias is not None:
                _draw_(layer.bias, net.C_b[l], generator)
    return net


def _draw_(parameter: torch.nn.Parameter, variance: float, generator: torch.Generator | None) -> None:
    if variance == 0:
        parameter.zero_()
        return
    device = "cpu" if generator is None else generator.device
    normals = torch.randn(parameter.shape, dtype=torch.float64, device=device, generator=generator)
    parameter.copy_(normals * math.sqrt(variance))


def parameter_groups(
    module: torch.nn.Module,
    learning_rate: float,
    *,
    activation: Given = None,
    input_scale: float = 1.0,
    lambda_b: float | None = None,
    lambda_W: float = 1.0,
    bias_share: float | None = None,
) -> list[dict[str, Any]]:
    r"""Groups for a torch optimizer in which all layers learn equally (PDLT section 9.4).

    Biases of layer l learn at `learning_rate` $\lambda_b^{(l)}$, weights at `learning_rate`
    $\lambda_W^{(l)}/n_{l-1}$, with the rates of `fw.MLP.critical`. The learning rate belongs to the library's
    loss, $\frac12\sum(z-y)^2$ summed over samples and outputs; a mean over N samples (and n_L outputs) has a
    smaller gradient and needs a larger rate:

    | loss in PyTorch | learning_rate to pass |
    |---|---|
    | `0.5 * MSELoss(reduction="sum")`, `CrossEntropyLoss(reduction="sum")` | eta |
    | `MSELoss()`, the mean | eta N n_L / 2 |
    | `CrossEntropyLoss()`, the mean | eta N |

    Gradient descent is stable for eta below `fw.spectrum(fw.torch.network(module), X).largest_learning_rate`.
    The rates are for gradient descent, with or without momentum; Adam and similar optimizers rescale every
    gradient themselves.
    """
    if not (isinstance(learning_rate, numbers.Real) and math.isfinite(learning_rate) and learning_rate > 0):
        raise ValueError(f"learning_rate must be a finite number above 0, got {learning_rate!r}.")
    chain = read(module)
    net = _critical(chain, activation, input_scale, lambda_b, lambda_W, bias_share)
    groups = []
    for l, layer in enumerate(chain.layers):
        rate_W = float(learning_rate) * net.lambda_W[l] / net.widths[l]
        groups.append({"params": [layer.weight], "lr": rate_W, "name": f"weights of layer {l + 1}"})
        if layer.bias is not None:
            rate_b = float(learning_rate) * net.lambda_b[l]
            groups.append({"params": [layer.bias], "lr": rate_b, "name": f"biases of layer {l + 1}"})
    return groups


def audit(module: torch.nn.Module, sample: Any, *, activation: Given = None) -> ModuleAudit:
    """Whether signals and gradients survive a module's depth: measured on `sample`, and predicted.

    `sample` is a batch of inputs, of which 32 evenly spaced ones are used. The audit measures the mean
    squares of weights, biases, preactivations and gradients, and the neural tangent kernel, of the module as
    it is. The prediction is that of `fw.audit` for networks whose weights and biases have those mean squares.
    The module is not changed.
    """
    chain = read(module)
    return audited(chain, activations_of(chain, activation), as_sample(chain, sample))
