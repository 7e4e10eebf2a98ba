"""PyTorch: critical initialization, learning rates for every layer, and a verdict on a model.

    import finitewidth as fw

    fw.torch.initialize_(model)
    print(fw.torch.audit(model, inputs))
    advice = fw.torch.recommend(model, inputs, loss="cross_entropy", optimizer="SGD")
    optimizer = advice.optimizer()

The audit measures any torch.nn.Module. The initialization needs one that the theory knows: linear layers,
convolutions, layer norms, average pools and skip connections with elementwise activations between them,
however it is written. It is traced, and activations are recognized by the values that they compute.
Operations before the first layer (flattening, scaling by fixed numbers) count as preparation of the inputs;
a softmax, log_softmax or sigmoid at the end counts as part of the loss. Wrappers (torch.compile,
DataParallel, DistributedDataParallel) are unwrapped, dropout counts as in evaluation, and frozen parameters
stay as they are.
"""

import math
import numbers
from typing import Any

try:
    import torch
except ImportError:
    raise ImportError("fw.torch needs PyTorch; install it in a clone with: pip install '.[torch]'") from None

from finitewidth.core.display.user_warnings import warn
from finitewidth.core.inputs import as_positive
from finitewidth.interface.adapters.modules.initialize import critical, draw_, with_ensemble, with_outputs
from finitewidth.interface.adapters.modules.rates import (
    OptimizerWarning,
    check_optimizer,
    descent_rates,
    groups_of,
    watch_optimizers,
)
from finitewidth.interface.adapters.modules.recommendation import Recommendation, recommend
from finitewidth.interface.adapters.modules.verdict import ModuleAudit, audit
from finitewidth.network.foreign.recognition import Given
from finitewidth.network.foreign.torch_read import declared, read
from finitewidth.network.network import Network

__all__ = [
    "InitializationWarning",
    "ModuleAudit",
    "OptimizerWarning",
    "Recommendation",
    "audit",
    "check_optimizer",
    "initialize_",
    "network",
    "parameter_groups",
    "recommend",
]


class InitializationWarning(UserWarning):
    """The initialization is the best that exists for a model, but not critical.

    ```python
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error", fw.torch.InitializationWarning)  # stop at it
        # fw.torch.initialize_(model)
    ```
    """


def network(
    module: torch.nn.Module,
    inputs: Any = None,
    *,
    activation: Given = None,
    input_scale: float = 1.0,
    lambda_b: float | None = None,
    lambda_W: float = 1.0,
    bias_share: float | None = None,
) -> Network:
    """The critical network (`fw.MLP.critical`, `fw.Network.critical`) with the layers of a module.

    For the network with the initialization that a module has now see `fw.network_of`. Two linear layers with
    nothing between them have the activation "linear". A layer without biases has C_b = lambda_b = 0; if the
    critical point needs biases, the best that exists without them is taken and a warning says what is lost.

    Args:
        module: The module.
        inputs: A batch as the module takes it. It is needed for convolutions, which do not say how large
            images are.
        activation: Activations that are not recognized: one for all hidden layers, or one for each, where
            None stands for a recognized one. It is compared with the values that the module computes.
        input_scale: The mean square of the numbers that enter the first layer.
        lambda_b: The learning rate of biases, as in `fw.MLP.critical`, whose own default, 1, had up to 2.3
            times the loss (benchmarks/advice/results/tuned.md).
        lambda_W: The learning rate of weights, as in `fw.MLP.critical`.
        bias_share: Without `lambda_b`, what biases add to the NTK over what the weights of their layer add,
            by default a tenth.

    Returns:
        The network.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    fw.torch.network(model)
    ```
    """
    known = read(module, inputs, activation=activation)
    return _warned(*critical(known, declared(activation), input_scale, lambda_b, lambda_W, bias_share))


def _warned(net: Network, loss: str | None) -> Network:
    if loss is not None:
        warn(loss, InitializationWarning)
    return net


def initialize_(
    module: torch.nn.Module,
    inputs: Any = None,
    *,
    activation: Given = None,
    input_scale: float = 1.0,
    output_scale: float = 1.0,
    weights: str = "gaussian",
    generator: torch.Generator | None = None,
) -> Network:
    r"""Draw all weights and biases of a module at its critical point, in place, and return that network.

    Weights are normal with variance C_W/fan-in, biases with variance C_b. The last weights in the branch of a
    skip connection get the share of these that keeps signals at any depth: $1 - \gamma^2$ for
    $\gamma x + f(x)$, and one over the number of branches for $x + f(x)$. Layer norms get gains of one and
    offsets of zero. Frozen parameters stay as they are, and nothing is changed if something is refused.

    Args:
        module: The module.
        inputs: A batch as the module takes it, as in `network`.
        activation: Activations that are not recognized, as in `network`.
        input_scale: The mean square of the numbers that enter the first layer.
        output_scale: A factor on the last weights and biases. With the squared loss 0.1 trained better, with
            the cross-entropy 1 did (benchmarks/advice/results/tuned.md).
        weights: "gaussian", or "orthogonal" for modules of linear layers and activations.
        generator: The randomness. Numbers are drawn in double precision on its device (the CPU without one)
            and then converted to the module's dtype and device, so that one generator gives the same network
            on every device.

    Returns:
        The network that the module now is.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    fw.torch.initialize_(model)
    ```
    """
    if not (generator is None or isinstance(generator, torch.Generator)):
        raise ValueError(
            f"generator must be a torch.Generator, got {generator!r}; use "
            "torch.Generator().manual_seed(seed)."
        )
    scale = as_positive("output_scale", output_scale)
    known = read(module, inputs, activation=activation)
    net = _warned(*critical(known, declared(activation), input_scale))
    net = with_outputs(with_ensemble(net, weights), scale)
    draw_(known, net, generator)
    return net


def parameter_groups(
    module: torch.nn.Module,
    learning_rate: float,
    *,
    inputs: Any = None,
    activation: Given = None,
    input_scale: float = 1.0,
    lambda_b: float | None = None,
    lambda_W: float = 1.0,
    bias_share: float | None = None,
) -> list[dict[str, Any]]:
    r"""Groups for a torch optimizer in which all layers learn equally (PDLT section 9.4).

    Biases of layer l learn at `learning_rate` $\lambda_b^{(l)}$, weights at `learning_rate`
    $\lambda_W^{(l)}/n_{l-1}$, with the rates of `fw.MLP.critical` or `fw.Network.critical`. The rates are for
    gradient descent, with or without momentum. Groups know this: another optimizer warns at its first step.
    Frozen parameters are left out.

    The learning rate belongs to the library's loss, $\frac12\sum(z-y)^2$ summed over samples and outputs; a
    mean over N samples (and n_L outputs) has a smaller gradient and needs a larger rate:

    | loss in PyTorch | learning_rate to pass |
    |---|---|
    | `0.5 * MSELoss(reduction="sum")`, `CrossEntropyLoss(reduction="sum")` | eta |
    | `MSELoss()`, the mean | eta N n_L / 2 |
    | `CrossEntropyLoss()`, the mean | eta N |

    Gradient descent is stable for eta below
    `fw.textbook.spectrum(fw.torch.network(module), X).largest_learning_rate`; `recommend` finds the rate for
    a loss by itself.

    Args:
        module: The module.
        learning_rate: The global learning rate.
        inputs: A batch as the module takes it, as in `network`.
        activation: Activations that are not recognized, as in `network`.
        input_scale: The mean square of the numbers that enter the first layer.
        lambda_b: The learning rate of biases, as in `network`.
        lambda_W: The learning rate of weights, as in `network`.
        bias_share: What biases add to the NTK over what the weights of their layer add, by default a tenth.

    Returns:
        Groups for an optimizer such as `torch.optim.SGD`.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    fw.torch.initialize_(model)
    torch.optim.SGD(fw.torch.parameter_groups(model, 0.05), lr=0.05)
    ```
    """
    if not (isinstance(learning_rate, numbers.Real) and math.isfinite(learning_rate) and learning_rate > 0):
        raise ValueError(f"learning_rate must be a finite number above 0, got {learning_rate!r}.")
    known = read(module, inputs, activation=activation)
    net = _warned(*critical(known, declared(activation), input_scale, lambda_b, lambda_W, bias_share))
    watch_optimizers()
    return groups_of(descent_rates(known, net), float(learning_rate), "SGD")
