"""What order 1/n leaves over of the mean of "one input", in fresh networks that are wide enough.

    python -m benchmarks.extrapolation.first_coefficient [ROUNDS]  about 100 processor seconds for each round
    python -m benchmarks.extrapolation.first_coefficient 0         only the fits, to all networks there are

The question is the coefficient a_1 in a_1/n + a_2/n^2 + a_3/n^3, which should vanish. Fixed before any of
these networks was trained: widths from 64 on, where a term a_4/n^4 of the size that narrower networks show
(a_4 = -4.9e4, results/widths.md) moves a_1 by a third of its standard error, 0.03 of 0.09;
numbers of networks that nearly minimise this error for a given processor time; keys of their own. A run
comes in rounds, each with the same share of every width, so that it may end at any time.
Results go to results/first_coefficient.json as they come, fits to first_coefficient.md.

Fixed before fits to these networks were seen, for the first test input:

1. theory is right if a_1 is within 3 standard errors of zero in three fits: of three terms to the fresh
   networks, of three terms to all networks of width 64 and more, and of four terms to all networks;
2. standard errors are right if old and fresh networks of the same widths agree: the chi square of their
   differences has a probability above 0.01, and none is above 3;
3. widths were too small for three terms if 1 and 2 hold, a_2, a_3 and a_4 without a_1 describe all widths
   (probability above 0.01), and a_1 of three terms moves towards zero as narrow networks are left out.

After the first 20 rounds a_1 was within 3 standard errors in all three fits and below zero in each. Fixed
before rounds 21 to 40, which double the fresh networks: the three fits again; and a ratio
(c/n) (1 + p/n) / (1 + q/n), three numbers too, whose c in a fit to all networks is within 2 standard errors
of theory's coefficient. A series that changes its sign from order to order is better summed up than broken
off; this form was chosen with the first 20 rounds in sight.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import chi2

from benchmarks.extrapolation.problems import BATCH, fw, merged, problems
from benchmarks.extrapolation.problems import FILE as OLD
from benchmarks.provenance import commit, stamp
from finitewidth.experiment.scaling import Fall, fall_with_width

FILE = Path(__file__).parent / "results" / "first_coefficient.json"
KEY = 271828
ROUNDS = 40
ROUND = {64: 8_000, 96: 16_000, 128: 4_000, 256: 8_000, 384: 1_200}  # networks


def measured(width: int, number: int) -> dict:
    """One round of one width: means and variances with the control variate, and processor seconds."""
    problem = problems()[0]
    net = problem.net(width)
    start = time.process_time()
    ensemble = fw.train_ensemble(
        net,
        *problem.data,
        algorithm=problem.algorithm,
        members=ROUND[width],
        key=KEY + width + 1000 * number,
        control=fw.control_variate(net, *problem.data, problem.algorithm),
        run=fw.Run(batch_size=BATCH, progress=False),
    )
    controlled = ensemble.controlled
    parts = {
        "mean": controlled.mean,
        "variance": [np.einsum("aiai->ai", part) for part in controlled.covariance],
    }
    return {
        "members": ensemble.members,
        "seconds": time.process_time() - start,
        **{name: [part.tolist() for part in estimate] for name, estimate in parts.items()},
        "commit": commit(),
    }


def ensembles() -> dict[str, dict[int, dict]]:
    """Old networks, fresh ones, and both."""
    old = {int(n): one for n, one in json.loads(OLD.read_text())[problems()[0].name].items()}
    fresh = {int(n): one for n, one in json.loads(FILE.read_text())["widths"].items()}
    every = {
        n: merged(old[n], fresh[n]) if n in old and n in fresh else (old | fresh)[n] for n in old | fresh
    }
    return {"old": old, "fresh": fresh, "all": dict(sorted(every.items()))}


def first_order() -> tuple[np.ndarray, np.ndarray]:
    """Infinite width and the coefficient of 1/n, for each test input."""
    wide, problem = 2**20, problems()[0]
    theory = fw.predict(problem.net(wide), *problem.data, algorithm=problem.algorithm)
    limit = theory.infinite_width.mean
    return limit[:, 0], wide * (theory.mean - limit)[:, 0]


def remainder(one: dict, n: int, theory: tuple[np.ndarray, np.ndarray]) -> fw.Estimate:
    value, stderr = (np.array(part)[:, 0] for part in one["mean"])
    return fw.Estimate(value - theory[0] - theory[1] / n, stderr)


def fit_table(seen: dict[str, dict], theory) -> list[str]:
    lines = [
        "| networks | widths | terms | a_1, x = -2.5 | over its error | chi square / freedom | probability | "
        "over its error, x = 0.5 | x = 2.5 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    cases = [(name, least, (1, 2, 3)) for name in seen for least in (32, 48, 64, 96)]
    cases += [("all", least, orders) for orders in ((2, 3, 4), (1, 2, 3, 4)) for least in (32, 48, 64)]
    cases += [("all", least, (2, 3)) for least in (32, 64, 96)]
    for name, least, orders in cases:
        widths = [n for n in sorted(seen[name]) if n >= least]
        if least < min(seen[name]) or len(widths) < len(orders):
            continue
        fall = fall_with_width(widths, [remainder(seen[name][n], n, theory) for n in widths], orders)
        terms = ", ".join(f"a_{k}" for k in orders)
        lines.append(f"| {name} | {widths[0]} to {widths[-1]} | {terms} | {_first_cells(fall)} |")
    return lines


def ratio_table(seen: dict[str, dict], theory) -> list[str]:
    """What theory lacks of the coefficient c in (c/n) (1 + p/n) / (1 + q/n), for each test input."""
    lines = ["| networks | widths | c minus theory, x = -2.5 | chi square / freedom | x = 0.5 | x = 2.5 |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    for name, least in (("fresh", 64), ("all", 32), ("all", 48), ("all", 64)):
        widths = np.array([n for n in sorted(seen[name]) if n >= least])
        rest = [remainder(seen[name][n], n, theory) for n in widths]
        fits = [
            _ratio(widths, [(one.value[i], one.stderr[i]) for one in rest], theory[1][i]) for i in range(3)
        ]
        shown = [f"{found:+.3f} ± {error:.3f}" for found, error, _ in fits]
        good = f"{fits[0][2]:.1f} / {len(widths) - 3}"
        lines.append(
            f"| {name} | {widths[0]} to {widths[-1]} | {shown[0]} | {good} | {shown[1]} | {shown[2]} |"
        )
    return lines


def _ratio(widths: np.ndarray, rest: list[tuple], known: float) -> tuple[float, float, float]:
    """c minus the known coefficient, its standard error, and chi square."""
    value, stderr = np.array(rest).T * widths
    found = least_squares(
        lambda c: (
            (known + c[0] - (known + value) * (1 + c[2] / widths) + c[1] / widths)
            / (stderr * (1 + c[2] / widths))
        ),
        (0.0, known * 5.0, 30.0),
        x_scale=(1.0, 10.0, 10.0),
    )
    error = np.linalg.inv(found.jac.T @ found.jac)[0, 0] ** 0.5
    return float(found.x[0]), float(error), float(2 * found.cost)


def _first_cells(fall: Fall) -> str:
    chi = float(fall.chi_square[0])
    good = f"{chi:.1f} / {fall.freedom} | " + (f"{chi2.sf(chi, fall.freedom):.3f}" if fall.freedom else "")
    if fall.orders[0] != 1:
        return f"0 | | {good} | |"
    error = np.sqrt(fall.errors[0, 0])
    pulls = [f"{pull:+.1f}" for pull in fall.coefficients[0] / error]
    return f"{fall.coefficients[0][0]:+.3f} ± {error[0]:.3f} | {pulls[0]} | {good} | {pulls[1]} | {pulls[2]}"


def agreement_table(seen: dict[str, dict], theory) -> list[str]:
    """Old and fresh networks of the same widths."""
    lines = ["| width | old | fresh | difference over its error, x = -2.5 | x = 0.5 | x = 2.5 |"]
    lines.append("| --- | --- | --- | --- | --- | --- |")
    pulls = []
    for n in sorted(seen["old"].keys() & seen["fresh"].keys()):
        a, b = (remainder(seen[name][n], n, theory) for name in ("old", "fresh"))
        pulls.append((a.value - b.value) / np.hypot(a.stderr, b.stderr))
        shown = (f"{one.value[0]:+.6f} ± {one.stderr[0]:.6f}" for one in (a, b))
        lines.append(f"| {n} | {' | '.join(shown)} | " + " | ".join(f"{p:+.1f}" for p in pulls[-1]) + " |")
    chi = np.sum(np.square(pulls), axis=0)
    worth = [f"{one:.1f} / {len(pulls)}, {chi2.sf(one, len(pulls)):.2f}" for one in chi]
    return [*lines, f"| chi square / freedom, probability | | | {' | '.join(worth)} |"]


def report() -> str:
    seen, theory = ensembles(), first_order()
    numbers = [
        f"{name} " + ", ".join(f"{seen[name][n]['members']} of {n}" for n in sorted(seen[name]))
        for name in ("old", "fresh")
    ]
    parts = [
        "# The term a_1/n behind order 1/n, one input",
        f"Written by `python -m benchmarks.extrapolation.first_coefficient` on {stamp()}. Means of trained "
        f"networks minus theory through order 1/n, fitted with a_1/n + a_2/n^2 + ...; "
        f"theory has {theory[1][0]:+.4f} as the coefficient of 1/n at x = -2.5. "
        f"Networks by width: {'; '.join(numbers)}.",
        "\n".join(fit_table(seen, theory)),
        "## A ratio instead of a sum",
        "\n".join(ratio_table(seen, theory)),
        "## Old and fresh networks",
        "\n".join(agreement_table(seen, theory)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
    results = json.loads(FILE.read_text()) if FILE.exists() else {"rounds": 0, "widths": {}}
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    while results["rounds"] < rounds:
        for width in ROUND:
            old, new = results["widths"].get(str(width)), measured(width, results["rounds"])
            results["widths"][str(width)] = new if old is None else merged(old, new)
        results["rounds"] += 1
        FILE.write_text(json.dumps(results, indent=1))
        print(f"round {results['rounds']}: {time.process_time():.0f} s", flush=True)
    text = report()
    print(text)
    FILE.with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
