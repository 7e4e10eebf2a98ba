"""Networks with orthogonal weights against order 1/n: sampled tensors, and trained ensembles.

    python -m benchmarks.tensors.sampled_orthogonal                 everything, about five minutes of one core
    python -m benchmarks.tensors.sampled_orthogonal --only trained  one section; the others stay as they are
    python -m benchmarks.tensors.sampled_orthogonal --quick         small sizes, a check of this script

Fixed before any result was seen: widths 16, 24, 32, 48 and 64; a fit of second degree in 1/n to the tensors,
whose constant is compared; the largest pull over all different entries must be below 3.5, and Gaussian
weights must be excluded by V, F and B. Trained networks (tanh, two hidden layers, 20 steps, widths 16, 32 and
64): n times the difference from infinite width, a fit of first degree, pulls below 4. Tables go to
results/sampled_orthogonal.md.
"""

import argparse
import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np

import finitewidth as fw
from benchmarks.harness import say
from benchmarks.provenance import stamp
from finitewidth.experiment.scaling import fall_with_width

RESULTS = Path(__file__).parent / "results" / "sampled_orthogonal.md"
WIDTHS, DEGREE, LARGEST = (16, 24, 32, 48, 64), 2, 3.5
NAMES = ("V", "F", "B", "D", "A", "G1", "H1")
INPUTS = np.array([[0.9, -0.4, 0.6, 0.2], [0.3, 1.0, -0.7, 0.8], [-0.5, 0.6, 0.9, -0.3]])


class Case(NamedTuple):
    """A network of every width n, as multiples of n where numbers are negative."""

    name: str
    shape: tuple[int, ...]
    activation: str
    inputs: int
    weights: str | tuple[str, ...]
    members: int

    def network(self, n: int) -> fw.MLP:
        widths = [-w * n if w < 0 else w for w in self.shape]
        return fw.MLP(widths, self.activation, 0.1, 1.3, 0.5, 1.2, weights=self.weights)

    def X(self, n: int) -> np.ndarray:
        """The same kernel whatever the number of components."""
        n_0 = self.network(n).widths[0]
        return np.tile(INPUTS[: self.inputs], (1, n_0 // 4))


CASES = (
    Case("tanh, three layers", (4, -1, -1, 3), "tanh", 2, "orthogonal", 8000),
    Case("gelu, four layers, a Gaussian readout", (4, -1, -1, -1, 3), "gelu", 2,
         ("orthogonal", "orthogonal", "orthogonal", "gaussian"), 8000),
    Case("relu, three layers, three inputs", (4, -1, -1, 3), "relu", 3, "orthogonal", 6000),
    Case("tanh, more inputs than neurons, a wider layer", (-2, -1, -2, 3), "tanh", 2, "orthogonal", 6000),
)  # fmt: skip


def law(net: fw.MLP, X: np.ndarray) -> dict[str, np.ndarray]:
    return {name: getattr(fw.solve(net, X, tensors=("V", "F", "B", "D", "A")).output, name) for name in NAMES}


def measured(case: Case, n: int, members: int) -> dict[str, fw.Estimate]:
    net, X = case.network(n), case.X(n)
    sampled = fw.sample_statistics(net, X, members, n, tensors=NAMES[:5])
    out, below = fw.solve(net, X, order=0).output, net.widths[-2]
    found = {name: getattr(sampled, name) for name in NAMES[:5]}
    for name, seen, limit in (("G1", sampled.G, out.K), ("H1", sampled.H, out.Theta)):
        found[name] = fw.Estimate(below * (seen.value - limit), below * seen.stderr)
    return found


def different(array: np.ndarray) -> np.ndarray:
    """Entries that are not equal to others by the symmetry of pairs."""
    count, rank = len(array), array.ndim
    places = [p for p in itertools.product(range(count), repeat=rank) if p[0] <= p[1] and p[-2] <= p[-1]]
    return array[tuple(np.array(places).T)]


def compared(case: Case, quick: bool) -> list[tuple]:
    widths = WIDTHS[:4] if quick else WIDTHS
    seen = [measured(case, n, 400 if quick else case.members) for n in widths]
    n, rows = widths[-1], []
    exact = law(case.network(n), case.X(n))
    gaussian = law(case.network(n).replace(weights="gaussian"), case.X(n))
    for name in NAMES:
        fall = fall_with_width(widths, [one[name] for one in seen], tuple(map(float, range(DEGREE + 1))))
        value, error = fall.coefficients[0], np.sqrt(fall.errors[0, 0])
        pulls, others = (different((value - one[name]) / error) for one in (exact, gaussian))
        scale = np.abs(exact[name]).max()
        shown = (f"{100 * np.median(error) / scale:.2g} %", f"{np.sqrt(np.mean(pulls**2)):.2f}")
        rows.append((case.name, name, *shown, f"{np.abs(pulls).max():.2f}", f"{np.abs(others).max():.3g}"))
        say(" | ".join(rows[-1]))
    return rows


def trained(quick: bool) -> list[tuple]:
    X, Y, test = INPUTS[:2, :4], np.array([[0.8], [-0.6]]), INPUTS[2:]
    algorithm, rows, widths = fw.GradientDescent(0.1, steps=20), [], (16, 32, 64)
    together = np.concatenate([X, test])
    for weights in ("orthogonal", "gaussian"):
        made = lambda n, weights=weights: fw.MLP((4, n, n, 1), "tanh", C_W=1.3, weights=weights)  # noqa: E731
        seen: dict[str, list[fw.Estimate]] = {"mean": [], "variance": []}
        for n in widths:
            control = fw.control_variate(made(n), X, Y, together, algorithm)
            ensemble = fw.train_ensemble(
                made(n),
                X,
                Y,
                together,
                algorithm=algorithm,
                members=400 if quick else 20000,
                key=n,
                control=control,
            ).controlled
            infinite = fw.predict(made(n), X, Y, together, algorithm=algorithm, order=0)
            variance = fw.Estimate(*(np.einsum("aiai->ai", part) for part in ensemble.covariance))
            for name, one in (("mean", ensemble.mean), ("variance", variance)):
                seen[name].append(fw.Estimate(n * (one.value - getattr(infinite, name)), n * one.stderr))
        wide = 10**6
        limit = fw.predict(made(wide), X, Y, together, algorithm=algorithm, order=0)
        theory = fw.predict(made(wide), X, Y, together, algorithm=algorithm)
        for name, estimates in seen.items():
            fall = fall_with_width(widths, estimates, (0.0, 1.0))
            value, error = fall.coefficients[0].ravel(), np.sqrt(fall.errors[0, 0]).ravel()
            exact = wide * (getattr(theory, name) - getattr(limit, name)).ravel()
            for place in range(len(value)):
                where = f"{'training' if place < 2 else 'test'} input {place % 2 + 1}"
                pull = (value[place] - exact[place]) / error[place]
                cells = (f"{value[place]:.4f} ({error[place]:.4f})", f"{exact[place]:.4f}", f"{pull:.2f}")
                rows.append((weights, name, where, *cells))
    return rows


def table(header: str, rows: list[tuple]) -> str:
    names = header.split(" | ")
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (names, ["---"] * len(names), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("tensors", "trained"))
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    old = RESULTS.read_text() if RESULTS.exists() else ""
    sections = {}
    if asked.only != "trained":
        rows = [row for case in CASES for row in compared(case, asked.quick)]
        header = "network | tensor | error | rms pull | largest pull | largest pull of Gaussian weights"
        sections["Tensors"] = table(header, rows)
    if asked.only != "tensors":
        header = "weights | of outputs | where | measured (error) | order 1/n | pull"
        sections["Trained networks"] = table(header, trained(asked.quick))
    if asked.quick:
        return print("\n\n".join(sections.values()))
    for title in ("Tensors", "Trained networks"):
        if title not in sections and f"## {title}\n\n" in old:
            sections[title] = old.split(f"## {title}\n\n")[1].split("\n\n##")[0].strip()
    text = "\n\n".join(f"## {title}\n\n{body}" for title, body in sorted(sections.items()))
    RESULTS.write_text(f"# Orthogonal weights\n\n{stamp()}\n\n{text}\n")


if __name__ == "__main__":
    main()
