r"""NTK fluctuations in samples: the tensors A and B, with one mode twice ($e_a$) and one on the targets.

The mean of the feature x is subtracted, as A demands, and in the loop over outputs the pair of slopes that
the repeated mode joins is replaced by its mean where that is exact.

In the variance the NTK fluctuates in two outputs at once, each at a time of its own. The residuals of an
output at two modes a and b are joined by K, which probes replace, and by its targets, which have columns of
their own:

$$\langle (x - \bar x)_{da} (x - \bar x)_{db} \rangle, \quad
  \langle b_{db}\, b_{ad} \rangle \Theta_{da} \Theta_{db}, \quad
  n_L \langle b_{dd}\, b_{ab} \rangle \Theta_{da} \Theta_{db}.$$
"""

import numpy as np

from finitewidth.training.many_points.feature_means import Means
from finitewidth.training.many_points.neuron_batch import Batch, Matrices, spread, times
from finitewidth.training.many_points.sampled_training import Scene
from finitewidth.training.many_points.time_integrals import Moment

NAME = "ntk_fluctuation"


class Centred:
    """The feature x minus its mean."""

    def __init__(self, scene: Scene, matrices: Matrices, averages: Means):
        self.mean = averages.x[:, : scene.count].astype(scene.real)
        self.alone = matrices.columns["x2"], matrices.transposed["x2"]

    def on(self, batch: Batch, v: np.ndarray, rows: int | None = None) -> np.ndarray:
        """(x - <x>) v."""
        first, second = batch.halves(v, rows)
        s0, s1 = spread(batch.s[0][:rows]), spread(batch.s[1][:rows])
        result = s0 * first + s1 * second - times(self.mean[:rows], v)
        if batch.lower:
            squares = batch.s[0] ** 2
            result += spread(squares[:rows]) * times(self.alone[0][:rows], v)
            result += times(self.alone[1][:rows], spread(batch.on_training(squares)) * v)
        return result


class Fluctuation:
    """The contraction at one pair of times."""

    names = (NAME,)

    def __init__(self, scene: Scene, matrices: Matrices, averages: Means, moment: Moment):
        real, count = scene.real, scene.count
        t, pairs = slice(count), matrices.layer.pairs
        twice, y = scene.between(moment.e), scene.targets(moment.a)
        looped = pairs["E"][t, t] * twice
        averaged = looped * averages.slopes[t, t]
        between = pairs["Th"][:, t] @ averaged @ pairs["Th"][t, t]
        self.means = {NAME: scene.outputs * ((averages.slopes * pairs["E"])[:, t] * between) @ y}
        self.outputs = scene.outputs
        self.y = y[:, :, None].astype(real)
        self.twice, self.looped, self.averaged = (m.astype(real) for m in (twice, looped, averaged))
        self.centred = Centred(scene, matrices, averages)

    def contract(self, batch: Batch) -> None:
        once = self.centred.on(batch, self.y, batch.count)
        batch.add(NAME, self.centred.on(batch, times(self.twice, once)))
        response = batch.tied(spread(batch.phi) * self.y, batch.count)
        batch.end("g2", NAME, spread(batch.phi) * times(self.twice, spread(batch.phi2) * response))
        slopes = spread(batch.on_training(batch.s[1]))
        loop = slopes * times(self.looped, slopes * response) - times(self.averaged, response)
        batch.end("g", NAME, self.outputs * loop)


class Twice:
    """The contraction at one pair of times; its effects are on test samples already, (M, n_L)."""

    def __init__(self, scene: Scene, matrices: Matrices, averages: Means, moment: Moment, rows: np.ndarray):
        self.centred = Centred(scene, matrices, averages)
        self.legs = tuple(
            _Leg(scene, symbol, left, rows)
            for symbol, left in ((moment.e, moment.left), (moment.a, moment.left_of_other))
        )
        self.means: dict[str, np.ndarray] = {}

    def contract(self, batch: Batch) -> None:
        first, second = self.legs
        g, g2 = (spread(field * batch.s[1]) for field in (batch.g, batch.g2))
        phi, phi2 = spread(batch.phi), spread(batch.phi2)

        def answer(leg: "_Leg", start: np.ndarray, field: np.ndarray, probes: np.ndarray) -> np.ndarray:
            return leg.reached(start * batch.tied(field * leg.on(probes)))

        straight = [leg.reached(self.centred.on(batch, leg.on(batch.zeta))) for leg in self.legs]
        crossed = answer(first, g, phi2, batch.zeta), answer(second, g2, phi, batch.zeta)
        side = [answer(leg, g2, phi, batch.eta) for leg in self.legs]
        for one, other in (straight, crossed):
            batch.add(NAME, batch.joined(one * other))
        batch.add(NAME, (side[0] * side[1]).sum(axis=1, keepdims=True))


class _Leg:
    """One fluctuation: the symbol of its time, and how it reaches the test samples."""

    def __init__(self, scene: Scene, symbol: np.ndarray, left: float, rows: np.ndarray):
        absorbed = (scene.rows[rows] * scene.replay.absorbed(left)) @ scene.vectors.T
        self.rows, self.count = rows, scene.count
        self.symbol, self.taken = (m.astype(scene.real) for m in (scene.between(symbol), absorbed))

    def on(self, probes: np.ndarray) -> np.ndarray:
        return (self.symbol @ probes)[:, :, None]

    def reached(self, effect: np.ndarray) -> np.ndarray:
        return effect[self.rows] - times(self.taken, effect[: self.count])
