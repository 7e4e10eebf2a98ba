"""Time, memory and error of all four-leg averages of one layer.

    python -m benchmarks.tensors.four_legs [activation]

Prints, for several numbers of samples, the first call (with compilation and tables), the best of the
later calls, the processor time of that call, the speed of the loops around its matrix products as a
fraction of one large product on one core, and the largest error against a run with 1/1000 of the tolerance on
a random subset of samples.
"""

import resource
import sys
import time

import numpy as np

from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.gaussian.four_legs.loops import sums as loops

CASES = ((4, 1e-8, 5), (8, 1e-8, 5), (16, 1e-8, 3), (32, 1e-6, 2), (64, 1e-4, 1))


def kernel(count: int) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal((count, 16))
    return 1.7 * x @ x.T / 16 + 0.01


def timed(call):
    wall, processor = time.perf_counter(), time.process_time()
    result = call()
    return result, time.perf_counter() - wall, time.process_time() - processor


def large_product_speed() -> float:
    """Floating-point operations per second and core of one large product."""
    a = np.ones((1500, 1500))
    with SingleThreadedProducts():
        return max(2 * 1500**3 / timed(lambda: a @ a)[2] for _ in range(5))


def _work(grid, entries) -> tuple[np.ndarray, np.ndarray]:
    """Points and Hermite terms of each entry."""
    return np.repeat(np.diff(grid.starts), np.diff(entries.starts)).astype(float), entries.terms[:, None]


def operations(grid, entries, tables) -> float:
    """Of the sums of some tasks: each entry has as many terms as it needs.

    A term is a product of two coefficients at each point, and a product and a sum for each two orders that it
    serves; then a product and a sum for each arrangement.
    """
    orders = 1 + 2 * np.diff(tables.first_end)  # operations of a term
    points, terms = _work(grid, entries)
    return float(points @ ((terms + tables.groups[:, 2]) @ orders + 2 * len(tables.members)))


def operations_of_fronts(grid, entries, tables) -> float:
    """The same if terms were summed with derivatives of the fixed samples one by one, by matrix products."""
    fronts = [
        len(set(tables.members[tables.first_member[first] : tables.first_member[last], 1].tolist()))
        for first, last in zip(tables.first_end, tables.first_end[1:], strict=False)
    ]
    points, terms = _work(grid, entries)
    return 2.0 * float(points @ ((terms + tables.groups[:, 2]) @ np.array(fronts)))


class ProductMeter:
    """Counts the operations of the products with two samples fixed, and the thread time of their loops."""

    def __init__(self):
        self.plain, self.operations, self.seconds = loops.sums, 0.0, 0.0

    def __call__(self, hermite, grid, pair, entries, tables):
        start = time.thread_time()
        result = self.plain(hermite, grid, pair, entries, tables)
        self.seconds += time.thread_time() - start
        self.operations += operations(grid, entries, tables)
        return result


def measure(activation: str, count: int, tolerance: float, runs: int) -> None:
    K = kernel(count)
    _, first, _ = timed(lambda: four_legs(activation, K, tolerance=tolerance))
    meter = ProductMeter()
    loops.sums = meter
    results = [timed(lambda: four_legs(activation, K, tolerance=tolerance)) for _ in range(runs)]
    loops.sums = meter.plain
    averages, best, processor = min(results, key=lambda result: result[1])
    subset = np.sort(np.random.default_rng(1).permutation(count)[:8])
    exact = four_legs(activation, K[np.ix_(subset, subset)], tolerance=tolerance / 1000)
    error = max(
        np.abs(average.value[np.ix_(*[subset] * 4)] - exact[family].value).max()
        for family, average in averages.items()
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    speed = meter.operations / meter.seconds
    print(
        f"{count:4d} {tolerance:8.0e} {first:9.2f} {best:8.3f} {processor:8.3f} {speed / 1e9:8.1f} "
        f"{speed / large_product_speed():8.2f} {error:9.1e} {memory:8.2f}",
        flush=True,
    )


def main() -> None:
    activation = sys.argv[1] if len(sys.argv) > 1 else "tanh"
    print(f"{activation}, K = 1.7 x x^T / 16 + 0.01, all six families, seconds")
    print("   N      tol     first     best      cpu  GFlop/s fraction     error  peak GB")
    for case in CASES:
        measure(activation, *case)


if __name__ == "__main__":
    main()
