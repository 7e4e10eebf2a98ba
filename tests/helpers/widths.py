"""Statistics of real networks at several widths, taken to 1/n = 0 where order 1/n is exact."""

import numpy as np

import finitewidth as fw


def pulls_at_infinity(make, X, widths, members, names, *, key=0) -> dict[str, float]:
    """The largest pull of order 1/n against a fit of terms to 1/n^2, by letter.

    `make(n)` is the network of width n. Each statistic is fitted entry by entry, weighted by its errors.
    """
    theory = fw.solve(make(widths[-1]), X).output
    tensors = tuple(name for name in names if name not in "GH")
    sampled = [
        fw.sample_statistics(make(n), X, members=members, key=key + n, tensors=tensors) for n in widths
    ]
    found = {}
    for name in names:
        exact, values, errors = _of_one(theory, sampled, widths, name)
        value, error = _at_zero(1 / np.asarray(widths), values, errors)
        found[name] = float(np.abs((value - exact) / error).max())
    return found


def _of_one(theory, sampled, widths, name):
    estimates = [getattr(one, name) for one in sampled]
    if name not in "GH":
        return getattr(theory, name), [one.value for one in estimates], [one.stderr for one in estimates]
    mean = theory.K if name == "G" else theory.Theta
    values = [n * (one.value - mean) for n, one in zip(widths, estimates, strict=True)]
    return (
        getattr(theory, f"{name}1"),
        values,
        [n * one.stderr for n, one in zip(widths, estimates, strict=True)],
    )


def _at_zero(x, values, errors):
    """Value and standard error at x = 0 of a fit with terms to x^2."""
    values, errors = np.asarray(values), np.asarray(errors)
    result = np.empty((2, *values.shape[1:]))
    for place in np.ndindex(values.shape[1:]):
        weights = 1 / errors[:, *place]
        matrix = np.stack([x**k for k in range(3)], axis=1) * weights[:, None]
        covariance = np.linalg.inv(matrix.T @ matrix)
        result[:, *place] = (
            (covariance @ matrix.T @ (values[:, *place] * weights))[0],
            covariance[0, 0] ** 0.5,
        )
    return result
