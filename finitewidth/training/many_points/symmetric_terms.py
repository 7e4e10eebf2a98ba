r"""Taylor terms of the straight path in samples: P, Q and R with their first slot open.

A network moves by its dNTK and first ddNTK as if its parameters went straight to where they go: the symbols
2 B and 3 IB are symmetric in their modes, and each mode is in turn the one that is learned now (e), while the
others have been learned before (a).
"""

import numpy as np

from finitewidth.training.many_points.feature_means import Means
from finitewidth.training.many_points.neuron_batch import Batch, Matrices, spread, times
from finitewidth.training.many_points.sampled_training import Scene
from finitewidth.training.many_points.time_integrals import Moment


class Straight:
    """The contraction at one time."""

    names = ("dntk", "ddntk_1")

    def __init__(self, scene: Scene, matrices: Matrices, averages: Means, moment: Moment):
        e, a = moment.e, moment.a
        self.now = _Turn(scene, matrices, averages, target=e, twice=a, others=(a, a))
        self.before = _Turn(scene, matrices, averages, target=a, twice=e, others=(e, a))
        self.e, self.a = (scene.between(v).astype(scene.real) for v in (e, a))
        self.ended = moment.ended  # then all factors are 1/l, and each mode in turn is the same
        self.means = {"ddntk_1": -0.5 * self.now.product_of_means}
        if not self.ended:
            self.means["ddntk_1"] -= self.before.product_of_means

    def contract(self, batch: Batch) -> None:
        e, a = self.probed(batch)
        self.contract_probed(batch, e, a)

    def probed(self, batch: Batch) -> tuple["Probed", "Probed"]:
        """The probes with both symbols."""
        return Probed(batch, self.e), Probed(batch, self.a)

    def contract_probed(self, batch: Batch, e: "Probed", a: "Probed") -> None:
        fan, joined = (a.fan**2).sum(axis=1), batch.joined(a.r * a.tied)
        self.now.contract(batch, 0.5 * (fan - self.now.fan), joined)
        if self.ended:
            return
        fan, joined = (e.fan * a.fan).sum(axis=1), batch.joined(e.r * a.tied + a.r * e.tied)
        self.before.contract(batch, fan - self.before.fan, joined)


class Probed:
    """Probes with one symbol: Theta (g sigma' eta), Theta (g sigma' zeta), r zeta; (N, columns, B) each."""

    def __init__(self, batch: Batch, symbol: np.ndarray):
        eta, self.zeta = ((symbol @ v)[:, :, None] for v in (batch.eta, batch.zeta))
        self.fan, self.tied = (batch.tied(spread(batch.phi) * v) for v in (eta, self.zeta))
        self.r = batch.r_of_probes(batch.halves(self.zeta), self.zeta)


class _Turn:
    """One mode in turn: its symbol on the targets, that of the repeated mode, those of the joined pair."""

    def __init__(self, scene: Scene, matrices: Matrices, averages: Means, *, target, twice, others):
        real, count, pairs = scene.real, scene.count, matrices.layer.pairs
        t = slice(count)
        y, repeated = scene.targets(target), scene.between(twice)
        Th, E = pairs["Th"][:, t], pairs["E"][t, t]
        fan = E * scene.joined(*others, pair=True) * averages.slopes[t, t]
        fan = ((Th @ fan) * Th).sum(axis=1)
        mean = averages.r[:, t] @ y
        self.outputs = scene.outputs
        self.product_of_means = mean * fan[:, None]
        self.y, self.mean = y[:, :, None].astype(real), mean[:, :, None].astype(real)
        self.fan, self.twice, self.looped = fan[:, None].astype(real), repeated.astype(real), E * repeated
        self.looped = self.looped.astype(real)
        self.alone: dict[str, np.ndarray] = {}
        if matrices.layer.lower:
            kernel = scene.joined(*others, pair=False)
            kernel = kernel if others[0] is others[1] else kernel + kernel.T
            inner = {"p2": repeated, "p3": repeated, "r3": kernel, "r4": kernel}
            self.alone = {name: (Th * (pairs[name][:, t] @ m)).astype(real) for name, m in inner.items()}
            self.alpha = (pairs["alpha"][t, t] * repeated).sum(axis=1)[:, None].astype(real)

    def contract(self, batch: Batch, fan: np.ndarray, joined: np.ndarray) -> None:
        """P and Q with the repeated mode in two slots; R with centred fans and with the pair joined by K."""
        halves = batch.halves(self.y)
        response = batch.tied(spread(batch.phi) * self.y)
        bend, loop = self._bend_and_loop(batch)
        batch.add("dntk", response * spread(bend))
        batch.add("dntk", self.outputs * batch.y_of(halves, self.y) * spread(loop))
        if batch.mixed is not None:
            h, k = batch.mixed
            start = batch.tied(spread(batch.on_training(h * batch.s[1] * batch.s[0])) * self.y)
            batch.add("dntk", start * spread(batch.y_on(times(self.twice, batch.on_training(k)))))
        if batch.lower:
            joined = joined + spread(self._on_one_sample(batch, "r3", "r4"))
        r = batch.r_of(halves, self.y) - self.mean
        batch.add("ddntk_1", -r * spread(fan) - response * joined)

    def _bend_and_loop(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        s, g, g2 = batch.s, batch.g, batch.g2
        g2_sigma, g_sigma = (times(self.twice, batch.on_training(field * s[0])) for field in (g2, g))
        bend = s[2] * g2 * batch.tied(batch.phi * g2_sigma) + batch.y_on(g_sigma)
        loop = times(self.looped, batch.on_training(s[0]))
        if batch.lower:
            bend += self._on_one_sample(batch, "p2", "p3")
            loop += batch.on_training(s[0]) * self.alpha
        return bend, batch.tied(batch.on_training(s[1]) * loop)

    def _on_one_sample(self, batch: Batch, first: str, second: str) -> np.ndarray:
        s = batch.s
        bends = s[2] * s[0] * times(self.alone[first], batch.phi)
        return bends + s[1] * s[1] * times(self.alone[second], batch.phi)
