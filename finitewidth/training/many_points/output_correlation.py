r"""The correlation of the initial output z with the NTK (D, F) and the dNTK (P, Q): half of a variance.

A trained output keeps a part L z of the initial one. What a sample d learns at order 1/n is correlated with
it. The tensors of these correlations have one slot on L: here a few columns of L^T, one for each test sample
or for random combinations of them. The residuals of one output at two modes are joined by K and by its own
targets.
"""

import numpy as np

from finitewidth.training.many_points.feature_means import FeatureMeans
from finitewidth.training.many_points.neuron_batch import NeuronBatch, PairMatrices, matmul
from finitewidth.training.many_points.ntk_fluctuation import CentredFeature
from finitewidth.training.many_points.ordered_terms import OrderedMatrices, OrderedVectors
from finitewidth.training.many_points.sampled_training import SampledTraining
from finitewidth.training.many_points.second_ddntk import SecondDdNTK
from finitewidth.training.many_points.symmetric_terms import SymmetricTerms

NTK, DNTK = "output_with_ntk", "dntk"


class InitialOutput:
    """Columns of L^T, (N, c), and the features f, p and v of a neuron summed with them."""

    def __init__(self, training: SampledTraining, matrices: PairMatrices, columns: np.ndarray):
        pairs, dtype, self.count = matrices.layer.pairs, training.dtype, training.count
        self.columns = columns[:, :, None].astype(dtype)
        self.E, self.v = pairs["E"].astype(dtype), pairs["v"][: self.count].astype(dtype)
        self.summed = {
            name: (pairs[name] @ columns)[:, :, None].astype(dtype) for name in ("alpha", "p2", "p3", "v2")
        }
        self.v2 = pairs["v2"].T[: self.count].astype(dtype)

    def f_and_p(self, batch: NeuronBatch) -> tuple[np.ndarray, np.ndarray]:
        """The features f and p, (N, c, B) each."""
        s = batch.s[:, :, None]
        E_sigma = matmul(self.E, s[0] * self.columns)
        f, p = s[1] * E_sigma, s[2] * E_sigma
        if batch.has_same_sample:
            f += (s[1] * s[0]) * self.summed["alpha"]
            p += (s[2] * s[0]) * self.summed["p2"] + (s[1] * s[1]) * self.summed["p3"]
        return f, p

    def v_feature(self, batch: NeuronBatch) -> np.ndarray:
        """The feature v on training samples, (N_A, c, B)."""
        sigma, count = batch.s[0, :, None], self.count
        result = sigma[:count] * matmul(self.v, sigma * self.columns)
        if batch.has_same_sample:
            result += (sigma[:count] ** 2) * self.summed["v2"][:count]
            result += matmul(self.v2, (sigma**2) * self.columns)
        return result


class SymmetricWithOutput:
    """The symmetric terms, and P and Q with the symbol B and slot 0 on the initial output."""

    def __init__(self, terms: SymmetricTerms, averages: FeatureMeans, output: InitialOutput):
        self.terms, self.output = terms, output
        columns = output.columns[:, :, 0].astype(np.float64)
        self.share = 0.5 if terms.at_end else 1.0  # both orders of two modes are the same at the end
        self.mean_square = terms.target_earlier.mean_square
        self.means = {**terms.means, DNTK: self.share * (averages.p @ columns) * self.mean_square}

    def contract(self, batch: NeuronBatch) -> None:
        e, a = self.terms.probes(batch)
        self.terms.contract_probes(batch, e, a)
        f, p = self.output.f_and_p(batch)
        square = (e.ntk_eta * a.ntk_eta).sum(axis=1) - self.mean_square
        batch.add(DNTK, self.share * p * square[:, None])
        f, Th = f[: batch.count], batch.matrices.columns["Th"]
        for one, other in ((e, a),) if self.terms.at_end else ((e, a), (a, e)):
            (effect,) = batch.hadamard([Th], batch.apply_y(one.zeta), other.zeta[:, :, 0], [f])
            batch.add(DNTK, effect)


class OrderedWithOutput:
    """P and Q with the symbol A and another slot on the initial output; D and F at the time of the NTK."""

    def __init__(self, path: OrderedMatrices, second: SecondDdNTK, output: InitialOutput):
        self.path, self.second, self.output = path, second, output
        self.x = CentredFeature(path.training, path.matrices, path.averages)
        e = path.training.in_samples(path.node.e)
        self.E_e, self.alpha = path.cast(path.between("E") * e), path.row_sums("alpha", e)

    def contract(self, batch: NeuronBatch, vectors: OrderedVectors) -> None:
        path, count = self.path, batch.count
        f, p = self.output.f_and_p(batch)
        ntk_y_pair = batch.apply_ntk(self.second.y_pair(batch))
        batch.accumulate("g", DNTK, p[:count] * vectors.kernel_phi)
        batch.accumulate("y", DNTK, path.apply_kernel(batch, path.ntk_K_ea, ("e", "a"), f[:count]))
        batch.add(DNTK, f * ntk_y_pair[:, None])
        self._ntk(batch, f)

    def _ntk(self, batch: NeuronBatch, f: np.ndarray) -> None:
        count, e = batch.count, self.path.symbols["e"]
        s = batch.s[:, :count]
        batch.add(NTK, -self.x.apply(batch, matmul(e, self.output.v_feature(batch))))
        loop = matmul(self.E_e, s[0]) + s[0] * self.alpha
        batch.add(NTK, -self.path.outputs * f * batch.apply_ntk(s[1] * loop)[:, None])
        batch.accumulate("g", NTK, -f[:count] * matmul(e, batch.g[:count] * s[0])[:, None])
        if batch.alpha_fields is not None:
            e_k = matmul(e, batch.alpha_fields[1][:count])
            batch.accumulate("h", NTK, -f[:count] * e_k[:, None])
