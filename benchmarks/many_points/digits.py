"""Order 1/n for 300 digits of all ten classes against trained networks: mean, variance, loss and accuracy.

    python -m benchmarks.many_points.digits --store DIR  theory and networks, about an hour on two free cores
    python -m benchmarks.many_points.digits --quick      few points and networks, a check of this script

Gradient descent with learning rate 1 / l_max; tanh, two hidden layers, 100 test digits. Finished parts stay
in the store, and a second run goes on from there. Results: benchmarks/many_points/results/digits.md and
digits.json beside it, from which examples/many_digits.py draws.

Theory: n times the shifts are sampled at one width. At other widths they differ at order 1/n, which is beyond
the order of the prediction. Networks: one ensemble for each width, recorded at the start and after each
number of steps. The part L z of the initial outputs, which training keeps at infinite width, is the control
variate: its mean is zero, and its variance is measured on many more networks that are not trained.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.many_points.speed import RESULTS, digits, largest_eigenvalue, network, rms
from benchmarks.provenance import stamp

POINTS, HELD_OUT = 300, 100
MEMBERS = {64: 96, 128: 96, 256: 72}
STEPS = (100, 1000)
SAMPLED_AT = 128  # the width at which the theory is sampled
TOLERANCES = {100: (0.03, 0.12), 1000: (0.05, 0.15)}  # of mean and variance
UNTRAINED = 2000  # networks
DRAWS = 2000  # of the predicted Gaussian, for its accuracy


def theory(data, steps: int, store: Path) -> dict[str, np.ndarray]:
    """n times the shifts of mean and variance with their standard errors, and infinite width."""
    import finitewidth as fw

    X, Y, X_test, _ = data
    net = network(SAMPLED_AT)
    algorithm = fw.GradientDescent(1 / largest_eigenvalue(net, X), steps)
    results = {}
    for what, tolerance in zip(("mean", "variance"), TOLERANCES.get(steps, (0.2, 0.5)), strict=True):
        results[what] = fw.predict(
            net, X, Y, X_test, algorithm=algorithm,
            method=fw.Sampling(budget=1e6, tolerance=tolerance, variance=what == "variance"),
            run=fw.Run(store / f"{what}_{SAMPLED_AT}_{steps}.zarr", progress=False),
        )  # fmt: skip
    mean, spread, infinite = results["mean"], results["variance"], results["mean"].infinite_width
    n = SAMPLED_AT
    return {
        "infinite": infinite.mean, "infinite_variance": infinite.output_variance,
        "shift": n * (mean.mean - infinite.mean), "shift_error": n * mean.stderr,
        "spread": n * (spread.output_variance - infinite.output_variance),
        "spread_error": n * spread.output_variance_stderr,
    }  # fmt: skip


def trained(data, width: int, members: int, stops, store: Path) -> np.ndarray:
    """Outputs of members at the start and after each number of steps, (members, record, sample, output)."""
    import finitewidth as fw

    store.mkdir(exist_ok=True, parents=True)
    finished = store / f"networks_{width}.npy"
    if finished.exists():
        return np.load(finished)
    X, Y, X_test, _ = data
    net = network(width)
    algorithm = fw.GradientDescent(1 / largest_eigenvalue(net, X), max(stops))
    ensemble = fw.train_ensemble(
        net,
        X,
        Y,
        X_test,
        algorithm=algorithm,
        members=members,
        key=1,
        record=fw.Record(at=(0, *sorted(stops)[:-1]), members=True),
        run=fw.Run(batch_size=min(24, members), store=store / f"networks_{width}.zarr", progress=False),
    )
    assert ensemble.diverged == 0
    np.save(finished, ensemble.member_outputs())
    return np.load(finished)


def more_networks(data, chosen) -> str:
    """Other networks, of any width, beside the predictions that were written."""
    import finitewidth as fw

    X, Y, X_test, _ = data
    count, stops, rows = len(X), sorted(chosen.steps), []
    written = {row["steps"]: row for row in json.loads((RESULTS / "digits.json").read_text())}
    for width in chosen.widths:
        net, rate = network(width), 1 / largest_eigenvalue(network(width), X)
        ensemble = fw.train_ensemble(
            net,
            X,
            Y,
            X_test,
            algorithm=fw.GradientDescent(rate, stops[-1]),
            members=chosen.more,
            key=3,
            record=fw.Record(at=(0, *stops[:-1]), members=True),
            run=fw.Run(
                batch_size=min(24, chosen.more // 4),
                store=Path(chosen.store) / f"more_{width}_{stops[-1]}.zarr",
                progress=False,
            ),
        )
        assert ensemble.diverged == 0
        z = ensemble.member_outputs()
        for record, steps in enumerate(stops, start=1):
            infinite = fw.predict(net, X, Y, X_test, algorithm=fw.GradientDescent(rate, steps), order=0).mean
            members = (z[:, record] - np.asarray(control_of(data, width, steps)(z[:, 0])))[:, count:]
            scale = written[steps]["width"] / width
            shift, noise = (
                scale * np.reshape(written[steps]["scatter"][name], infinite.shape)
                for name in ("predicted", "predicted_error")
            )
            part = line(shift, noise, members - infinite, None)
            part |= judged(infinite, infinite + shift, members.mean(axis=0), noise, _error(members))
            rows.append({"width": width, "steps": steps, "members": len(z), "mean": part})
    return slope_table(rows, "mean")


def untrained(data, width: int, count: int) -> np.ndarray:
    """Initial outputs of other networks, (count, sample, output)."""
    import jax

    import finitewidth as fw

    net, X = network(width), jax.numpy.asarray(np.concatenate([data[0], data[2]]))
    outputs = jax.jit(jax.vmap(lambda key: fw.empirical.apply(net, fw.empirical.initialize(net, key), X)))
    keys = jax.random.split(jax.random.key(2), count)
    return np.concatenate([np.asarray(outputs(part)) for part in np.array_split(keys, max(1, count // 50))])


def compared(data, predicted: dict, width: int, steps: int, z: np.ndarray, first, start) -> dict:
    """Slopes of measured on predicted shifts, pulls, and errors of real networks beside both orders."""
    Y_test, count = data[3], len(data[0])
    kept = control_of(data, width, steps)
    control, z = np.asarray(kept(first))[:, count:], z[:, count:]
    rest = z - control
    mean, error = rest.mean(axis=0), rest.std(axis=0, ddof=1) / np.sqrt(len(rest))
    # each member's share of the variance: its square minus that of the control, linear in the mean
    shares = (z**2 - control**2 - 2 * mean * rest + mean**2 + error**2).mean(axis=2)
    still = np.asarray(kept(start))[:, count:]
    squares = (still**2).mean(axis=2)
    variance = shares.mean(axis=0) + squares.mean(axis=0)
    variance_error = np.hypot(_error(shares), _error(squares))
    shift, noise = predicted["shift"] / width, predicted["shift_error"] / width
    spread, spread_noise = predicted["spread"] / width, predicted["spread_error"] / width
    below = predicted["infinite"], predicted["infinite_variance"]
    row = {"width": width, "steps": steps, "members": len(z), "points": count}
    row["mean"] = line(shift, noise, rest - below[0], None) | judged(
        below[0], below[0] + shift, mean, noise, error
    )
    row["variance"] = line(spread, spread_noise, shares - below[1], squares) | judged(
        below[1], below[1] + spread, variance, spread_noise, variance_error
    )
    row["scatter"] = {
        "predicted": shift.ravel(), "predicted_error": noise.ravel(),
        "measured": (mean - below[0]).ravel(), "measured_error": error.ravel(),
        "variance": spread, "variance_error": spread_noise,
        "measured_variance": variance - below[1], "measured_variance_error": variance_error,
    }  # fmt: skip
    answers = {
        "infinite": gaussian(below[0], below[1], Y_test),
        "order_1": gaussian(below[0] + shift, below[1] + spread, Y_test),
    }
    answers["measured"], answers["measured_error"] = [], []
    for score in (_losses, _right):  # trained networks minus kept ones, plus many more kept ones
        parts = score(z, Y_test) - score(below[0] + control, Y_test), score(below[0] + still, Y_test)
        answers["measured"].append(sum(part.mean() for part in parts))
        answers["measured_error"].append(np.hypot(*(_error(part) for part in parts)))
    return row | {"answers": answers}


def control_of(data, width: int, steps: int):
    """The part of initial outputs (members, sample, output) that training keeps at infinite width."""
    import jax

    import finitewidth as fw

    net, (X, Y, X_test, _) = network(width), data
    algorithm = fw.GradientDescent(1 / largest_eigenvalue(net, X), steps)
    return jax.jit(jax.vmap(fw.control_variate(net, X, Y, X_test, algorithm).function))


def _losses(z: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Half the squared error of one digit, for each member."""
    return ((z - targets) ** 2).sum(axis=2).mean(axis=1) / 2


def _right(z: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """The share of digits whose largest output is the right one, for each member."""
    return (z.argmax(axis=2) == targets.argmax(axis=1)).mean(axis=1)


def _error(members: np.ndarray) -> np.ndarray:
    return members.std(axis=0, ddof=1) / np.sqrt(len(members))


def line(shift: np.ndarray, noise: np.ndarray, members: np.ndarray, others: np.ndarray | None) -> dict:
    """The slope of the measured shift: the noise of the prediction is taken out of its square.

    Every member has a slope of its own, whose scatter gives the standard error whatever the correlations
    between outputs are. `others` are untrained networks, whose mean is added.
    """
    size = (shift**2 - noise**2).sum()
    slopes = (members * shift).reshape(len(members), -1).sum(axis=1) / size
    slope, error = slopes.mean(), _error(slopes)
    if others is not None:
        more = (others * shift).sum(axis=1) / size
        slope, error = slope + more.mean(), np.hypot(error, _error(more))
    return {"slope": slope, "slope_error": error}


def judged(infinite, order_1, measured, theory_error, network_error) -> dict:
    """Pulls at both orders, and the sizes of shift and errors."""
    both = np.hypot(theory_error, network_error)
    pulls = (order_1 - measured) / both
    return {
        "pulls": rms(pulls), "largest_pull": np.abs(pulls).max(),
        "pulls_infinite": rms((infinite - measured) / network_error), "shift": rms(order_1 - infinite),
        "theory_error": rms(theory_error), "network_error": rms(network_error),
    }  # fmt: skip


def gaussian(mean: np.ndarray, variance: np.ndarray, targets: np.ndarray) -> list[float]:
    """Expected loss and accuracy of independent Gaussian outputs with one variance for each input."""
    loss = ((mean - targets) ** 2).sum(axis=1).mean() / 2 + mean.shape[1] * variance.mean() / 2
    noise = np.random.default_rng(0).standard_normal((DRAWS, *mean.shape))
    drawn = mean + np.sqrt(np.maximum(variance, 0.0))[:, None] * noise
    return [loss, (drawn.argmax(axis=2) == targets.argmax(axis=1)).mean()]


# --- tables -------------------------------------------------------------------------------------------


def slope_table(rows: list[dict], what: str) -> str:
    lines = [
        f"| width | steps | networks | slope of the {what} | pulls at infinite width, rms | at order 1/n, "
        "rms | largest | shift, rms | error of the theory | of the networks |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        part = row[what]
        lines.append(
            f"| {row['width']} | {row['steps']} | {row['members']} | {part['slope']:.3f} ± "
            f"{part['slope_error']:.3f} | {part['pulls_infinite']:.1f} | {part['pulls']:.2f} | "
            f"{part['largest_pull']:.2f} | {part['shift']:.4f} | {part['theory_error']:.4f} | "
            f"{part['network_error']:.4f} |"
        )
    return "\n".join(lines)


def answer_table(rows: list[dict]) -> str:
    lines = [
        "| width | steps | test loss: infinite width | order 1/n | measured | accuracy: infinite width | "
        "order 1/n | measured |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        a, error = row["answers"], row["answers"]["measured_error"]
        cells = [f"{a['infinite'][k]:.4f} | {a['order_1'][k]:.4f} | {a['measured'][k]:.4f} ± {error[k]:.4f}"
                 for k in (0, 1)]  # fmt: skip
        lines.append(f"| {row['width']} | {row['steps']} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def plain(value):
    """Arrays as rounded lists."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (np.ndarray, list)):
        return [float(f"{one:.5g}") for one in np.ravel(value)]
    return float(value) if isinstance(value, np.floating) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--store", default="digits", help="where finished parts are kept")
    parser.add_argument("--widths", type=int, nargs="+", default=sorted(MEMBERS))
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS)
    parser.add_argument("--more", type=int, help="train as many other networks and print their table")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    store = Path(chosen.store)
    store.mkdir(exist_ok=True, parents=True)
    stops = (10, 30) if chosen.quick else STEPS
    data = digits(*((20, 8) if chosen.quick else (POINTS, HELD_OUT)))
    if chosen.more:
        print(more_networks(data, chosen))
        return
    started, rows = time.perf_counter(), []
    predictions = {one: theory(data, one, store) for one in stops if chosen.quick or one in chosen.steps}
    for width in chosen.widths:
        outputs = trained(data, width, 4 if chosen.quick else MEMBERS[width], stops, store)
        start = untrained(data, width, 20 if chosen.quick else UNTRAINED)
        rows += [
            compared(data, predicted, width, one, outputs[:, 1 + stops.index(one)], outputs[:, 0], start)
            for one, predicted in predictions.items()
        ]
    rows.sort(key=lambda row: (row["steps"], row["width"]))
    tables = "\n\n".join([slope_table(rows, "mean"), slope_table(rows, "variance"), answer_table(rows)])
    print(tables, f"{time.perf_counter() - started:.0f} s", sep="\n\n")
    if not chosen.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "digits.json").write_text(json.dumps([plain(row) for row in rows]))
        text = f"# Order 1/n for 300 digits against trained networks\n\n{stamp()}\n\n{tables}\n"
        (RESULTS / "digits.md").write_text(text)


if __name__ == "__main__":
    main()
