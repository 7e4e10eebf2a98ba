r"""NTK fluctuations in samples: the tensors A and B, with one mode twice ($e_a$) and one on the targets.

The mean of the feature x is subtracted, as A demands, and in the loop over outputs the pair of slopes that
the repeated mode joins is replaced by its mean where that is exact.
"""

import numpy as np

from finitewidth.training.many_points.batch import Batch, Matrices, spread, times
from finitewidth.training.many_points.means import Means
from finitewidth.training.many_points.moments import Moment
from finitewidth.training.many_points.scene import Scene

NAME = "ntk_fluctuation"


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
        self.x = averages.x[:, t].astype(real)
        self.x2 = matrices.columns["x2"], matrices.transposed["x2"]

    def contract(self, batch: Batch) -> None:
        once = self._centred(batch, self.y, batch.count)
        batch.add(NAME, self._centred(batch, times(self.twice, once)))
        response = batch.tied(spread(batch.phi) * self.y, batch.count)
        batch.end("g2", NAME, spread(batch.phi) * times(self.twice, spread(batch.phi2) * response))
        slopes = spread(batch.on_training(batch.s[1]))
        loop = slopes * times(self.looped, slopes * response) - times(self.averaged, response)
        batch.end("g", NAME, self.outputs * loop)

    def _centred(self, batch: Batch, v: np.ndarray, rows: int | None = None) -> np.ndarray:
        """(x - <x>) v."""
        first, second = batch.halves(v, rows)
        s0, s1 = spread(batch.s[0][:rows]), spread(batch.s[1][:rows])
        result = s0 * first + s1 * second - times(self.x[:rows], v)
        if batch.lower:
            squares = batch.s[0] ** 2
            result += spread(squares[:rows]) * times(self.x2[0][:rows], v)
            result += times(self.x2[1][:rows], spread(batch.on_training(squares)) * v)
        return result
