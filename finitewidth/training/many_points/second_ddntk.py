r"""The second ddNTK in samples: S, T and U with the symbols IIB and IIA.

IIB is $-e_a b_b a_c$ with slot 0 open. IIA is $-b_a e_b a_c$ with another slot open; it belongs to nested
times, which have IIA alone at the end of training. Two modes are joined by the residual kernel K, or by
Y Y^T + n_L K summed over outputs; probes stand for both.
"""

import numpy as np

from finitewidth.training.many_points.hadamard import hadamard_product
from finitewidth.training.many_points.neuron_batch import NeuronBatch, matmul
from finitewidth.training.many_points.ordered_terms import OrderedMatrices, OrderedVectors

NAME = "ddntk_2"


class SecondDdNTK:
    """The contraction at one time (IIB), or at two nested ones (IIA, and IIB before the end of training)."""

    def __init__(self, path: OrderedMatrices, *, has_IIA: bool, has_IIB: bool):
        self.path, self.has_IIA, self.has_IIB = path, has_IIA, has_IIB
        training, t, averages = path.training, path.t, path.averages
        e, a, b = path.node.e, path.node.a, path.node.b
        Th, E, summed_K_ea = path.pairs["Th"], path.between("E"), path.summed_K_ea
        pair = E * averages.slopes[t, t] * training.residual_kernel(b, a, summed=True)
        pair = Th[:, t] @ pair @ Th[t, t]  # the mean of Theta (g sigma') b (Y Y^T + n_L K) a (g sigma') Theta
        mean = float(self.has_IIB) * (averages.s[:, t] * pair) @ path.targets["e"]
        self.mean_pair = path.cast(pair)
        self.pair = tuple(path.cast(path.between(name) * summed_K_ea) for name in ("Lam", "Om"))
        self.y3 = path.row_sums("y3", summed_K_ea) if path.matrices.layer.has_same_sample else None
        if has_IIA:
            K_be, summed_K_be = (training.residual_kernel(b, e, summed=summed) for summed in (False, True))
            self.ntk_K_be = path.cast(Th[t, t] * K_be)
            self.later_pair = tuple(path.cast(path.between(name) * summed_K_be) for name in ("Lam", "Om"))
            s_pair = averages.s[t, t] * summed_K_be
            self.mean_s_pair = path.cast(s_pair)
            mean = mean + path.mean_through(s_pair)
        path.means[NAME] = -mean

    def contract(self, batch: NeuronBatch, vectors: OrderedVectors) -> None:
        probes = _Probes(self.path, batch, vectors)
        s_kernel_phi = batch.apply_s(vectors.kernel_phi)
        ntk_y_pair = batch.apply_ntk(self.y_pair(batch))
        if self.has_IIB:
            self._S(batch, vectors, probes, s_kernel_phi)
            self._T(batch, vectors, probes, ntk_y_pair)
            self._U(batch, vectors, probes)
        if self.has_IIA:
            self._later_S(batch, vectors, probes, s_kernel_phi[: batch.count])
            self._later_T(batch, vectors, probes, ntk_y_pair[: batch.count])
            self._later_U(batch, vectors, probes)

    def y_pair(self, batch: NeuronBatch) -> np.ndarray:
        """The sum over b of y_cb (e (Y Y^T + n_L K) a)_cb."""
        s = batch.s[:, : batch.count]
        result = s[1] * matmul(self.pair[0], s[0]) + s[2] * matmul(self.pair[1], s[1])
        return result if self.y3 is None else result + s[1] * s[0] * self.y3

    # --- IIB: slot 0 is open --------------------------------------------------------------------------

    def _S(self, batch: NeuronBatch, vectors: OrderedVectors, probes: "_Probes", s_kernel_phi) -> None:
        y = self.path.y["e"]
        effect = _s_times(batch, hadamard_product, probes.ntk_eta, vectors.ntk_eta, y, minus=self.mean_pair)
        effect += _s_times(batch, batch.hadamard, probes.ntk_zeta, probes.e_zeta, vectors.response)
        batch.add(NAME, -effect - probes.response * s_kernel_phi)

    def _T(self, batch: NeuronBatch, vectors: OrderedVectors, probes: "_Probes", ntk_y_pair) -> None:
        y, Th = _for_every_neuron(self.path.y["e"], batch), batch.matrices.columns["Th"]
        (effect,) = batch.hadamard([Th], probes.y_zeta, probes.y_a_zeta, [y])
        (other,) = batch.hadamard([Th], probes.y_zeta, probes.e_zeta, [vectors.y])
        batch.add(NAME, -(effect + other) - probes.y * ntk_y_pair[:, None])

    def _U(self, batch: NeuronBatch, vectors: OrderedVectors, probes: "_Probes") -> None:
        count, Th = batch.count, batch.matrices.columns["Th"]
        g, g2, s2 = batch.g, batch.g2, batch.s[2]
        gs2, g2s2 = ((field * s2)[:count, None] for field in (g, g2))
        ntk_eta = batch.apply_ntk(batch.phi2[:, None] * probes.eta)
        (effect,) = hadamard_product([Th], ntk_eta, probes.e_eta, [g2s2 * vectors.response])
        effect = g[:, None] * effect
        kernel_phi = self.path.apply_kernel(batch, self.path.ntk_K_ea, ("e", "a"), batch.phi2)
        effect += probes.response * g2[:, None] * batch.apply_ntk(gs2 * kernel_phi)
        ntk_zeta = batch.apply_ntk(batch.phi2[:, None] * vectors.zeta, count)
        (last,) = batch.hadamard([Th], probes.ntk_zeta, ntk_zeta, [gs2 * self.path.y["e"]])
        batch.add(NAME, -s2[:, None] * (effect + g2[:, None] * last))

    # --- IIA: a training slot is open towards a later time --------------------------------------------

    def _later_S(self, batch: NeuronBatch, vectors: OrderedVectors, probes: "_Probes", s_kernel_phi) -> None:
        s1, s2 = (batch.s[order, : batch.count, None] for order in (1, 2))
        first, second = (
            matmul(m, s * vectors.response) for m, s in zip(self.later_pair, (s1, s2), strict=True)
        )
        effect = s1 * first + s2 * second - matmul(self.mean_s_pair, vectors.response)
        effect += _s_times(batch, batch.hadamard, probes.zeta[:, :, 0], vectors.ntk_zeta, self.path.y["e"])
        batch.accumulate("g", NAME, -effect - self.path.y["b"] * s_kernel_phi)

    def _later_T(self, batch: NeuronBatch, vectors: OrderedVectors, probes: "_Probes", ntk_y_pair) -> None:
        y, Th = _for_every_neuron(self.path.y["e"], batch), batch.matrices.columns["Th"][: batch.count]
        (effect,) = batch.hadamard([Th], probes.zeta[:, :, 0], probes.y_a_zeta, [y])
        later = self._apply_later_kernel(batch, vectors.y)
        batch.accumulate("y", NAME, -effect - later - self.path.y["b"] * ntk_y_pair[:, None])

    def _later_U(self, batch: NeuronBatch, vectors: OrderedVectors, probes: "_Probes") -> None:
        count, y = batch.count, self.path.y
        gs2, g2s2 = ((field * batch.s[2])[:count, None] for field in (batch.g, batch.g2))
        Th = batch.matrices.columns["Th"][:count]
        (effect,) = hadamard_product([Th], probes.eta[:, :, 0], vectors.ntk_eta, [g2s2 * y["e"]])
        effect = effect + y["b"] * batch.apply_ntk(g2s2 * vectors.kernel_phi, count)
        effect = effect + self._apply_later_kernel(batch, g2s2 * vectors.response)
        batch.accumulate("g2", NAME, -gs2 * effect)

    def _apply_later_kernel(self, batch: NeuronBatch, v: np.ndarray) -> np.ndarray:
        """(Theta o b k e) v."""
        return self.path.apply_kernel(batch, self.ntk_K_be, ("b", "e"), v)


class _Probes:
    """Targets and probes with the factor b, on all samples, and probes with e."""

    def __init__(self, path: OrderedMatrices, batch: NeuronBatch, vectors: OrderedVectors):
        y = path.y["b"]
        self.response = batch.apply_ntk(batch.phi[:, None] * y)
        self.y = batch.apply_y(y)
        self.zeta, self.eta = ((path.symbols["b"] @ v)[:, :, None] for v in (batch.zeta, batch.eta))
        self.ntk_zeta, self.ntk_eta = (
            batch.apply_ntk(batch.phi[:, None] * v) for v in (self.zeta, self.eta)
        )  # (N, columns, B)
        self.y_zeta = batch.apply_y(self.zeta)
        self.y_a_zeta = batch.y_from(vectors.products_of_zeta, vectors.zeta, batch.count)
        self.e_zeta, self.e_eta = (path.symbols["e"] @ v for v in (batch.zeta, batch.eta))


def _s_times(batch: NeuronBatch, product, left, right, v: np.ndarray, **options) -> np.ndarray:
    """(s o L R^T) v, by `hadamard_product` or its form for probes and targets."""
    rows, count = left.shape[0], batch.count
    s1, s2 = (batch.s[order, :rows, None] for order in (1, 2))
    weights = [batch.matrices.columns[name][:rows] for name in ("Lam", "Om")]
    first, second = product(weights, left, right, [s1[:count] * v, s2[:count] * v], **options)
    return s1 * first + s2 * second


def _for_every_neuron(v: np.ndarray, batch: NeuronBatch) -> np.ndarray:
    return np.broadcast_to(v, (*v.shape[:2], batch.s.shape[2]))
