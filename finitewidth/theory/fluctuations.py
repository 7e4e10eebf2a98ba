r"""Fluctuations of preactivations and NTK: (V, D, A) and (F, Q, T), one block recursion used twice.

(V, D, A) are covariances of the features of one neuron

$$C_W \sigma_1\sigma_2 \quad\text{and}\quad
  X_{12} = \lambda_W \sigma_1\sigma_2 + C_W \Theta_{12} \sigma'_1\sigma'_2;$$

(F, Q, T) are second moments, tied together by $\Theta_{12}$, of

$$C_W \sigma'_1\sigma_3 \quad\text{and}\quad
  Y_{13} = \lambda_W \sigma'_1\sigma_3 + C_W \Theta_{13} \sigma''_1\sigma'_3$$

(PDLT chapters 4, 8 and 11, and infinity section 3).
"""

import numpy as np

from finitewidth.theory.blocks import Blocks, FeatureMaps, PairMap
from finitewidth.theory.sources import Averages, Step


def kernel_sources(step: Step, w: Averages) -> Blocks:
    """What one layer creates of V, D and A: covariances of single-neuron features."""
    C, lW, Th = step.C_W, step.lambda_W, step.Theta
    ss, X = step.moments.sigma.value, step.X
    sigma4 = w.at("ssss", "abcd")
    slope2 = Th[:, :, None, None] * w.at("s's'ss", "abcd")  # Theta_12 <s1' s2' s3 s4>
    slope4 = _outer(Th, Th) * w.at("s's's's'", "abcd")
    V = C**2 * (sigma4 - _outer(ss, ss))
    if step.bare:
        return {("v", "v"): V}
    D = C * (lW * sigma4 + C * slope2 - _outer(X, ss))
    A = lW**2 * sigma4 + lW * C * (slope2 + slope2.transpose(2, 3, 0, 1)) + C**2 * slope4 - _outer(X, X)
    return {("v", "v"): V, ("x", "v"): D, ("x", "x"): A}


def kernel_maps(step: Step) -> FeatureMaps:
    """How fluctuations of the kernel (v) and the NTK (x) of layer l move those of layer l + 1."""
    C, lW = step.C_W, step.lambda_W
    sigma, slope = step.moments.sigma.slope, step.moments.slope.slope
    assert sigma is not None
    if slope is None:
        return {"v": {"v": _scaled(C, sigma)}}
    from_kernel = _combined(lW, sigma, C * step.Theta, slope)
    return {"v": {"v": _scaled(C, sigma)}, "x": {"v": from_kernel, "x": step.E}}


def mixed_sources(step: Step, w: Averages) -> Blocks:
    """What one layer creates of F, Q and T, rows (13) and columns (24)."""
    C, lW, Th = step.C_W, step.lambda_W, step.Theta
    tie = Th[:, None, :, None]
    base = w.at("s's'ss", "acbd")
    F = C**2 * tie * base
    if not step.smooth:
        return {("f", "f"): F}
    row = Th[:, :, None, None] * w.at("s''s's's", "abcd")
    both = _outer(Th, Th) * w.at("s''s''s's'", "acbd")
    Q = C * tie * (lW * base + C * row)
    T = tie * (lW**2 * base + lW * C * (row + row.transpose(2, 3, 0, 1)) + C**2 * both)
    return {("f", "f"): F, ("y", "f"): Q, ("y", "y"): T}


def mixed_maps(step: Step) -> FeatureMaps:
    """How the pairs (NTK leg, preactivation leg) of layer l move those of layer l + 1."""
    C = step.C_W
    e11, e20 = step.moments.slope.value, step.moments.leading
    assert e20 is not None
    maps: FeatureMaps = {"f": {"f": PairMap(C * e20, C * e11)}}
    return {**maps, "y": {"f": PairMap(step.dY, step.Z), "y": step.E}} if step.smooth else maps


def _outer(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return first[:, :, None, None] * second[None, None]


def _scaled(factor: float | np.ndarray, m: PairMap) -> PairMap:
    return PairMap(*(None if part is None else factor * part for part in m))


def _combined(p: float | np.ndarray, m: PairMap, q: float | np.ndarray, n: PairMap) -> PairMap:
    return PairMap(*(p * a + q * b for a, b in zip(m, n, strict=True)))  # type: ignore[operator]
