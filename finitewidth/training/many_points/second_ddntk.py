r"""The second ddNTK in samples: S, T and U with the symbols IIB and IIA.

IIB is $-e_a b_b a_c$ with the slot 0 open, where b stands for `before`; IIA is $-b_a e_b a_c$ with another
slot open, at nested times only, which have IIA alone at the end of training. Pairs of modes are joined by K
or by Y Y^T + n_L K, which probes replace.
"""

import numpy as np

from finitewidth.training.many_points.hadamard import weighted
from finitewidth.training.many_points.neuron_batch import Batch, spread, times
from finitewidth.training.many_points.time_matrices import Legs, Path

NAME = "ddntk_2"


class SecondBend:
    """The contraction at one time, or at two nested ones."""

    def __init__(self, path: Path, *, nested: bool):
        self.path, self.nested = path, nested
        self.opens_first = not (nested and path.moment.ended)
        scene, t, averages = path.scene, path.t, path.averages
        e, a, before = path.moment.e, path.moment.a, path.moment.before
        Th, E, G = path.pairs["Th"], path.training("E"), path.joined[1]
        fan = E * averages.slopes[t, t] * scene.joined(before, a, pair=True)
        fan = Th[:, t] @ fan @ Th[t, t]  # the mean of Theta (g sigma') b G a (g sigma') Theta
        mean = float(self.opens_first) * (averages.s[:, t] * fan) @ path.targets["e"]
        self.fan = path.real(fan)
        self.pair = path.real(path.training("Lam") * G), path.real(path.training("Om") * G)
        self.alone = path.alone("y3", G) if path.matrices.layer.lower else None
        if nested:
            K_later, G_later = (scene.joined(before, e, pair=pair) for pair in (False, True))
            self.tied_later = path.real(Th[t, t] * K_later)
            self.later = tuple(path.real(path.training(name) * G_later) for name in ("Lam", "Om"))
            averaged = averages.s[t, t] * G_later
            self.averaged = path.real(averaged)
            mean = mean + path.chain(averaged)
        path.means[NAME] = -mean

    def contract(self, batch: Batch, legs: Legs) -> None:
        probed = _Probed(self.path, batch, legs)
        met = batch.s_on(legs.met)
        paired = batch.tied(self.paired(batch))
        if self.opens_first:
            self._s(batch, legs, probed, met)
            self._t(batch, legs, probed, paired)
            self._u(batch, legs, probed)
        if self.nested:
            self._later_s(batch, legs, probed, met[: batch.count])
            self._later_t(batch, legs, probed, paired[: batch.count])
            self._later_u(batch, legs, probed)

    def paired(self, batch: Batch) -> np.ndarray:
        """The sum of y_cb (e G a)_cb over b."""
        s = batch.s[:, : batch.count]
        result = s[1] * times(self.pair[0], s[0]) + s[2] * times(self.pair[1], s[1])
        return result if self.alone is None else result + s[1] * s[0] * self.alone

    # --- IIB: the slot 0 is open ----------------------------------------------------------------------

    def _s(self, batch: Batch, legs: Legs, probed: "_Probed", met: np.ndarray) -> None:
        effect = _s_weighted(batch, probed.tied_eta, legs.tied_eta, self.path.y["e"], self.fan)
        effect += _s_by_kernel(batch, probed.tied_zeta, probed.e_zeta, legs.response)
        batch.add(NAME, -effect - probed.response * met)

    def _t(self, batch: Batch, legs: Legs, probed: "_Probed", paired: np.ndarray) -> None:
        y, Th = _full(self.path.y["e"], batch), batch.matrices.columns["Th"]
        (effect,) = batch.weighted_by_kernel([Th], probed.y_zeta, probed.y_a_zeta, [y])
        (other,) = batch.weighted_by_kernel([Th], probed.y_zeta, probed.e_zeta, [legs.y])
        batch.add(NAME, -(effect + other) - probed.y * spread(paired))

    def _u(self, batch: Batch, legs: Legs, probed: "_Probed") -> None:
        count, Th = batch.count, batch.matrices.columns["Th"]
        g, g2, s2 = batch.g, batch.g2, batch.s[2]
        bent, bent2 = (spread(batch.on_training(field * s2)) for field in (g, g2))
        fan = batch.tied(spread(batch.phi2) * probed.eta)
        (effect,) = weighted([Th], fan, probed.e_eta, [bent2 * legs.response])
        effect = spread(g) * effect
        met = self.path.tied_by_kernel(batch, self.path.tied_kernel, ("e", "a"), batch.phi2)
        effect += probed.response * spread(g2) * batch.tied(bent * met)
        other = batch.tied(spread(batch.phi2) * legs.zeta, count)
        (last,) = batch.weighted_by_kernel([Th], probed.tied_zeta, other, [bent * self.path.y["e"]])
        batch.add(NAME, -spread(s2) * (effect + spread(g2) * last))

    # --- IIA: a training slot is open towards a later time --------------------------------------------

    def _later_s(self, batch: Batch, legs: Legs, probed: "_Probed", met: np.ndarray) -> None:
        count = batch.count
        s1, s2 = spread(batch.s[1][:count]), spread(batch.s[2][:count])
        first, second = (times(m, s * legs.response) for m, s in zip(self.later, (s1, s2), strict=True))
        effect = s1 * first + s2 * second - times(self.averaged, legs.response)
        effect += _s_by_kernel(batch, probed.zeta[:, :, 0], legs.tied_zeta, self.path.y["e"])
        batch.end("g", NAME, -effect - self.path.y["before"] * met)

    def _later_t(self, batch: Batch, legs: Legs, probed: "_Probed", paired: np.ndarray) -> None:
        count, y = batch.count, _full(self.path.y["e"], batch)
        Th = batch.matrices.columns["Th"][:count]
        (effect,) = batch.weighted_by_kernel([Th], probed.zeta[:, :, 0], probed.y_a_zeta, [y])
        later = self._later(batch, legs.y)
        batch.end("y", NAME, -effect - later - self.path.y["before"] * spread(paired))

    def _later_u(self, batch: Batch, legs: Legs, probed: "_Probed") -> None:
        count = batch.count
        bent, bent2 = (spread(batch.on_training(field * batch.s[2])) for field in (batch.g, batch.g2))
        Th = batch.matrices.columns["Th"][:count]
        (effect,) = weighted([Th], probed.eta[:, :, 0], legs.tied_eta, [bent2 * self.path.y["e"]])
        met = batch.tied(bent2 * legs.met, count)
        effect = effect + self.path.y["before"] * met + self._later(batch, bent2 * legs.response)
        batch.end("g2", NAME, -bent * effect)

    def _later(self, batch: Batch, v: np.ndarray) -> np.ndarray:
        """(Theta o b k e) v."""
        return self.path.tied_by_kernel(batch, self.tied_later, ("before", "e"), v)


class _Probed:
    """Targets and probes with the symbol `before`, on all samples, and probes with e."""

    def __init__(self, path: Path, batch: Batch, legs: Legs):
        count, before = batch.count, path.y["before"]
        self.response = batch.tied(spread(batch.phi) * before)
        self.y = batch.y_on(before)
        self.zeta, self.eta = ((path.symbols["before"] @ v)[:, :, None] for v in (batch.zeta, batch.eta))
        self.tied_zeta, self.tied_eta = (
            batch.tied(spread(batch.phi) * v) for v in (self.zeta, self.eta)
        )  # (N, columns, B)
        self.y_zeta = batch.y_on(self.zeta)
        self.y_a_zeta = batch.y_of(legs.halves, legs.zeta, count)
        self.e_zeta, self.e_eta = (path.symbols["e"] @ v for v in (batch.zeta, batch.eta))


def _s_weighted(batch: Batch, left, right, v: np.ndarray, minus: np.ndarray | None = None) -> np.ndarray:
    """(s o L R^T) v."""

    def product(weights, vectors):
        return weighted(weights, left, right, vectors, minus)

    return _with_s(batch, left.shape[0], v, product)


def _s_by_kernel(batch: Batch, left, right, v: np.ndarray) -> np.ndarray:
    """(s o L R^T) v, where L and R have probes and wires."""

    def product(weights, vectors):
        return batch.weighted_by_kernel(weights, left, right, vectors)

    return _with_s(batch, left.shape[0], v, product)


def _with_s(batch: Batch, rows: int, v: np.ndarray, product) -> np.ndarray:
    s, count = [spread(batch.s[order][:rows]) for order in (1, 2)], batch.count
    weights = [batch.matrices.columns[name][:rows] for name in ("Lam", "Om")]
    first, second = product(weights, [one[:count] * v for one in s])
    return s[0] * first + s[1] * second


def _full(v: np.ndarray, batch: Batch) -> np.ndarray:
    """Targets for every neuron of the batch."""
    return np.broadcast_to(v, (*v.shape[:2], batch.s.shape[2]))
