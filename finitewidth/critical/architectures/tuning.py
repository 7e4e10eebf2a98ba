r"""Learning rates by the equivalence principle, in any network.

A layer adds to the NTK of an input its learning rate times the gradient that comes back to it, and for
weights also times the mean square of the signal that they multiply. Each of N layers with weights gets

$$\lambda_b^{(l)} = \frac{\lambda_b}{N g_l}, \qquad
  \lambda_W^{(l)} = \frac{x^2}{s_l}\, \frac{\lambda_W}{N g_l}$$

with the gradient $g_l$ between the layer and the output, skips included, the mean square $s_l$ that arrives,
and that of the input components $x^2$. The NTK is then $\lambda_b + \lambda_W x^2$, in equal shares.

Odd activations in residual networks keep a kernel that is larger by $1/(1 - \gamma^2)$ than without skips, so
that $\lambda_W$ comes out smaller by $1 - \gamma^2$.

With a `bias_share` biases add this share of what the weights of their layer add, and lambda_b is not used:
$\lambda_b^{(l)} = \mathrm{share} \cdot \lambda_W^{(l)} s_l$.
"""

from dataclasses import replace

from finitewidth.critical.architectures.initialization import Layers, critical_layers
from finitewidth.critical.architectures.one_signal import contributions_to_ntk
from finitewidth.critical.architectures.weights import Weights, with_weights
from finitewidth.network.layers.abstract import Shape


def tuned_layers(
    layers: Layers,
    shape: Shape,
    lambda_b: float,
    lambda_W: float,
    input_scale: float,
    bias_share: float | None = None,
) -> Layers:
    """The same layers with critical C_b and C_W and with learning rates by the equivalence principle."""
    initialized = critical_layers(layers, shape, input_scale)
    contributions = contributions_to_ntk(initialized, shape, input_scale)
    N, shares = len(contributions), iter(contributions)
    of_biases = lambda_b if bias_share is None else bias_share * lambda_W * input_scale

    def change(layer: Weights) -> Weights:
        share = next(shares)
        return replace(
            layer,
            lambda_b=of_biases / (N * share.of_biases),
            lambda_W=lambda_W * input_scale / (N * share.of_weights),
        )

    return with_weights(initialized, change)
