"""Compiled loops over lines: averages of one or two samples, and spectra by which grids are chosen."""

import numpy as np

from finitewidth.core.compiled import compiled, load, product, product_sum, spread, total

_LANES = 8


@compiled
def products_on_line(values, weights, sets, result):
    """Weighted products of derivatives (order, P, X), (S, P, X); a set has up to three orders."""
    for s in range(len(sets)):
        for p in range(values.shape[1]):
            for x in range(values.shape[2]):
                number = weights[x]
                for order in sets[s]:
                    if order >= 0:
                        number *= values[order, p, x]
                result[s, p, x] = number


@compiled
def averages_on_line(values, weights, sets, result):
    """Products of derivatives averaged over the last axis, (S, P, X), from derivatives (order, P, X, Y).

    Y is a multiple of eight.
    """
    _, P, X, Y = values.shape
    of_order = P * X * Y
    for p in range(P):
        for x in range(X):
            place = (p * X + x) * Y
            for s in range(len(sets)):
                a, b, c = sets[s]
                number = spread(0.0)
                for y in range(0, Y, _LANES):
                    value = load(values, a * of_order + place + y)
                    if b >= 0:
                        value = product(value, load(values, b * of_order + place + y))
                    if c >= 0:
                        value = product(value, load(values, c * of_order + place + y))
                    number = product_sum(value, load(weights, y), number)
                result[s, p, x] = total(number)


@compiled
def line_sums(of_a, of_b, couples, result):
    """Sums over x of one set of a and another of b, then the other way round, (couple, 2, P)."""
    for n in range(len(couples)):
        one, two = couples[n]
        for p in range(of_a.shape[1]):
            forward, backward = 0.0, 0.0
            for x in range(of_a.shape[2]):
                forward += of_a[one, p, x] * of_b[two, p, x]
                backward += of_a[two, p, x] * of_b[one, p, x]
            result[n, 0, p], result[n, 1, p] = forward, backward


@compiled
def put_pairs(values, numbers, strides, a, b, target):
    """Write values (couple, 2, P) of pairs (a, b) to places of a flat array, both ways.

    A place has the number of a couple and the strides of the slots of either sample.
    """
    for n in range(len(numbers)):
        one, two = strides[n]
        for p in range(len(a)):
            target[one * a[p] + two * b[p]] = values[numbers[n], 0, p]
            target[one * b[p] + two * a[p]] = values[numbers[n], 1, p]


@compiled
def largest_spectra(legs, gaussian, orders, waves, spectra):
    """Largest squared transforms of products of four legs over arrangements (R, 4), (row, frequency).

    Legs are (order, row, leg, x); waves (x, F) or (x, 2 F) are cosines, and sines after them.
    """
    rows, size = legs.shape[1], legs.shape[3]
    products, transforms = np.empty((len(orders), size)), np.empty((len(orders), waves.shape[1]))
    count = spectra.shape[1]
    for row in range(rows):
        for n in range(len(orders)):
            a, b, c, d = orders[n]
            for x in range(size):
                front = gaussian[x] * legs[a, row, 0, x] * legs[b, row, 1, x]
                products[n, x] = front * legs[c, row, 2, x] * legs[d, row, 3, x]
        np.dot(products, waves, transforms)
        for f in range(count):
            spectra[row, f] = 0.0
        for n in range(len(orders)):
            for f in range(count):
                square = transforms[n, f] * transforms[n, f]
                if waves.shape[1] > count:
                    square += transforms[n, count + f] * transforms[n, count + f]
                spectra[row, f] = max(spectra[row, f], square)
