r"""What bends the path, in samples: the symbols A, IA, IIA and IIB.

At one time e and a are the factors of the modes that are learned then and were learned before; `before` is
the factor of the third mode of IIB: a after the step (bent), or e of a later time (nested). Nested times also
have IIA, whose later mode has the same factor e.
"""

import numpy as np

from finitewidth.training.many_points.feature_means import Means
from finitewidth.training.many_points.neuron_batch import Batch, Matrices, spread, times
from finitewidth.training.many_points.sampled_training import Scene
from finitewidth.training.many_points.time_integrals import Moment


class Path:
    """Matrices of one time, between training samples or from them to all."""

    def __init__(self, scene: Scene, matrices: Matrices, averages: Means, moment: Moment):
        self.scene, self.outputs, self.averages = scene, scene.outputs, averages
        self.pairs, self.t = matrices.layer.pairs, slice(scene.count)
        self.moment, self.matrices = moment, matrices
        self.symbols = {
            name: self.real(scene.between(getattr(moment, name))) for name in ("e", "a", "before")
        }
        self.targets = {name: scene.targets(getattr(moment, name)) for name in ("e", "a", "before")}
        self.y = {name: self.real(v)[:, :, None] for name, v in self.targets.items()}
        self.joined = (
            scene.joined(moment.e, moment.a, pair=False),
            scene.joined(moment.e, moment.a, pair=True),
        )
        self.tied_kernel = self.real(self.training("Th") * self.joined[0])
        self.wires = {name: self.real(scene.wired(getattr(moment, name)))[:, :, None] for name in self.y}
        self.means: dict[str, np.ndarray] = {}

    def real(self, matrix: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(matrix, dtype=self.scene.real)

    def training(self, name: str) -> np.ndarray:
        """A pair matrix between training samples."""
        return self.pairs[name][self.t, self.t]

    def alone(self, name: str, matrix: np.ndarray) -> np.ndarray:
        """Row sums of a pair matrix weighted entry by entry, (N_A, 1)."""
        return self.real((self.training(name) * matrix).sum(axis=1)[:, None])

    def tied_by_kernel(self, batch: Batch, kernel: np.ndarray, legs: tuple[str, str], v) -> np.ndarray:
        """(Theta o l k r) v, (N_A, columns, B): k is K, for which `kernel` is Theta o l K r, and a wire."""
        v = v if v.ndim == 3 else spread(v)
        result = times(kernel, v)
        if batch.wires:
            left, right = (self.wires[name] for name in legs)
            result = result + left * batch.tied(right * v, batch.count)
        return result

    def chain(self, middle: np.ndarray) -> np.ndarray:
        """The mean of sigma'_d g_d Theta middle Theta (g sigma' a y), (N, n_L)."""
        Th, t = self.pairs["Th"], self.t
        slopes = (self.averages.slopes * self.pairs["E"])[:, t]
        return (slopes * (Th[:, t] @ middle @ Th[t, t])) @ self.targets["a"]


class Legs:
    """What several contractions of one batch have in common."""

    def __init__(self, path: Path, batch: Batch):
        count, y = batch.count, path.y
        self.response = batch.tied(spread(batch.phi) * y["a"], count)  # Theta (g sigma' a y)
        halves = batch.halves(y["a"], count)
        self.y = batch.y_of(halves, y["a"], count)
        self.r = batch.r_of(halves, y["a"], count)
        self.met = path.tied_by_kernel(batch, path.tied_kernel, ("e", "a"), batch.phi)
        zeta, eta = ((path.symbols["a"] @ v)[:, :, None] for v in (batch.zeta, batch.eta))
        self.zeta = zeta
        self.tied_zeta, self.tied_eta = (
            batch.tied(spread(batch.phi) * v, count) for v in (zeta, eta)
        )  # (N_A, columns, B)
        self.halves = batch.halves(zeta, count)


class FirstBend:
    """The dNTK and the first ddNTK: Z_A = e_a a_b and Z_IA = -1/2 e_a a_b a_c."""

    def __init__(self, path: Path):
        self.path = path
        averages, t, lower = path.averages, path.t, path.matrices.layer.lower
        e, a = (path.scene.between(v) for v in (path.moment.e, path.moment.a))
        E, Th, G = path.training("E"), path.training("Th"), path.joined[1]
        self.looped = {"e": path.real(E * e), "a": path.real(E * a)}
        self.pair = path.real(path.training("Lam") * G), path.real(path.training("Om") * G)
        bend, turn = (averages.p[t, t] * e).sum(axis=1), (averages.r[t, t] * G).sum(axis=1)
        fan = E * path.scene.joined(path.moment.a, path.moment.a, pair=True) * averages.slopes[t, t]
        fan = ((Th @ fan) * Th).sum(axis=1)
        self.bend, self.turn, self.fan = (path.real(v[:, None]) for v in (bend, turn, fan))
        through = averages.r[t].T @ (path.targets["e"] * fan[:, None])
        path.means["dntk"] = path.outputs * path.chain(np.diag(bend))
        path.means["ddntk_1"] = -0.5 * through - path.chain(np.diag(turn))
        if lower:
            kernel = path.scene.joined(path.moment.a, path.moment.a, pair=False)
            inner = {"p2": a, "p3": a, "r3": kernel, "r4": kernel}
            self.tied = {name: path.real(Th * (path.training(name) @ m)) for name, m in inner.items()}
            sums = {"p2": e, "p3": e, "r3": G, "r4": G, "alpha": a}
            self.alone = {name: path.alone(name, m) for name, m in sums.items()}

    def contract(self, batch: Batch, legs: Legs) -> None:
        self._dntk(batch, legs)
        self._ddntk(batch, legs)

    def _dntk(self, batch: Batch, legs: Legs) -> None:
        path, count, y = self.path, batch.count, self.path.y["e"]
        s = batch.s[:, :count]
        e, a = path.symbols["e"], path.symbols["a"]
        sigma, sigma2 = batch.g[:count] * s[0], batch.g2[:count] * s[0]
        now = times(e, sigma)
        bend = s[2] * times(self.looped["e"], s[0])
        turn = s[2] * batch.g2[:count] * batch.tied(batch.phi * times(a, sigma2), count)
        loop = times(self.looped["a"], s[0])
        if batch.lower:
            bends, squares = s[2] * s[0], s[1] * s[1]
            bend += bends * self.alone["p2"] + squares * self.alone["p3"]
            turn += bends * times(self.tied["p2"], batch.phi) + squares * times(self.tied["p3"], batch.phi)
            loop += s[0] * self.alone["alpha"]
        turn += batch.y_on(times(a, sigma), count)
        straight = path.outputs * legs.response * spread(bend - self.bend)
        batch.end("g", "dntk", straight + y * spread(turn) + legs.y * spread(now))
        loop = batch.tied(s[1] * loop, count)
        batch.end("y", "dntk", legs.response * spread(now) + path.outputs * y * spread(loop))
        if batch.mixed is not None:
            h, k = (batch.on_training(v) for v in batch.mixed)
            now = times(e, k)
            start = batch.tied(spread(h * s[1] * s[0]) * path.y["a"], count)
            batch.end("y", "dntk", start * spread(now))
            batch.end("h", "dntk", legs.y * spread(now) + y * spread(batch.y_on(times(a, k), count)))

    def _ddntk(self, batch: Batch, legs: Legs) -> None:
        count, y = batch.count, self.path.y["e"]
        s = batch.s[:, :count]
        fan = (legs.tied_eta**2).sum(axis=1) - self.fan
        batch.end("r", "ddntk_1", -0.5 * y * spread(fan) - legs.response * legs.met)
        turn = s[2] * times(self.pair[0], s[0]) + s[3] * times(self.pair[1], s[1])
        joined = batch.joined(batch.r_of_probes(legs.halves, legs.zeta, count) * legs.tied_zeta)
        if batch.lower:
            bends, squares = s[2] * s[0], s[1] * s[1]
            turn += bends * self.alone["r3"] + squares * self.alone["r4"]
            alone = [times(self.tied[name], batch.phi) for name in ("r3", "r4")]
            joined = joined + spread(bends * alone[0] + squares * alone[1])
        effect = legs.response * spread(turn - self.turn) + legs.r * legs.met + y * joined
        batch.end("g", "ddntk_1", -effect)
