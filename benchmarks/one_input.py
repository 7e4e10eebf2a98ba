"""Orders of the mean of one problem over widths up to 256, from two parts with small standard errors.

    python benchmarks/one_input.py           trains what is missing, then writes the table
    python benchmarks/one_input.py --quick   few networks, a check of this script

The problem is that of examples/trained_outputs.py with targets twice as large, at x = -2.5. A network minus
its own linearization (the NTK of its start, frozen) differs little between networks; linearizations differ
more, but need no training and are cheap. The mean of networks is the sum of both means. Each part alone has
its own coefficient of 1/n in theory: dNTK and ddNTKs, mean NTK and its fluctuation.

Results go to benchmarks/results/one_input.json as they come, the table to one_input.md. Fixed beforehand:
fits of n times what is left over with a_1 + a_2/n + a_3/n^2 (and a_4/n^3 beside it), a_1 compatible with zero
within two standard errors, its error 0.06 or less.
"""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np
from extrapolation_problems import HERE, fw, problems
from linearized import linearized
from provenance import commit, stamp

from finitewidth.experiment.scaling import fall_with_width

FILE = HERE / "results" / "one_input.json"
KEY = 20261120
PARTS = {
    "networks minus linearizations": ("dntk", "ddntk_1", "ddntk_2"),
    "linearizations": ("ntk_mean", "ntk_fluctuation"),
}
TRAINED = {32: 24_000, 48: 24_000, 64: 24_000, 96: 24_000, 128: 24_000, 192: 16_000, 256: 12_000}
UNTRAINED = {32: 400_000, 48: 400_000, 64: 400_000, 96: 400_000, 128: 300_000, 192: 200_000, 256: 150_000}
ROUND = 2_000  # networks at a time
AT = 0  # the test input x = -2.5
PROBLEM = problems()[0]


def frozen(width: int, first: int, count: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Initial and linearly trained outputs of networks, (count, sample) each."""
    how, net = PROBLEM.algorithm, PROBLEM.net(width)
    numbers = np.arange(first, first + count)
    both = linearized(
        net,
        PROBLEM.data,
        how.learning_rate,
        (how.steps,),
        numbers,
        jax.random.key(key),
        batch=125,
        largest=1.5,
    )
    return both[:, 0, :, 0], both[:, 1, :, 0]


def nonlinear(width: int, count: int, key: int) -> np.ndarray:
    """Trained networks minus their linearizations on the test inputs, (count, test input)."""
    with tempfile.TemporaryDirectory() as folder:
        ensemble = fw.train_ensemble(
            PROBLEM.net(width), *PROBLEM.data, algorithm=PROBLEM.algorithm, members=count, key=key,
            batch_size=125, store=Path(folder) / "networks.zarr", keep_members=True, progress=False,
        )  # fmt: skip
        assert ensemble.diverged == 0
        outputs = ensemble.member_outputs()[:, -1, :, 0]
    return (outputs - frozen(width, 0, count, key)[1])[:, len(PROBLEM.data[0]) :]


def linear(width: int, count: int, key: int) -> np.ndarray:
    """Linearizations without the part of their initial outputs whose mean is zero, (count, test input)."""
    start, end = frozen(width, 0, count, key)
    kept = fw.control_variate(PROBLEM.net(width), *PROBLEM.data, PROBLEM.algorithm).function
    return (end - np.asarray(jax.vmap(kept)(start[:, :, None]))[:, :, 0])[:, len(PROBLEM.data[0]) :]


MEASURED = {"networks minus linearizations": (nonlinear, TRAINED), "linearizations": (linear, UNTRAINED)}


def add_round(row: dict, name: str, width: int) -> None:
    """One more round of networks, with a key of its own, in the sums of a part."""
    start, measure = time.process_time(), MEASURED[name][0]
    values = measure(width, ROUND, KEY + 1000 * width + row["rounds"] + 500 * (name == "linearizations"))
    row["rounds"] += 1
    row["sum"] = (np.array(row["sum"]) + values.sum(axis=0)).tolist()
    row["squares"] = (np.array(row["squares"]) + (values**2).sum(axis=0)).tolist()
    row["seconds"] += time.process_time() - start


def estimate(row: dict) -> fw.Estimate:
    count = row["rounds"] * ROUND
    mean = np.array(row["sum"]) / count
    variance = (np.array(row["squares"]) / count - mean**2) * count / (count - 1)
    return fw.Estimate(mean, np.sqrt(variance / count))


def measure(share: float, file: Path) -> dict:
    """Rounds until every part has the networks that were planned, narrow ones first."""
    results = json.loads(file.read_text()) if file.exists() else {}
    for width in TRAINED:
        for name, (_, members) in MEASURED.items():
            empty = {"rounds": 0, "sum": [0.0] * 3, "squares": [0.0] * 3, "seconds": 0.0}
            row = results.setdefault(name, {}).setdefault(str(width), empty)
            while row["rounds"] * ROUND < share * members[width]:
                add_round(row, name, width)
                row["commit"] = commit()
                file.write_text(json.dumps(results, indent=1))
            error = estimate(row).stderr[AT]
            print(f"{name}, {width}: {row['seconds']:.0f} s, n x error {width * error:.3f}", flush=True)
    return results


def theory() -> dict[str, float]:
    """Coefficients of 1/n of both parts and of the whole."""
    wide = 2**20
    prediction = fw.predict(PROBLEM.net(wide), *PROBLEM.data, algorithm=PROBLEM.algorithm, covariance=False)
    of = {name: float(part[AT, 0]) for name, part in prediction.contributions.items()}
    parts = {name: wide * sum(of[one] for one in names) for name, names in PARTS.items()}
    return {**parts, "whole": sum(parts.values()), "limit": float(prediction.infinite_width.mean[AT, 0])}


def left_over(results: dict, predicted: dict[str, float]) -> dict[str, dict[int, fw.Estimate]]:
    """n times what networks have beyond a_1/n of the theory, strictly expanded, by part and width."""
    rows: dict[str, dict[int, fw.Estimate]] = {name: {} for name in (*PARTS, "whole")}
    for width in TRAINED:
        seen = [estimate(results[name][str(width)]) for name in PARTS]
        both = [fw.Estimate(one.value[AT], one.stderr[AT]) for one in seen]
        both[1] = fw.Estimate(both[1].value - predicted["limit"], both[1].stderr)
        whole = fw.Estimate(both[0].value + both[1].value, np.hypot(both[0].stderr, both[1].stderr))
        for name, (value, error) in zip(rows, (*both, whole), strict=True):
            rows[name][width] = fw.Estimate(width * value - predicted[name], width * error)
    return rows


def tables(rows: dict[str, dict[int, fw.Estimate]], predicted: dict[str, float]) -> list[str]:
    names = list(rows)
    lines = [
        "| width | " + " | ".join(names) + " |",
        "| --- |" + " --- |" * len(names),
        "| theory, n to infinity | " + " | ".join(f"{predicted[name]:+.3f}" for name in names) + " |",
    ]
    for width in TRAINED:
        cells = (f"{predicted[n] + rows[n][width].value:+.3f} ± {rows[n][width].stderr:.3f}" for n in names)
        lines.append(f"| {width} | " + " | ".join(cells) + " |")
    fits = [
        "| part | widths | fit | a_1 that is left over | in standard errors | chi square / freedom |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in names:
        for lowest, orders in ((32, (0, 1, 2)), (48, (0, 1, 2)), (32, (0, 1, 2, 3))):
            widths = [n for n in TRAINED if n >= lowest]
            fall = fall_with_width(widths, [rows[name][n] for n in widths], orders)
            value, error = float(fall.coefficients[0]), float(fall.errors[0, 0]) ** 0.5
            shown = " + ".join(f"a_{k + 1}/n^{k + 1}" for k in orders)
            chi = f"{float(fall.chi_square):.1f} / {fall.freedom}"
            left = f"{value:+.3f} ± {error:.3f} | {value / error:+.1f}"
            fits.append(f"| {name} | from {lowest} | {shown} | {left} | {chi} |")
    return [*lines, "", *fits]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", fw.ExpansionWarning)
    if quick:
        with tempfile.TemporaryDirectory() as folder:
            results = measure(0.01, Path(folder) / "results.json")
    else:
        results = measure(1.0, FILE)
    predicted = theory()
    networks = ", ".join(f"{n}: {TRAINED[n]} and {UNTRAINED[n]}" for n in TRAINED)
    text = [
        "# Orders of the mean: one input, x = -2.5",
        f"Written by `python benchmarks/one_input.py` on {stamp()}. Numbers are n times the difference of "
        "real networks from infinite width, in two parts: trained networks minus their own linearizations "
        "(dNTK and ddNTKs in theory), and linearizations (mean NTK and its fluctuation). Trained and "
        f"untrained networks by width: {networks}.",
        "\n".join(tables(left_over(results, predicted), predicted)),
    ]
    print("\n\n".join(text))
    if not quick:
        (HERE / "results" / "one_input.md").write_text("\n\n".join(text) + "\n")


if __name__ == "__main__":
    main()
