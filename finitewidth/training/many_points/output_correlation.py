r"""The initial output z that a trained one keeps, with the NTK (D, F) and the dNTK (P, Q): half a variance.

The trained output has a part L z of the initial one. What a sample d learns at order 1/n is correlated with
it, and the tensors that say so have one slot on L: here a few columns of L^T, one for each test sample or for
random combinations of them. The residuals of one output at two modes are joined by K and by its targets,
which are the wire of each column.
"""

import numpy as np

from finitewidth.training.many_points.feature_means import Means
from finitewidth.training.many_points.neuron_batch import Batch, Matrices, spread, times
from finitewidth.training.many_points.ntk_fluctuation import Centred
from finitewidth.training.many_points.sampled_training import Scene
from finitewidth.training.many_points.second_ddntk import SecondBend
from finitewidth.training.many_points.symmetric_terms import Straight
from finitewidth.training.many_points.time_matrices import Legs, Path

NTK, DNTK = "output_with_ntk", "dntk"


class Kept:
    """Columns of L^T, (N, c), and the features f, p and v of a neuron summed with them."""

    def __init__(self, scene: Scene, matrices: Matrices, kept: np.ndarray):
        pairs, real = matrices.layer.pairs, scene.real
        self.columns, self.count = kept[:, :, None].astype(real), scene.count
        self.E, self.v = pairs["E"].astype(real), pairs["v"][: scene.count].astype(real)
        self.alone = {
            name: (pairs[name] @ kept)[:, :, None].astype(real) for name in ("alpha", "p2", "p3", "v2")
        }
        self.v2 = pairs["v2"].T[: scene.count].astype(real)

    def features(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """f and p, (N, c, B) each."""
        s = batch.s
        met = times(self.E, spread(s[0]) * self.columns)
        f, p = spread(s[1]) * met, spread(s[2]) * met
        if batch.lower:
            f += spread(s[1] * s[0]) * self.alone["alpha"]
            p += spread(s[2] * s[0]) * self.alone["p2"] + spread(s[1] * s[1]) * self.alone["p3"]
        return f, p

    def of_kernel(self, batch: Batch) -> np.ndarray:
        """The feature v on training samples, (N_A, c, B)."""
        s, count = batch.s[0], self.count
        result = spread(s[:count]) * times(self.v, spread(s) * self.columns)
        if batch.lower:
            result += spread(s[:count] ** 2) * self.alone["v2"][:count]
            result += times(self.v2, spread(s**2) * self.columns)
        return result


class WithStraight:
    """The straight path, and P and Q with the symbol B and their slot 0 open."""

    def __init__(self, straight: Straight, averages: Means, kept: Kept):
        self.straight, self.kept = straight, kept
        columns = kept.columns[:, :, 0].astype(np.float64)
        self.share = 0.5 if straight.ended else 1.0  # both orders of two modes are the same at the end
        self.means = {**straight.means, DNTK: self.share * (averages.p @ columns) * straight.before.fan}

    def contract(self, batch: Batch) -> None:
        e, a = self.straight.probed(batch)
        self.straight.contract_probed(batch, e, a)
        f, p = self.kept.features(batch)
        fan = (e.fan * a.fan).sum(axis=1) - self.straight.before.fan
        batch.add(DNTK, self.share * p * spread(fan))
        f, Th = f[: batch.count], batch.matrices.columns["Th"]
        for one, other in ((e, a),) if self.straight.ended else ((e, a), (a, e)):
            (effect,) = batch.weighted_by_kernel([Th], batch.y_on(one.zeta), other.zeta[:, :, 0], [f])
            batch.add(DNTK, effect)


class WithBend:
    """P and Q with the symbol A and another slot open; D and F, whose NTK answers at this time."""

    def __init__(self, path: Path, second: SecondBend, kept: Kept):
        self.path, self.second, self.kept = path, second, kept
        self.centred = Centred(path.scene, path.matrices, path.averages)
        e = path.scene.between(path.moment.e)
        self.looped, self.alpha = path.real(path.training("E") * e), path.alone("alpha", e)

    def contract(self, batch: Batch, legs: Legs) -> None:
        path, count = self.path, batch.count
        f, p = self.kept.features(batch)
        paired = batch.tied(self.second.paired(batch))
        batch.end("g", DNTK, p[:count] * legs.met)
        batch.end("y", DNTK, path.tied_by_kernel(batch, path.tied_kernel, ("e", "a"), f[:count]))
        batch.add(DNTK, f * spread(paired))
        self._ntk(batch, f)

    def _ntk(self, batch: Batch, f: np.ndarray) -> None:
        count, e = batch.count, self.path.symbols["e"]
        s = batch.s[:, :count]
        batch.add(NTK, -self.centred.on(batch, times(e, self.kept.of_kernel(batch))))
        loop = times(self.looped, s[0]) + s[0] * self.alpha
        batch.add(NTK, -self.path.outputs * f * spread(batch.tied(s[1] * loop)))
        batch.end("g", NTK, -f[:count] * spread(times(e, batch.g[:count] * s[0])))
        if batch.mixed is not None:
            batch.end("h", NTK, -f[:count] * spread(times(e, batch.on_training(batch.mixed[1]))))
