r"""NTK fluctuations in samples: the tensors A and B, with one mode twice ($e_a$) and one on the targets.

The mean of the feature x is subtracted, as A demands, and in the loop over outputs the pair of slopes that
the repeated mode joins is replaced by its mean where that is exact.

In the variance the NTK fluctuates in two outputs at once, each at a time of its own. The residuals of an
output at two modes a and b are joined by K, which probes replace, and by its own targets:

$$\langle (x - \bar x)_{da} (x - \bar x)_{db} \rangle, \quad
  \langle b_{db}\, b_{ad} \rangle \Theta_{da} \Theta_{db}, \quad
  n_L \langle b_{dd}\, b_{ab} \rangle \Theta_{da} \Theta_{db}.$$
"""

import numpy as np

from finitewidth.training.many_points.feature_means import FeatureMeans
from finitewidth.training.many_points.neuron_batch import NeuronBatch, PairMatrices, matmul
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.time_integrals import TimeNode

NAME = "ntk_fluctuation"


class CentredFeature:
    """The feature x minus its mean."""

    def __init__(self, training: SampledTraining, matrices: PairMatrices, averages: FeatureMeans):
        self.mean = averages.x[:, : training.count].astype(training.dtype)
        self.x2, self.x2_transposed = matrices.columns["x2"], matrices.transposed["x2"]

    def apply(self, batch: NeuronBatch, v: np.ndarray, rows: int | None = None) -> np.ndarray:
        """(x - <x>) v."""
        first, second = batch.lam_and_om(v, rows)
        s0, s1 = (batch.s[order][:rows, None] for order in (0, 1))
        result = s0 * first + s1 * second - matmul(self.mean[:rows], v)
        if batch.has_same_sample:
            squares = batch.s[0] ** 2
            result += squares[:rows, None] * matmul(self.x2[:rows], v)
            result += matmul(self.x2_transposed[:rows], squares[: batch.count, None] * v)
        return result


class Fluctuation:
    """The contraction for the mean, at one pair of times."""

    def __init__(
        self, training: SampledTraining, matrices: PairMatrices, averages: FeatureMeans, node: TimeNode
    ):
        dtype, t, pairs = training.dtype, slice(training.count), matrices.layer.pairs
        repeated, y = training.in_samples(node.e), training.targets(node.a)
        E_repeated = pairs["E"][t, t] * repeated
        mean_loop = E_repeated * averages.slopes[t, t]
        between = pairs["Th"][:, t] @ mean_loop @ pairs["Th"][t, t]
        self.means = {NAME: training.outputs * ((averages.slopes * pairs["E"])[:, t] * between) @ y}
        self.outputs = training.outputs
        self.y = y[:, :, None].astype(dtype)
        self.repeated, self.E_repeated = repeated.astype(dtype), E_repeated.astype(dtype)
        self.mean_loop = mean_loop.astype(dtype)
        self.x = CentredFeature(training, matrices, averages)

    def contract(self, batch: NeuronBatch) -> None:
        count, phi, phi2 = batch.count, batch.phi[:, None], batch.phi2[:, None]
        once = self.x.apply(batch, self.y, count)
        batch.add(NAME, self.x.apply(batch, matmul(self.repeated, once)))
        response = batch.apply_ntk(phi * self.y, count)
        batch.accumulate("g2", NAME, phi * matmul(self.repeated, phi2 * response))
        slopes = batch.s[1, :count, None]
        loop = slopes * matmul(self.E_repeated, slopes * response) - matmul(self.mean_loop, response)
        batch.accumulate("g", NAME, self.outputs * loop)


class SquaredFluctuation:
    """The contraction for the variance, at one pair of times; its effects are on test samples, (M, n_L)."""

    def __init__(
        self,
        training: SampledTraining,
        matrices: PairMatrices,
        averages: FeatureMeans,
        node: TimeNode,
        rows: np.ndarray,
    ):
        self.x = CentredFeature(training, matrices, averages)
        self.legs = tuple(
            _Leg(training, symbol, remaining, rows)
            for symbol, remaining in ((node.e, node.remaining), (node.a, node.remaining_of_second))
        )
        self.means: dict[str, np.ndarray] = {}

    def contract(self, batch: NeuronBatch) -> None:
        first, second = self.legs
        g, g2 = ((field * batch.s[1])[:, None] for field in (batch.g, batch.g2))
        phi, phi2 = batch.phi[:, None], batch.phi2[:, None]

        def b_feature(leg: "_Leg", start: np.ndarray, field: np.ndarray, probes: np.ndarray) -> np.ndarray:
            return leg.at_end(start * batch.apply_ntk(field * leg.at_time(probes)))

        x = [leg.at_end(self.x.apply(batch, leg.at_time(batch.zeta))) for leg in self.legs]
        crossed = b_feature(first, g, phi2, batch.zeta), b_feature(second, g2, phi, batch.zeta)
        loop = [b_feature(leg, g2, phi, batch.eta) for leg in self.legs]
        for one, other in (x, crossed):
            batch.add(NAME, batch.sum_probes(one * other))
        batch.add(NAME, (loop[0] * loop[1]).sum(axis=1, keepdims=True))


class _Leg:
    """One of the two fluctuations: its symbol, and its propagation from its time to the test outputs."""

    def __init__(self, training: SampledTraining, symbol: np.ndarray, remaining: float, rows: np.ndarray):
        absorbed = (training.ntk[rows] * training.replay.absorbed(remaining)) @ training.vectors.T
        self.rows, self.count = rows, training.count
        self.symbol = training.in_samples(symbol).astype(training.dtype)
        self.absorbed = absorbed.astype(training.dtype)

    def at_time(self, probes: np.ndarray) -> np.ndarray:
        """The residuals of the probes at the time of the fluctuation."""
        return (self.symbol @ probes)[:, :, None]

    def at_end(self, effect: np.ndarray) -> np.ndarray:
        """What is left on the test samples of an effect when training ends."""
        return effect[self.rows] - matmul(self.absorbed, effect[: self.count])
