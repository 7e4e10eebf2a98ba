"""Networks with kinks extrapolated in the width, and the coefficient of n^(-1/2) itself at large widths.

    python -m benchmarks.extrapolation.kinked           about forty minutes of one core
    python -m benchmarks.extrapolation.kinked --quick   small sizes, a check of this script; prints only

Fixed before any result was seen: from widths 64, 128, 256 and 512 to 2048, relu on three problems, mean and
variance at two test inputs each, pulls below 3 with the errors of both sides. The coefficient with one hidden
layer: networks of width 65536 without a fit, within three standard errors of 2 percent of the shift, whose
next order is about 8/sqrt(n) = 3 percent of it. Tables go to results/kinked.md.
"""

import argparse
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.harness import say
from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results" / "kinked.md"
WIDTHS, WIDE = (64, 128, 256, 512), 2048
RANDOM = np.random.default_rng(5)
X, Y, X_TEST = RANDOM.normal(size=(3, 3)), RANDOM.normal(size=(3, 1)), RANDOM.normal(size=(2, 3))
PROBLEMS = {
    "one hidden layer, 10 steps": (lambda n: fw.MLP((3, n, 1), "relu", C_W=2.0), fw.GradientDescent(0.1, 10)),
    "one hidden layer, biases, 40 steps": (
        lambda n: fw.MLP((3, n, 1), "relu", C_b=0.2, C_W=1.6), fw.GradientDescent(0.1, 40)
    ),
    "two hidden layers, 10 steps": (
        lambda n: fw.MLP((3, n, n, 1), "relu", C_W=2.0), fw.GradientDescent(0.05, 10)
    ),
}  # fmt: skip


def extrapolated(quick: bool) -> list[tuple]:
    widths, wide = ((8, 12, 16, 24), 48) if quick else (WIDTHS, WIDE)
    rows = []
    for name, (made, algorithm) in PROBLEMS.items():
        deep = "two" in name
        members, many = (40, 40) if quick else ((1500, 150) if deep else (6000, 3000))
        options = {"algorithm": algorithm, "key": 3}
        there = fw.extrapolate(made(wide), X, Y, X_TEST, widths=widths, members=members, **options)
        control = fw.control_variate(made(wide), X, Y, X_TEST, algorithm)
        networks = fw.train_ensemble(
            made(wide), X, Y, X_TEST, members=many, control=control, algorithm=algorithm, key=4
        ).controlled
        variance = fw.Estimate(*(np.einsum("aiai->ai", part) for part in networks.covariance))
        for what, fit, seen in (("mean", there.mean, networks.mean), ("variance", there.variance, variance)):
            limit = getattr(there.infinite_width, what)
            for place in range(2):
                a, b, c = (part.ravel()[place] for part in (fit.value, seen.value, limit))
                s, t = fit.stderr.ravel()[place], seen.stderr.ravel()[place]
                pull = (a - b) / np.hypot(s, t)
                rows.append(
                    (name, what, f"{c:.5f}", f"{a:.5f} ({s:.5f})", f"{b:.5f} ({t:.5f})", f"{pull:.2f}")
                )
        say(f"{name}: done")
    return rows


def coefficient(quick: bool) -> list[tuple]:
    n, members = (256, 40) if quick else (65536, 1500)
    net, algorithm = fw.MLP((3, n, 1), "relu", C_W=2.0), fw.GradientDescent(0.1, 10)
    theory = fw.kink_correction(net, X, Y, X_TEST, algorithm=algorithm, points=64 if quick else 2048)
    control = fw.control_variate(net, X, Y, X_TEST, algorithm)
    seen = fw.train_ensemble(
        net, X, Y, X_TEST, members=members, control=control, algorithm=algorithm, key=6
    ).controlled.mean
    root, rows = np.sqrt(n), []
    for place in range(2):
        shift = root * (seen.value - theory.infinite_width).ravel()[place]
        error = root * seen.stderr.ravel()[place]
        value, own = (part.ravel()[place] for part in theory.coefficient)
        pull = (shift - value) / np.hypot(np.hypot(error, own), 0.02 * value)
        rows.append((place + 1, f"{shift:.4f} ({error:.4f})", f"{value:.4f} ({own:.4f})", f"{pull:.2f}"))
    return rows


def table(header: str, rows: list[tuple]) -> str:
    names = header.split(" | ")
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (names, ["---"] * len(names), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    first = "problem | of outputs | infinite width | extrapolated to 2048 | networks of width 2048 | pull"
    second = "test input | sqrt(n) times the shift at n = 65536 | coefficient | pull"
    text = f"## Extrapolated\n\n{table(first, extrapolated(quick))}\n\n"
    text += f"## The coefficient\n\n{table(second, coefficient(quick))}\n"
    print(text) if quick else RESULTS.write_text(f"# Networks with kinks\n\n{stamp()}\n\n{text}")


if __name__ == "__main__":
    main()
