r"""Time-ordered terms in samples, at one time: the dNTK and the first ddNTK with the symbols A and IA.

$e_a$ is the factor of a mode that is learned at this time, $a_b$ that of a mode learned earlier:
$Z_A = e_a a_b$ and $Z_{IA} = -\frac12 e_a a_b a_c$. The second ddNTK has a third factor b.
"""

import numpy as np

from finitewidth.training.many_points.feature_means import FeatureMeans
from finitewidth.training.many_points.neuron_batch import NeuronBatch, PairMatrices, matmul
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.time_integrals import TimeNode

FACTORS = ("e", "a", "b")


class OrderedMatrices:
    """Matrices of one time, between training samples or from them to all; `means` adds up control variates.

    `symbols`, `targets` and `own_targets` are the factors e, a, b of the time as matrices between training
    samples, on all targets, and on the targets of the output that a column is about.
    """

    def __init__(
        self, training: SampledTraining, matrices: PairMatrices, averages: FeatureMeans, node: TimeNode
    ):
        self.training, self.outputs, self.averages = training, training.outputs, averages
        self.pairs, self.t = matrices.layer.pairs, slice(training.count)
        self.node, self.matrices = node, matrices
        factors = {name: getattr(node, name) for name in FACTORS}
        self.symbols = {name: self.cast(training.in_samples(v)) for name, v in factors.items()}
        self.targets = {name: training.targets(v) for name, v in factors.items()}
        self.y = {name: self.cast(v)[:, :, None] for name, v in self.targets.items()}
        self.own_y = {name: self.cast(training.own_targets(v))[:, :, None] for name, v in factors.items()}
        self.summed_K_ea = training.residual_kernel(node.e, node.a, summed=True)
        self.ntk_K_ea = self.cast(self.between("Th") * training.residual_kernel(node.e, node.a, summed=False))
        self.means: dict[str, np.ndarray] = {}

    def cast(self, matrix: np.ndarray) -> np.ndarray:
        """In working precision."""
        return np.ascontiguousarray(matrix, dtype=self.training.dtype)

    def between(self, name: str) -> np.ndarray:
        """A pair matrix between training samples."""
        return self.pairs[name][self.t, self.t]

    def row_sums(self, name: str, matrix: np.ndarray) -> np.ndarray:
        """Row sums of a pair matrix weighted entry by entry, (N_A, 1)."""
        return self.cast((self.between(name) * matrix).sum(axis=1)[:, None])

    def apply_kernel(self, batch: NeuronBatch, ntk_K: np.ndarray, factors: tuple[str, str], v) -> np.ndarray:
        """(Theta o l k r) v, (N_A, columns, B), for the factors l and r and the residual kernel k.

        k is K, for which `ntk_K` is Theta o l K r, plus the product of each column's own targets.
        """
        v = v if v.ndim == 3 else v[:, None]
        result = matmul(ntk_K, v)
        if batch.own_columns:
            left, right = (self.own_y[name] for name in factors)
            result = result + left * batch.apply_ntk(right * v, batch.count)
        return result

    def mean_through(self, middle: np.ndarray) -> np.ndarray:
        """The mean of sigma'_d g_d Theta middle Theta (g sigma' a y), (N, n_L)."""
        Th, t = self.pairs["Th"], self.t
        slopes = (self.averages.slopes * self.pairs["E"])[:, t]
        return (slopes * (Th[:, t] @ middle @ Th[t, t])) @ self.targets["a"]


class OrderedVectors:
    """Products of one batch that several contractions share: targets and probes with the factor a."""

    def __init__(self, path: OrderedMatrices, batch: NeuronBatch):
        count, y = batch.count, path.y["a"]
        self.response = batch.apply_ntk(batch.phi[:, None] * y, count)  # Theta (g sigma' a y)
        products = batch.lam_and_om(y, count)
        self.y = batch.y_from(products, y, count)
        self.r = batch.r_from(products, y, count)
        self.kernel_phi = path.apply_kernel(batch, path.ntk_K_ea, ("e", "a"), batch.phi)
        zeta, eta = ((path.symbols["a"] @ v)[:, :, None] for v in (batch.zeta, batch.eta))
        self.zeta = zeta
        self.ntk_zeta, self.ntk_eta = (
            batch.apply_ntk(batch.phi[:, None] * v, count) for v in (zeta, eta)
        )  # (N_A, columns, B)
        self.products_of_zeta = batch.lam_and_om(zeta, count)


class OrderedTerms:
    """The dNTK (P, Q) with the symbol A, and the first ddNTK (R) with IA."""

    def __init__(self, path: OrderedMatrices):
        self.path = path
        averages, t, training = path.averages, path.t, path.training
        e, a = (training.in_samples(v) for v in (path.node.e, path.node.a))
        E, Th, G = path.between("E"), path.between("Th"), path.summed_K_ea
        self.E_e, self.E_a = path.cast(E * e), path.cast(E * a)
        self.pair = path.cast(path.between("Lam") * G), path.cast(path.between("Om") * G)
        p_e, r_pair = (averages.p[t, t] * e).sum(axis=1), (averages.r[t, t] * G).sum(axis=1)
        square = E * training.residual_kernel(path.node.a, path.node.a, summed=True) * averages.slopes[t, t]
        square = ((Th @ square) * Th).sum(axis=1)
        self.mean_p_e, self.mean_r_pair, self.mean_square = (
            path.cast(v[:, None]) for v in (p_e, r_pair, square)
        )
        through = averages.r[t].T @ (path.targets["e"] * square[:, None])
        path.means["dntk"] = path.outputs * path.mean_through(np.diag(p_e))
        path.means["ddntk_1"] = -0.5 * through - path.mean_through(np.diag(r_pair))
        if path.matrices.layer.has_same_sample:
            kernel = training.residual_kernel(path.node.a, path.node.a, summed=False)
            inner = {"p2": a.T, "p3": a.T, "r3": kernel, "r4": kernel}
            self.ntk_inner = {name: path.cast(Th * (path.between(name) @ m)) for name, m in inner.items()}
            sums = {"p2": e, "p3": e, "r3": G, "r4": G, "alpha": a}
            self.sums = {name: path.row_sums(name, m) for name, m in sums.items()}

    def contract(self, batch: NeuronBatch, vectors: OrderedVectors) -> None:
        self._dntk(batch, vectors)
        self._ddntk(batch, vectors)

    def _dntk(self, batch: NeuronBatch, vectors: OrderedVectors) -> None:
        path, count, y = self.path, batch.count, self.path.y["e"]
        s = batch.s[:, :count]
        e, a = path.symbols["e"], path.symbols["a"]
        sigma, sigma2 = batch.g[:count] * s[0], batch.g2[:count] * s[0]
        e_sigma = matmul(e, sigma)
        p_e = s[2] * matmul(self.E_e, s[0])
        p_a = s[2] * batch.g2[:count] * batch.apply_ntk(batch.phi * matmul(a, sigma2), count)
        loop = matmul(self.E_a, s[0])
        if batch.has_same_sample:
            first, second = s[2] * s[0], s[1] * s[1]
            p_e += first * self.sums["p2"] + second * self.sums["p3"]
            p2, p3 = (matmul(self.ntk_inner[name], batch.phi) for name in ("p2", "p3"))
            p_a += first * p2 + second * p3
            loop += s[0] * self.sums["alpha"]
        p_a += batch.apply_y(matmul(a, sigma), count)
        centred = path.outputs * vectors.response * (p_e - self.mean_p_e)[:, None]
        batch.accumulate("g", "dntk", centred + y * p_a[:, None] + vectors.y * e_sigma[:, None])
        loop = batch.apply_ntk(s[1] * loop, count)
        batch.accumulate("y", "dntk", vectors.response * e_sigma[:, None] + path.outputs * y * loop[:, None])
        if batch.alpha_fields is not None:
            h, k = (v[:count] for v in batch.alpha_fields)
            e_k = matmul(e, k)[:, None]
            start = batch.apply_ntk((h * s[1] * s[0])[:, None] * path.y["a"], count)
            batch.accumulate("y", "dntk", start * e_k)
            batch.accumulate("h", "dntk", vectors.y * e_k + y * batch.apply_y(matmul(a, k), count)[:, None])

    def _ddntk(self, batch: NeuronBatch, vectors: OrderedVectors) -> None:
        count, y = batch.count, self.path.y["e"]
        s = batch.s[:, :count]
        square = (vectors.ntk_eta**2).sum(axis=1) - self.mean_square
        batch.accumulate("r", "ddntk_1", -0.5 * y * square[:, None] - vectors.response * vectors.kernel_phi)
        r_pair = s[2] * matmul(self.pair[0], s[0]) + s[3] * matmul(self.pair[1], s[1])
        r_zeta = batch.r_from_probes(vectors.products_of_zeta, vectors.zeta, count)
        summed = batch.sum_probes(r_zeta * vectors.ntk_zeta)
        if batch.has_same_sample:
            first, second = s[2] * s[0], s[1] * s[1]
            r_pair += first * self.sums["r3"] + second * self.sums["r4"]
            r3, r4 = (matmul(self.ntk_inner[name], batch.phi) for name in ("r3", "r4"))
            summed = summed + (first * r3 + second * r4)[:, None]
        effect = vectors.response * (r_pair - self.mean_r_pair)[:, None]
        effect = effect + vectors.r * vectors.kernel_phi + y * summed
        batch.accumulate("g", "ddntk_1", -effect)
