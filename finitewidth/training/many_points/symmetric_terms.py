r"""Taylor terms of a straight path in samples: P, Q and R with slot 0 open and the symbols 2 B and 3 IB.

These symbols are symmetric in their modes, as if parameters went straight to where training takes them: each
mode in turn is the one learned now, with the factor e, while the others were learned earlier, with a.
"""

import numpy as np

from finitewidth.training.many_points.feature_means import FeatureMeans
from finitewidth.training.many_points.neuron_batch import NeuronBatch, PairMatrices, matmul
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.time_integrals import TimeNode


class SymmetricTerms:
    """The contraction at one time."""

    def __init__(
        self, training: SampledTraining, matrices: PairMatrices, averages: FeatureMeans, node: TimeNode
    ):
        e, a, layer = node.e, node.a, (training, matrices, averages)
        self.target_now = _Assignment(*layer, target=e, repeated=a, others=(a, a))
        self.target_earlier = _Assignment(*layer, target=a, repeated=e, others=(e, a))
        self.e, self.a = (training.in_samples(v).astype(training.dtype) for v in (e, a))
        self.at_end = node.at_end  # then all factors are 1/l, and each mode in turn is the same
        self.means = {"ddntk_1": -0.5 * self.target_now.product_of_means}
        if not self.at_end:
            self.means["ddntk_1"] -= self.target_earlier.product_of_means

    def contract(self, batch: NeuronBatch) -> None:
        self.contract_probes(batch, *self.probes(batch))

    def probes(self, batch: NeuronBatch) -> tuple["Probes", "Probes"]:
        """The probes with the factors e and a."""
        return Probes(batch, self.e), Probes(batch, self.a)

    def contract_probes(self, batch: NeuronBatch, e: "Probes", a: "Probes") -> None:
        now, earlier = self.target_now, self.target_earlier
        square, summed = (a.ntk_eta**2).sum(axis=1), batch.sum_probes(a.r * a.ntk_zeta)
        now.contract(batch, 0.5 * (square - now.mean_square), summed)
        if not self.at_end:
            square = (e.ntk_eta * a.ntk_eta).sum(axis=1)
            summed = batch.sum_probes(e.r * a.ntk_zeta + a.r * e.ntk_zeta)
            earlier.contract(batch, square - earlier.mean_square, summed)


class Probes:
    """Probes with one factor: Theta (g sigma' eta), Theta (g sigma' zeta), r zeta; (N, columns, B) each."""

    def __init__(self, batch: NeuronBatch, symbol: np.ndarray):
        eta, self.zeta = ((symbol @ v)[:, :, None] for v in (batch.eta, batch.zeta))
        self.ntk_eta, self.ntk_zeta = (batch.apply_ntk(batch.phi[:, None] * v) for v in (eta, self.zeta))
        self.r = batch.r_from_probes(batch.lam_and_om(self.zeta), self.zeta)


class _Assignment:
    """Factors e and a assigned to the modes: of the targets, the repeated mode and the two joined others."""

    def __init__(
        self,
        training: SampledTraining,
        matrices: PairMatrices,
        averages: FeatureMeans,
        *,
        target: np.ndarray,
        repeated: np.ndarray,
        others: tuple[np.ndarray, np.ndarray],
    ):
        dtype, pairs, t = training.dtype, matrices.layer.pairs, slice(training.count)
        y, between = training.targets(target), training.in_samples(repeated)
        Th, E = pairs["Th"][:, t], pairs["E"][t, t]
        square = E * training.residual_kernel(*others, summed=True) * averages.slopes[t, t]
        square = ((Th @ square) * Th).sum(axis=1)
        mean_r = averages.r[:, t] @ y
        self.outputs = training.outputs
        self.product_of_means = mean_r * square[:, None]
        self.y, self.mean_r = (v[:, :, None].astype(dtype) for v in (y, mean_r))
        self.mean_square = square[:, None].astype(dtype)
        self.repeated, self.E_repeated = between.astype(dtype), (E * between).astype(dtype)
        if matrices.layer.has_same_sample:
            kernel = training.residual_kernel(*others, summed=False)
            kernel = kernel if others[0] is others[1] else kernel + kernel.T
            inner = {"p2": between.T, "p3": between.T, "r3": kernel, "r4": kernel}
            self.ntk_inner = {name: (Th * (pairs[name][:, t] @ m)).astype(dtype) for name, m in inner.items()}
            self.alpha = (pairs["alpha"][t, t] * between).sum(axis=1)[:, None].astype(dtype)

    def contract(self, batch: NeuronBatch, square: np.ndarray, summed: np.ndarray) -> None:
        """P and Q with the repeated mode in two slots; R with a centred square, and with K between two."""
        products = batch.lam_and_om(self.y)
        response = batch.apply_ntk(batch.phi[:, None] * self.y)
        p, loop = self._p_and_loop(batch)
        batch.add("dntk", response * p[:, None])
        batch.add("dntk", self.outputs * batch.y_from(products, self.y) * loop[:, None])
        if batch.alpha_fields is not None:
            h, k = batch.alpha_fields
            start = batch.apply_ntk((h * batch.s[1] * batch.s[0])[: batch.count, None] * self.y)
            batch.add("dntk", start * batch.apply_y(matmul(self.repeated, k[: batch.count]))[:, None])
        if batch.has_same_sample:
            summed = summed + self._on_one_sample(batch, "r3", "r4")[:, None]
        r = batch.r_from(products, self.y) - self.mean_r
        batch.add("ddntk_1", -r * square[:, None] - response * summed)

    def _p_and_loop(self, batch: NeuronBatch) -> tuple[np.ndarray, np.ndarray]:
        s, g, g2, count = batch.s, batch.g, batch.g2, batch.count
        g2_sigma, g_sigma = (matmul(self.repeated, (field * s[0])[:count]) for field in (g2, g))
        p = s[2] * g2 * batch.apply_ntk(batch.phi * g2_sigma) + batch.apply_y(g_sigma)
        loop = matmul(self.E_repeated, s[0, :count])
        if batch.has_same_sample:
            p += self._on_one_sample(batch, "p2", "p3")
            loop += s[0, :count] * self.alpha
        return p, batch.apply_ntk(s[1, :count] * loop)

    def _on_one_sample(self, batch: NeuronBatch, first: str, second: str) -> np.ndarray:
        s = batch.s
        result = s[2] * s[0] * matmul(self.ntk_inner[first], batch.phi)
        return result + s[1] * s[1] * matmul(self.ntk_inner[second], batch.phi)
