r"""Residual blocks that read their stream linearly: a norm, then weights, then whatever the body has.

Between the pairs of a stream and those of a body there is no memory but what pairs carry, so that with the
row map R of the whole body, its norm first,

$$X' = \gamma^4 X + X_{\mathrm{body}} + \gamma^2 \bigl[R\,(X + w) + (X + w)\,R^T\bigr]$$

is exact at order 1/n, with w the covariance of pairs of one channel of the stream. Streams that are read
through an activation remember more than pairs.
"""

from finitewidth.network.ladder import NotAtFirstOrder
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.residual import Residual
from finitewidth.theory.architectures.signal import Signal, with_both_columns
from finitewidth.theory.recursion import Blocks, State, exchanged


def check(signal: Signal, block: Residual) -> None:
    """Refuse blocks whose stream remembers more than pairs, or is not Gaussian, by name."""
    if signal.is_data:
        raise NotAtFirstOrder("fw.Residual on the inputs")
    if signal.waits:
        raise NotAtFirstOrder("fw.Residual behind an activation or a pool")
    if signal.gain or signal.offset:
        raise NotAtFirstOrder("fw.Residual behind a norm that learns")
    if block.shortcut:
        raise NotAtFirstOrder("fw.Residual with a shortcut")
    for layer in block.layers:
        if isinstance(layer, Activation):
            raise NotAtFirstOrder(f"fw.Residual whose body reads its stream through {layer.name!r}")
        if isinstance(layer, AbstractNorm) and layer.lambda_gain:
            raise NotAtFirstOrder("fw.Residual whose body begins with a norm with a gain that learns")
        if layer.has_weights:
            break


def opened(signal: Signal) -> Signal:
    """The signal that enters a body, with the pairs of the stream beside it."""
    if not signal.state.blocks:
        return signal
    return signal.replaced(crosses=(*signal.crosses, with_both_columns(signal.with_own_noise())))


def closed(signal: Signal, body: Signal, gamma: float) -> Signal:
    """The stream behind a block, from that before it and what the body gives."""
    old, new, square = signal.state, body.state, gamma**2
    K, Theta = square * old.K + new.K, square * old.Theta + new.Theta
    if not old.blocks:
        return body.replaced(state=State(K, Theta, None, None))
    ratio = body.stripped / signal.stripped
    *outer, cross = body.crosses
    blocks = {
        key: square**2 * ratio * old.blocks[key] + block + square * ratio * _both_ways(cross, key)
        for key, block in new.blocks.items()
    }
    G1 = None if old.G1 is None or new.G1 is None else square * ratio * old.G1 + new.G1
    H1 = None if old.H1 is None or new.H1 is None else square * ratio * old.H1 + new.H1
    crosses = (
        {key: square * past[key] + block for key, block in here.items()}
        for past, here in zip(signal.crosses, outer, strict=True)
    )
    return body.replaced(state=State(K, Theta, G1, H1, blocks), crosses=tuple(crosses))


def _both_ways(cross: Blocks, key: tuple[str, str]):
    """R X + X R^T for one block."""
    row, column = key
    return cross[row, column] + exchanged(cross[column, row])
