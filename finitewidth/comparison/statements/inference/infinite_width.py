"""Bayesian inference at infinite width (PDLT section 6.3): evidence for criticality, and nothing moves."""

import math
from collections.abc import Iterator

import numpy as np
from scipy.optimize import root_scalar

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, extrapolated, pull
from finitewidth.comparison.statements.inference.bayes import DATA, MEMBERS, WIDTHS, inferred, sampled
from finitewidth.comparison.statements.problems import PDLT
from finitewidth.core.estimate import Estimate
from finitewidth.network.mlp import MLP
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.bayes import Evidence, infinite_evidence

DEPTHS = (10, 40, 160)
THREE = (*WIDTHS, 64)  # a line through two widths would leave terms of order 1/n^2
CRITICAL = {"linear": 1.0, "relu": 2.0}  # C_W


def scaled(activation: str, depth: int, C_W: float) -> Evidence:
    """Evidence of the data for networks without biases whose layers all have the same C_W."""
    net = MLP((3, *[2] * (depth - 1), 2), activation, C_b=0.0, C_W=C_W)
    return infinite_evidence(net, *DATA[:2])


def preferred(activation: str, depth: int) -> float:
    """C_W of the largest evidence, where its gradient vanishes."""

    def slope(log_C_W: float) -> float:
        gradient = scaled(activation, depth, math.exp(log_C_W)).gradient
        assert gradient is not None
        return float(gradient["C_W"].sum())

    centre = math.log(CRITICAL[activation])
    return math.exp(root_scalar(slope, bracket=(centre - 0.5, centre + 1.0), xtol=1e-13).root)


@claim(
    "bayes.criticality",
    f"{PDLT} section 6.3",
    "Evidence for criticality: deep scale-invariant networks have K proportional to C_W^L. The C_W that data "
    "prefer is 1 + O(1/L) times the critical one, up to logarithms, and the curvature of the log evidence in "
    "log C_W is -L^2 times half the number of observations.",
    "closed form: a maximum of the evidence by its gradient, against the scale of the data in the critical "
    f"kernel, {', '.join(map(str, DEPTHS))} layers",
)
def evidence_for_criticality() -> Iterator[Comparison]:
    X, Y, _ = DATA
    for activation, critical in CRITICAL.items():
        for depth in DEPTHS:
            net = MLP((3, *[2] * (depth - 1), 2), activation, C_b=0.0, C_W=critical)
            scale = float((Y * np.linalg.solve(kernels(net, X).K, Y)).sum()) / Y.size
            best = preferred(activation, depth)
            what = f"{activation}, {depth} layers"
            yield agree(f"{what}: C_W that data prefer", critical * scale ** (1 / depth), best, 1e-6)
            step = 1e-2 / depth
            values = [scaled(activation, depth, best * math.exp(s * step)).value for s in (-1, 0, 1)]
            curvature = (values[0] - 2 * values[1] + values[2]) / step**2 / depth**2
            yield agree(f"{what}: curvature over the square of depth", -Y.size / 2, curvature, 1e-3)
        deepest = DEPTHS[-1]
        best = preferred(activation, deepest)
        yield agree(f"{activation}, {deepest} layers: criticality", critical, best, 0.1)


@claim(
    "bayes.infinite-width",
    f"{PDLT} section 6.3",
    "At infinite width data neither wire outputs together nor change hidden layers: given data, covariances "
    "of two outputs and shifts of hidden kernels vanish with the width.",
    f"sampled networks: {MEMBERS} of each of the widths {THREE}, weighted by their likelihood",
)
def nothing_moves_at_infinite_width() -> Iterator[Comparison]:
    wired, moved = [], []
    for n in THREE:
        covariance, kernel = sampled(n).covariance, sampled(n).layers[2].kernel
        wired.append(Estimate(*(part[:, 0, :, 1] for part in covariance)))
        moved.append(Estimate(kernel.value - inferred(n).layer(2).infinite_width, kernel.stderr))
    yield pull("covariance of two outputs, extrapolated", 0.0, extrapolated(THREE, wired))
    yield pull("kernel of layer 2 minus K, extrapolated", 0.0, extrapolated(THREE, moved))
