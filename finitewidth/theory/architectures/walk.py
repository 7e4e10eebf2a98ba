"""The way of a signal through a network: what each kind of layer makes of it.

A walk goes through the network twice. The first time only K and Theta are known; it finds the steps whose
four-leg averages are wanted, independent tasks that take most of the time. The second time they are there.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from finitewidth.network.ladder import NotAtFirstOrder
from finitewidth.network.layers.abstract import AbstractLayer
from finitewidth.network.layers.activation import Activation
from finitewidth.network.layers.attention import SelfAttention
from finitewidth.network.layers.conv import Conv
from finitewidth.network.layers.dense import Dense
from finitewidth.network.layers.layer_norm import AbstractNorm
from finitewidth.network.layers.pooling import AveragePool, Flatten, GlobalAveragePool
from finitewidth.network.layers.residual import Residual
from finitewidth.network.network import Network
from finitewidth.theory.architectures import attention, gains, norms, positions, residual, weights
from finitewidth.theory.architectures.signal import PairMatrix, Signal, crosses_mixed, mixed
from finitewidth.theory.feature_products import FourLegs
from finitewidth.theory.layers.activation import Moments, moments
from finitewidth.theory.recursion import State
from finitewidth.theory.steps import Step


class Walk:
    """One pass of a data set through a network.

    `keep` is told the statistics of each layer with weights, in their order. The second pass is given the
    steps that the first has found, and their four-leg averages in this order.
    """

    def __init__(
        self,
        net: Network,
        X: np.ndarray,
        tolerance: float,
        *,
        detail: weights.Detail,
        repetition: int = 0,
        steps: Sequence[Step] = (),
        averages: Iterator[FourLegs] | None = None,
        keep: Callable[[int, State], None] = lambda layer, state: None,
    ):
        self.net, self.X, self.tolerance, self.detail = net, X, tolerance, detail
        self.repetition = repetition  # of random heads
        self.known, self.averages, self.keep = steps, averages, keep
        self.steps: list[Step] = []
        self.layers = 0  # with weights that have been passed

    @property
    def samples(self) -> int:
        return len(self.X)

    def run(self) -> None:
        """Send the data through the network."""
        flat = self.X.reshape(-1, self.X.shape[-1])
        gram = flat @ flat.T / flat.shape[1]
        data = State(gram, np.zeros_like(gram), None, None)
        signal = Signal(data, self.net.input_shape, self.net.input_shape[-1], is_data=True)
        self.through(signal, self.net.layers)

    def through(self, signal: Signal, layers: Sequence[AbstractLayer]) -> Signal:
        """The signal behind these layers."""
        for layer in layers:
            kinds = (action for kind, action in _ACTIONS.items() if isinstance(layer, kind))
            action = next(kinds, None)
            if action is None:
                raise NotAtFirstOrder(f"fw.{type(layer).__name__}")
            signal = action(self, signal, layer)
        return signal

    def _activation(self, signal: Signal, layer: Activation) -> Signal:
        if signal.waits:
            raise NotAtFirstOrder("an activation right behind another, or behind a pool of one")
        return signal.replaced(activation=layer)

    def _norm(self, signal: Signal, layer: AbstractNorm) -> Signal:
        return norms.normalized(signal, layer)

    def _pool(self, signal: Signal, layer: AveragePool | GlobalAveragePool) -> Signal:
        matrix = positions.of_pool(layer, signal.shape, self.samples)
        return self._mixed(signal, layer, matrix)

    def _flatten(self, signal: Signal, layer: Flatten) -> Signal:
        if len(signal.shape) == 1:
            return signal
        matrix = positions.of_flattening(signal.shape, self.samples)
        waiting = matrix if signal.mixing is None else matrix @ signal.mixing
        return signal.replaced(mixing=waiting, shape=signal.shape[-1:])

    def _mixed(self, signal: Signal, layer: AbstractLayer, matrix: PairMatrix) -> Signal:
        """Behind an activation a pool waits for the weights; elsewhere it acts on what is there."""
        shape = layer.output_shape(signal.shape)
        if signal.waits:
            return signal.replaced(
                mixing=matrix if signal.mixing is None else matrix @ signal.mixing, shape=shape
            )
        if signal.gain:
            raise NotAtFirstOrder(f"fw.{type(layer).__name__} right behind a norm with a gain that learns")
        crosses = crosses_mixed(signal.crosses, matrix)
        return signal.replaced(state=mixed(signal.state, matrix), shape=shape, crosses=crosses, normed=None)

    def _weights(self, signal: Signal, layer: Dense | Conv) -> Signal:
        shape, matrix = (*signal.shape[:-1], layer.width), signal.mixing
        if isinstance(layer, Conv):
            shape = layer.output_shape(signal.shape)
            own = positions.of_filter(layer, signal.shape, self.samples)
            matrix = own if matrix is None else own @ matrix
        signal = self._behind(signal, layer, shape, matrix)
        self.layers += 1
        self._keep(signal)
        return signal

    def _keep(self, signal: Signal) -> None:
        """Statistics of layers with positions are means over them, as if the layer were flattened."""
        state = signal.state
        if len(signal.shape) > 1:
            state = mixed(state, positions.of_flattening(signal.shape, self.samples))
        self.keep(self.layers, state)

    def _behind(self, signal: Signal, layer: Dense | Conv, shape, matrix: PairMatrix | None) -> Signal:
        if signal.is_data:
            if signal.activation is not None:
                raise NotAtFirstOrder("an activation on the inputs")
            return weights.first_weights(
                signal, layer, shape, matrix, self.detail, only_means=self.averages is None
            )
        if self.averages is None:
            step = weights.step_of(signal, layer, self._moments(signal), self.detail)
            self.steps.append(step)
            return weights.only_means(signal, layer, shape, matrix, step)
        step = self.known[len(self.steps)]
        self.steps.append(step)
        return weights.behind_weights(signal, layer, shape, matrix, step, next(self.averages))

    def _moments(self, signal: Signal) -> Moments:
        activation, K = weights.reader(signal), signal.state.K
        known = moments(activation, K, self.tolerance, bare=self.detail.bare)
        return gains.with_gains(known, activation, K, self.tolerance) if signal.gain else known

    def _attention(self, signal: Signal, layer: SelfAttention) -> Signal:
        self.layers += 1
        seed = (layer.key, self.repetition, self.layers)
        signal = attention.attended(signal, layer, self.samples, seed)
        self._keep(signal)
        return signal

    def _residual(self, signal: Signal, block: Residual) -> Signal:
        residual.check(signal, block)
        body = self.through(residual.opened(signal), block.layers)
        behind = residual.closed(signal, body, block.gamma)
        self._keep(behind)
        return behind


_ACTIONS: dict[type, Callable] = {
    Activation: Walk._activation,
    AbstractNorm: Walk._norm,
    AveragePool: Walk._pool,
    GlobalAveragePool: Walk._pool,
    Flatten: Walk._flatten,
    Dense: Walk._weights,
    Conv: Walk._weights,
    Residual: Walk._residual,
    SelfAttention: Walk._attention,
}
