r"""Closed forms of the kernel of an activation and of its slopes, compiled, for blocks of pairs.

With $\det = K_{11}K_{22} - K_{12}^2$ computed without cancellation, the angle $\arcsin c$ is
$\operatorname{atan2}(K_{12}, \sqrt{\det})$. Loops are free of branches, so that they run on vector units;
a number that is too large comes out as infinity or NaN, never as a plausible number.
"""

import math

import numpy as np

from finitewidth.core.compiled import compiled, fma

SCALE_INVARIANT, STEP, ERF, GELU = range(4)

_AT_ONCE = 1024  # pairs whose variances are laid out side by side, in the fastest cache
_SIXTH, _HALF, _TURN = math.pi / 6, math.pi / 2, 2 * math.pi
_NEAR, _TURNED = math.tan(math.pi / 12), math.tan(math.pi / 6)


@compiled
def determinant(first, second, cross):
    """K_11 K_22 - K_12^2 to full precision, also where it nearly cancels; not negative."""
    square = cross * cross
    lost = fma(-cross, cross, square)
    value = fma(first, second, -square) + lost
    return 0.0 if value < 0.0 else value


@compiled
def arctangent(y, x):
    """atan2(y, x) for x >= 0, to a few units of the last place.

    The larger of |y|, x divides the smaller; a ratio above tan(pi/12) is turned back by pi/6. The polynomial
    is the Chebyshev approximation of arctan(r)/r in r^2 below tan(pi/12)^2, with an error of 2.4e-19.
    """
    size = abs(y)
    steep = size > x
    larger = size if steep else x
    smaller = x if steep else size
    far = smaller > _NEAR * larger
    top = fma(-_TURNED, larger, smaller) if far else smaller
    bottom = fma(_TURNED, smaller, larger) if far else larger
    r = top / (1.0 if bottom == 0.0 else bottom)
    s = r * r
    tail = fma(s, -0.038346902222996811565, 0.056776041927504832822)
    tail = fma(s, tail, -0.066498968470557734485)
    tail = fma(s, tail, 0.076914668853328102615)
    tail = fma(s, tail, -0.090908828284642863128)
    tail = fma(s, tail, 0.11111110609813646535)
    tail = fma(s, tail, -0.14285714280204498303)
    tail = fma(s, tail, 0.19999999999969191376)
    tail = fma(s, tail, -0.33333333333333266415)
    angle = fma(r * s, tail, r) + (_SIXTH if far else 0.0)
    angle = _HALF - angle if steep else angle
    return -angle if y < 0.0 else angle


# --- one loop for each family: K becomes <sigma sigma>, Theta is multiplied by <sigma' sigma'> --------
#
# `rounding` is 1 - correlation^2 up to which legs count as parallel.


@compiled
def _scale_invariant(first, second, K, Theta, alpha, beta, rounding):
    """alpha z + beta |z|. At variance zero z sits on the kink, where sigma' is alpha - beta."""
    linear, absolute, fixed = alpha**2, beta**2 * (2 / math.pi), alpha - beta
    for j in range(K.size):
        v, w, c = first[j], second[j], K[j]
        det = determinant(v, w, c)
        root = math.sqrt(0.0 if det < rounding * (v * w) else det)
        angle = arctangent(c, root)
        slope = fma(absolute, angle, linear)
        slope = fixed * alpha if v == 0.0 or w == 0.0 else slope
        slope = fixed**2 if v == 0.0 and w == 0.0 else slope
        K[j] = fma(linear, c, absolute * fma(c, angle, root))
        Theta[j] *= slope


@compiled
def _step(first, second, K, rounding):
    """The step from 0 to 1, which has no slope."""
    for j in range(K.size):
        v, w, c = first[j], second[j], K[j]
        det = determinant(v, w, c)
        root = math.sqrt(0.0 if det < rounding * (v * w) else det)
        value = 0.25 + arctangent(c, root) / _TURN
        K[j] = 0.0 if v == 0.0 or w == 0.0 else value


@compiled
def _erf(first, second, K, Theta, rounding):
    for j in range(K.size):
        v, w, c = first[j], second[j], K[j]
        det = determinant(v, w, c)
        root = math.sqrt(1 + 2 * (v + w) + 4 * (0.0 if det < rounding * (v * w) else det))
        K[j] = arctangent(2 * c, root) / _HALF
        Theta[j] *= (4 / math.pi) / root


@compiled
def _gelu(first, second, K, Theta, rounding):
    for j in range(K.size):
        v, w, c = first[j], second[j], K[j]
        det = determinant(v, w, c)
        det = 0.0 if det < rounding * (v * w) else det
        big = 1 + (v + w) + det
        root = math.sqrt(big)
        both = 0.25 + arctangent(c, root) / _TURN  # <Phi Phi>
        bell = 1 / (_TURN * root)  # <phi phi>
        K[j] = c * both + bell * (v * (w + det) / (1 + v) + c * c / (1 + w))
        Theta[j] *= both + c * bell * (1 / (1 + v) + 1 / (1 + w) + 1 / big)


@compiled
def aligned(form, first, second, K, Theta, alpha, beta, rounding):
    """Listed pairs, (M,) each."""
    if form == SCALE_INVARIANT:
        _scale_invariant(first, second, K, Theta, alpha, beta, rounding)
    elif form == STEP:
        _step(first, second, K, rounding)
    elif form == ERF:
        _erf(first, second, K, Theta, rounding)
    elif form == GELU:
        _gelu(first, second, K, Theta, rounding)


@compiled
def block(form, rows, columns, starts, places, K, Theta, alpha, beta, rounding):
    """A block of pairs (D, P, A, B): legs p of `rows` (P, n) and places[d, p] of `columns` (Q, m).

    The first samples of the block are those at `starts`.
    """
    D, P, A, B = K.shape
    at_once, left = max(1, _AT_ONCE // max(B, 1)), np.uintp(starts[1])
    first, second = np.empty(at_once * B), np.empty(at_once * B)
    for d in range(D):
        values, slopes = K[d].reshape(P * A, B), Theta[d].reshape(P * A, B)
        for top in range(0, P * A, at_once):
            bottom = min(top + at_once, P * A)
            p, i, start = top // A, top % A, np.uintp(0)
            for _ in range(top, bottom):
                v, q = rows[p, starts[0] + i], places[d, p]
                for j in range(np.uintp(B)):  # places that cannot count from the end
                    first[start + j] = v
                    second[start + j] = columns[q, left + j]
                start += np.uintp(B)
                i += 1
                if i == A:
                    p, i = p + 1, 0
            size = (bottom - top) * B
            part, factors = values[top:bottom].reshape(size), slopes[top:bottom].reshape(size)
            aligned(form, first, second, part, factors, alpha, beta, rounding)


@compiled
def determinants(first, second, cross):
    """The determinant of listed pairs, (M,) each."""
    result = np.empty(cross.size)
    for j in range(cross.size):
        result[j] = determinant(first[j], second[j], cross[j])
    return result


# --- all layers of a dense network: weights (S + 1, 5), as `core.loops.affine` takes them, and S activations


@compiled
def _weigh(K, Theta, weights):
    """Weights and biases."""
    a, b, offset, scale, shift = weights[0], weights[1], weights[2], weights[3], weights[4]
    for j in range(K.size):
        value = K[j]
        Theta[j] = fma(a, Theta[j], fma(b, value, offset))
        K[j] = fma(scale, value, shift)


@compiled
def own_layers(forms, slopes, weights, squares):
    """Variances in front of the activations, (S, N), of inputs with mean squares (N,)."""
    result, K, Theta = np.empty((forms.size, squares.size)), squares.copy(), np.zeros(squares.size)
    for s in range(forms.size):
        _weigh(K, Theta, weights[s])
        result[s] = K
        aligned(forms[s], result[s], result[s], K, Theta, slopes[s, 0], slopes[s, 1], 0.0)
    return result


@compiled
def all_layers(forms, slopes, weights, rows, columns, K, Theta, upper):
    """A block of pairs (A, B) from the inputs through all layers, with variances (S, A) and (S, B).

    With `upper` the block stands on the diagonal of a symmetric matrix, whose lower half is mirrored.
    """
    A, B = K.shape
    first, second = np.empty(_AT_ONCE + B), np.empty(_AT_ONCE + B)
    values, factors = np.empty(_AT_ONCE + B), np.empty(_AT_ONCE + B)
    top = 0
    while top < A:
        left = top if upper else 0
        width = B - left
        bottom = min(top + max(1, _AT_ONCE // max(width, 1)), A)
        size = (bottom - top) * width
        part, other = values[:size], factors[:size]
        for i in range(top, bottom):
            part[(i - top) * width : (i - top + 1) * width] = K[i, left:]
        other[:] = 0.0
        _weigh(part, other, weights[0])
        for s in range(forms.size):
            for i in range(top, bottom):
                start = (i - top) * width
                first[start : start + width] = rows[s, i]
                second[start : start + width] = columns[s, left:]
            aligned(forms[s], first, second, part, other, slopes[s, 0], slopes[s, 1], 0.0)
            _weigh(part, other, weights[s + 1])
        for i in range(top, bottom):
            K[i, left:] = part[(i - top) * width : (i - top + 1) * width]
            Theta[i, left:] = other[(i - top) * width : (i - top + 1) * width]
        top = bottom
    if upper:
        for i in range(A):
            K[i, :i], Theta[i, :i] = K[:i, i], Theta[:i, i]
