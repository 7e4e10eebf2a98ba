"""Order 1/n late in training: few digits, widths up to 512.

    python -m benchmarks.many_points.late_training           about half an hour of two cores
    python -m benchmarks.many_points.late_training --quick   few networks and steps, a check of this script

After 1000 steps the shift of 300 digits is beyond the range of the expansion at width 256. Whether order 1/n
itself is right then is asked on few digits: pairs of digits that look alike and are of different classes, so
that small modes must be learned, as in a large data set. The theory is deterministic there.

The shift is measured in two parts. A network minus its own linearization (its NTK frozen at the start) has
the dNTK and ddNTKs alone; the linearization minus infinite width has the mean NTK and its fluctuation. Slopes
of the measured parts on the predicted ones must tend to one at infinite width.
"""

import argparse
import functools
import warnings
from pathlib import Path

import numpy as np

from benchmarks.many_points.digits import _error, control_of, trained
from benchmarks.many_points.speed import RESULTS, largest_eigenvalue, network, rms
from benchmarks.provenance import keep, stamp

STEPS = (100, 1000)
RIVALS, RIVAL_TESTS = 12, 4
UNTRAINED = {128: 4800, 256: 2400}  # networks for the part of the NTK, which needs no training
MEMBERS = {64: 960, 96: 720, 128: 600, 192: 360, 256: 240, 512: 192}
PARTS = {"dNTK and ddNTKs": ("dntk", "ddntk_1", "ddntk_2"), "NTK": ("ntk_mean", "ntk_fluctuation")}
TEXT = """{points} digits in pairs that look alike and are of different classes, {tests} test digits, ten
outputs, tanh, two hidden layers, learning rate 1 / l_max; deterministic route. The rest is the measured mean
minus order 1/n; its share of the predicted shift is the slope of the measured shift minus one. If order 1/n
is right, n times the rest vanishes at infinite width: the last rows are constants of fits in 1/n."""
TEXT_PARTS = """Slopes of the measured on the predicted parts of the shift. A network minus its own
linearization is compared with the dNTK and ddNTKs, the linearization minus infinite width with the NTK.
Networks whose linearization diverges (an eigenvalue of their NTK above twice the largest mean one) are left
out; their number is stated. The last rows are limits of fits with 1/n and 1/n^2; one is expected."""


@functools.cache
def rivals(points: int = RIVALS, tests: int = RIVAL_TESTS):
    """Digits in pairs, one at random and the nearest one of another class; then test digits."""
    from sklearn.datasets import load_digits

    X, labels = map(np.asarray, load_digits(return_X_y=True))
    X, Y = (X - X.mean()) / X.std(), np.eye(10)[labels] - 0.1
    order = np.random.default_rng(4242).permutation(len(X))
    chosen: list[int] = []
    for one in order[: points // 2]:
        distance = ((X - X[one]) ** 2).sum(axis=1)
        distance[labels == labels[one]] = np.inf
        distance[chosen] = np.inf
        chosen += [int(one), int(np.argmin(distance))]
    rest = [one for one in order[points // 2 :] if one not in chosen][:tests]
    return X[chosen], Y[chosen], X[rest], Y[rest]


@functools.cache
def _prepared():
    """Statistics of the problem, which serve all widths and numbers of steps, and the largest eigenvalue."""
    import finitewidth as fw

    X, Y, X_test, _ = rivals()
    statistics = fw.prepare(network(min(MEMBERS)), X, Y, X_test, method=fw.Tensors(tolerance=1e-6))
    return statistics, largest_eigenvalue(network(), X)


def predicted(width: int, steps: int):
    """The prediction through order 1/n."""
    import finitewidth as fw

    statistics, top = _prepared()
    return statistics.with_width(width).predict(fw.GradientDescent(1 / top, steps))


def shifts(store: Path, members: dict[int, int], stops: tuple[int, ...]) -> str:
    """What order 1/n leaves of the mean, over widths, and its limit at infinite width."""
    data = rivals()
    X = data[0]
    left: dict[int, list[dict]] = {steps: [] for steps in stops}
    for width, count in members.items():
        outputs = trained(data, width, count, stops, store)[:count]
        for record, steps in enumerate(stops, start=1):
            order_1 = predicted(width, steps)
            control = np.asarray(control_of(data, width, steps)(outputs[:, 0]))
            rest = (outputs[:, record] - control)[:, len(X) :]
            left[steps].append({"width": width, "members": count} | left_over(width, order_1, rest))
    return "\n\n".join(table(steps, rows) for steps, rows in left.items())


def left_over(n: int, order_1, rest: np.ndarray) -> dict:
    """n times the measured mean minus order 1/n, (M, n_L), and its share of the predicted shift."""
    from finitewidth import Estimate

    shift = order_1.mean - order_1.infinite_width.mean
    gaps = rest - order_1.mean
    shares = (gaps * shift).sum(axis=(1, 2)) / (shift**2).sum()
    return {
        "shift": n * rms(shift), "entries": Estimate(n * gaps.mean(axis=0), n * _error(gaps)),
        "share": Estimate(shares.mean(), _error(shares)),
    }  # fmt: skip


def table(steps: int, rows: list[dict]) -> str:
    from finitewidth.experiment.scaling import fall_with_width

    lines = [
        f"After {steps} steps:",
        "",
        "| width | networks | n x predicted shift, rms | n x rest, rms | its standard error | rest / shift |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        value, error = row["entries"]
        share = f"{row['share'].value:+.3f} ± {row['share'].stderr:.3f}"
        cells = f"{row['shift']:.2f} | {rms(value):.2f} | {rms(error):.2f} | {share}"
        lines.append(f"| {row['width']} | {row['members']} | {cells} |")
    widths = [row["width"] for row in rows]
    for orders in ((0, 1), (0, 1, 2)):
        if len(widths) <= len(orders):
            continue
        share = fall_with_width(widths, [row["share"] for row in rows], orders)
        entries = fall_with_width(widths, [row["entries"] for row in rows], orders)
        pulls = entries.coefficients[0] / np.sqrt(entries.errors[0, 0])
        lines.append(
            f"| infinite, terms up to 1/n^{orders[-1]} | | | {rms(entries.coefficients[0]):.2f} | "
            f"{rms(np.sqrt(entries.errors[0, 0])):.2f} | {share.coefficients[0]:+.3f} ± "
            f"{share.errors[0, 0] ** 0.5:.3f}; chi square {share.chi_square:.1f} of {share.freedom}; pulls "
            f"of {pulls.size} entries {rms(pulls):.2f} rms, largest {np.abs(pulls).max():.1f} |"
        )
    return "\n".join(lines)


# --- the shift in two parts -----------------------------------------------------------------------------


def linearized(data, width: int, members: int, stops: tuple[int, ...]) -> np.ndarray:
    """Outputs at the start and trained with a frozen NTK, (members, record, sample, output)."""
    import jax
    import jax.numpy as jnp

    from finitewidth.experiment.directions import ntk
    from finitewidth.experiment.sampling import draw_members, outputs

    X, Y, X_test, _ = data
    net, inputs = network(width), jnp.asarray(np.concatenate([X, X_test]))
    eta, training = 1 / largest_eigenvalue(net, X), Y.size

    def one(parameters):
        z = outputs(net, parameters, inputs)
        H = ntk(net, parameters, inputs).transpose(1, 0, 3, 2).reshape(z.size, z.size)
        values, vectors = jnp.linalg.eigh(H[:training, :training])
        residual = vectors.T @ (z[: len(X)] - jnp.asarray(Y)).reshape(-1)
        moves = [
            H[:, :training] @ (vectors @ ((1 - (1 - eta * values) ** t) / values * residual)) for t in stops
        ]
        return jnp.stack([z, *(z - move.reshape(z.shape) for move in moves)])

    batch = jax.jit(lambda numbers: jax.vmap(one)(draw_members(net, jax.random.key(1), numbers)))
    numbers = np.array_split(np.arange(members, dtype=np.uint32), max(1, members // 24))
    return np.concatenate([np.asarray(batch(part)) for part in numbers])


def slopes(store: Path, members: dict[int, int], stops: tuple[int, ...]) -> str:
    """Slopes of both parts of the shift over widths, and their limits."""
    data = rivals()
    X, Y = data[:2]
    rows: dict[tuple[int, str], list] = {}
    for width, count in members.items():
        outputs = trained(data, width, count, stops, store)[:count]
        frozen = linearized(data, width, count, stops)[:, 1:]
        for record, steps in enumerate(stops):
            order_1 = predicted(width, steps)
            control = np.asarray(control_of(data, width, steps)(outputs[:, 0]))
            stable = np.abs(frozen[:, record]).max(axis=(1, 2)) < 10
            measured = (
                outputs[:, record + 1] - frozen[:, record],
                frozen[:, record] - control - np.concatenate([Y * 0, order_1.infinite_width.mean]),
            )
            for (name, parts), seen in zip(PARTS.items(), measured, strict=True):
                shift = sum(order_1.contributions[part] for part in parts)
                shares = (seen[stable, len(X) :] * shift).sum(axis=(1, 2)) / (shift**2).sum()
                row = (width, int(stable.sum()), int((~stable).sum()), width * rms(shift), shares)
                rows.setdefault((steps, name), []).append(row)
    return "\n\n".join(slope_table(steps, name, part) for (steps, name), part in rows.items())


def ntk_slopes(members: dict[int, int], stops: tuple[int, ...]) -> str:
    """Slopes of the part of the NTK, from networks that are not trained."""
    data = rivals()
    X = data[0]
    lines = ["| width | steps | networks | slope of the part of the NTK |", "|---:|---:|---:|---:|"]
    for width, count in members.items():
        start, *frozen = linearized(data, width, count, stops).swapaxes(0, 1)
        for steps, z in zip(stops, frozen, strict=True):
            order_1 = predicted(width, steps)
            shift = sum(order_1.contributions[part] for part in PARTS["NTK"])
            seen = (z - np.asarray(control_of(data, width, steps)(start)))[:, len(X) :]
            shares = ((seen - order_1.infinite_width.mean) * shift).sum(axis=(1, 2)) / (shift**2).sum()
            lines.append(f"| {width} | {steps} | {count} | {shares.mean():.3f} ± {_error(shares):.3f} |")
    return "\n".join(lines)


def slope_table(steps: int, name: str, rows: list) -> str:
    from finitewidth import Estimate
    from finitewidth.experiment.scaling import fall_with_width

    lines = [
        f"After {steps} steps, {name}:",
        "",
        "| width | networks | left out | n x predicted part, rms | slope |",
        "|---:|---:|---:|---:|---:|",
    ]
    estimates = [Estimate(shares.mean(), _error(shares)) for *_, shares in rows]
    for (width, count, out, size, _), (slope, error) in zip(rows, estimates, strict=True):
        lines.append(f"| {width} | {count} | {out} | {size:.2f} | {slope:.3f} ± {error:.3f} |")
    for orders in ((0, 1), (0, 1, 2)):
        if len(rows) > len(orders):
            fit = fall_with_width([row[0] for row in rows], estimates, orders)
            lines.append(
                f"| infinite, terms up to 1/n^{orders[-1]} | | | | {fit.coefficients[0]:.3f} ± "
                f"{fit.errors[0, 0] ** 0.5:.3f}; chi square {fit.chi_square:.1f} of {fit.freedom} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--store", default="digits/late", help="where trained networks are kept")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    members, stops = ({64: 6, 96: 6}, (10, 30)) if chosen.quick else (MEMBERS, STEPS)
    store = Path(chosen.store) / ("quick" if chosen.quick else "")
    wide = {n: count for n, count in members.items() if chosen.quick or n >= 128}  # narrower ones diverge
    untrained = {n: 6 for n in members} if chosen.quick else UNTRAINED
    text = "\n\n".join(
        [TEXT.format(points=RIVALS, tests=RIVAL_TESTS), shifts(store, members, stops), TEXT_PARTS,
         slopes(store, wide, stops), ntk_slopes(untrained, stops)]
    )  # fmt: skip
    print(text)
    if not chosen.quick:
        keep(RESULTS / "digits.md", "Late in training, few digits", f"{stamp()}\n\n{text}")


if __name__ == "__main__":
    main()
