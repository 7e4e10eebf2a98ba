"""Optax: the learning rates of each layer as a transformation of updates.

optimizer = optax.chain(fw.optax.scale_by_layer(net), optax.sgd(learning_rate))
"""

from collections.abc import Callable
from typing import Any

try:
    import optax
except ImportError:
    raise ImportError("fw.optax needs Optax; install it in a clone with: pip install '.[optax]'") from None
import jax

from finitewidth.experiment.sampling import rates
from finitewidth.network.network import Network

__all__ = ["scale_by_layer"]


def scale_by_layer(
    net: Network, layer_of: Callable[[str], int] | None = None
) -> optax.GradientTransformation:
    r"""Multiply updates of layer l by $\lambda_b^{(l)}$ for biases and $\lambda_W^{(l)}/n_{l-1}$ for weights.

    Followed by `optax.sgd(eta)` it makes the library's own step, $\theta - \eta\lambda\, dL/d\theta$. The
    loss is a sum over samples, $\frac12\sum(z-y)^2$; a mean over N samples needs N times the learning rate.

    Parameters are a sequence of layers from input to output, each of any structure that holds one matrix, the
    weights, and at most one vector, the biases. Shapes are compared with the network's widths; weights may be
    (n_l, n_{l-1}) or (n_{l-1}, n_l).

    Args:
        net: A network of dense layers with any activations.
        layer_of: For other structures of parameters, a function that returns the number of the layer, 1 to L,
            for the path of an array as `jax.tree_util.keystr` writes it, such as
            `"['params']['Dense_0']['kernel']"`.

    Returns:
        A transformation of Optax.

    ```python
    import optax

    optimizer = optax.chain(fw.optax.scale_by_layer(net), optax.sgd(0.1))
    optimizer.init(fw.empirical.initialize(net, key=0))
    ```
    """
    if not isinstance(net, Network):
        raise ValueError(
            f"net must be an fw.MLP or fw.Network, got {type(net).__name__}; use fw.MLP.critical(widths, "
            "activation)."
        )
    number = _position if layer_of is None else lambda path: layer_of(jax.tree_util.keystr(path))

    def factors(tree: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: _factor(net, number(path), path, leaf), tree
        )

    def init(params: Any) -> optax.EmptyState:
        _check_complete(net, [number(path) for path, leaf in _leaves(params) if leaf.ndim == 2])
        factors(params)
        return optax.EmptyState()

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        return jax.tree.map(lambda update, factor: update * factor, updates, factors(updates)), state

    return optax.GradientTransformation(init, update)


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def _position(path: Any) -> int:
    if not (path and isinstance(path[0], jax.tree_util.SequenceKey)):
        raise ValueError(
            f"parameters must be a sequence of layers, but {jax.tree_util.keystr(path)!r} is in none; pass "
            "layer_of, a function that returns the number of the layer for such a path."
        )
    return path[0].idx + 1


def _factor(net: Network, layer: Any, path: Any, leaf: Any) -> float:
    name = jax.tree_util.keystr(path)
    if not (isinstance(layer, int) and 1 <= layer <= net.depth):
        raise ValueError(
            f"parameter {name} is put into layer {layer!r}, but the network has layers 1 to {net.depth}; "
            "change layer_of."
        )
    fan_in, fan_out = net.widths[layer - 1], net.widths[layer]
    rate_b, rate_W = rates(net)[layer - 1]
    if leaf.shape == (fan_out,):
        return rate_b
    if leaf.shape in ((fan_out, fan_in), (fan_in, fan_out)):
        return rate_W
    raise ValueError(
        f"parameter {name} of layer {layer} has shape {leaf.shape}, but its biases have ({fan_out},) and its "
        f"weights ({fan_out}, {fan_in}); compare the widths of the network."
    )


def _check_complete(net: Network, layers: list[Any]) -> None:
    if sorted(layers) != list(range(1, net.depth + 1)):
        raise ValueError(
            f"parameters hold weights of layers {sorted(layers)}, but the network has layers 1 to "
            f"{net.depth}; give one matrix for each."
        )
