"""Problems whose orders behind 1/n are visible, and real networks that measure them at many widths.

    python -m benchmarks.extrapolation.problems [NAME ...]   all ensembles, half an hour of one core

Results go to results/widths.json as they come. Ensembles in it that are too small get the
networks that they lack, with a key of their own. Problems and judged widths were fixed before any
extrapolation was seen: two because they are examples, two for their outputs and depth, digits for their data,
and two because narrow networks, with other keys, show that order 1/n misses 40 percent of its correction
there. Numbers of networks were raised twice for the orders of the first, when its errors were known.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import residuals
import trained_outputs
from sklearn.datasets import load_digits

import finitewidth as fw
from benchmarks.provenance import commit
from benchmarks.training.trained_networks import TARGETS, X

FILE = Path(__file__).parent / "results" / "widths.json"
KEY = 20261119
ONE_INPUT = np.array([[-2.5], [0.5], [2.5]])
BATCH = 125  # networks; one program serves any number of batches


@dataclass(frozen=True)
class Problem:
    """A learning problem for networks of any width, and how many networks of each width measure it."""

    name: str
    net: Callable[[int], fw.Network]
    data: tuple[np.ndarray, np.ndarray, np.ndarray]
    algorithm: fw.GradientDescent
    members: dict[int, int]


def _mlp(inputs: int, hidden: int, outputs: int, activation: str, **options) -> Callable[[int], fw.Network]:
    return lambda n: fw.MLP((inputs, *[n] * hidden, outputs), activation, **options)


def _digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six training and two test images of zeros and ones, of mean square one."""
    images, labels = load_digits(n_class=2, return_X_y=True)
    images = images / np.sqrt(np.mean(images**2, axis=1, keepdims=True))
    targets = np.where(labels == 0, 2.0, -2.0)[:, None]
    return images[:6], targets[:6], images[6:8]


def problems() -> list[Problem]:
    three = X[:3], TARGETS, X[3:]
    return [
        Problem(
            "one input",  # that of examples/trained_outputs.py with targets twice as large
            _mlp(1, 2, 1, "tanh", C_b=0.3, C_W=1.5),
            (trained_outputs.X, 2 * trained_outputs.Y, ONE_INPUT),
            trained_outputs.ALGORITHM,
            {32: 76_000, 48: 216_000, 64: 132_000, 96: 32_000, 128: 192_000, 256: 48_000},
        ),
        Problem(
            "residuals",
            _mlp(3, 1, 1, "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5),
            residuals.DATA,
            residuals.ALGORITHM,
            {n: 256_000 for n in (16, 24, 32, 48, 64, 96, 128, 256)},
        ),
        Problem(
            "gelu, two outputs",
            _mlp(3, 2, 2, "gelu", C_b=0.1, C_W=1.8, lambda_b=0.5),
            (three[0], 3 * three[1], three[2]),
            fw.GradientDescent(0.12, 12),
            {64: 8_000, 128: 8_000, 256: 8_000},
        ),
        Problem(
            "four layers",
            _mlp(3, 3, 1, "tanh", C_b=0.1, C_W=1.4, lambda_b=0.5),
            (three[0], 2 * three[1][:, :1], three[2]),
            fw.GradientDescent(0.08, 30),
            {64: 6_000, 128: 4_000, 256: 3_000},
        ),
        Problem(
            "digits",
            _mlp(64, 2, 1, "tanh", C_b=0.1, C_W=1.3, lambda_b=0.2),
            _digits(),
            fw.GradientDescent(0.05, 30),
            {64: 6_000, 128: 4_000, 256: 3_000},
        ),
        Problem(
            "large targets",  # one input again
            _mlp(1, 2, 1, "tanh", C_b=0.3, C_W=1.5),
            (trained_outputs.X, 3 * trained_outputs.Y, ONE_INPUT),
            trained_outputs.ALGORITHM,
            {64: 16_000, 128: 8_000, 256: 6_000},
        ),
        Problem(
            "large targets, four layers",
            _mlp(1, 3, 1, "tanh", C_b=0.3, C_W=1.5),
            (trained_outputs.X, 3 * trained_outputs.Y, ONE_INPUT),
            fw.GradientDescent(0.047, 40),
            {64: 8_000, 128: 5_000, 256: 3_000},
        ),
    ]


def trained(problem: Problem, width: int, members: int, before: int = 0) -> fw.records.Ensemble:
    """Networks with the control variate, others than those of an ensemble that was trained before."""
    net = problem.net(width)
    return fw.train_ensemble(
        net,
        *problem.data,
        algorithm=problem.algorithm,
        members=members,
        key=KEY + width + 1000 * before,
        control=fw.control_variate(net, *problem.data, problem.algorithm),
        run=fw.Run(batch_size=BATCH, progress=False),
    )


def measured(problem: Problem, width: int, before: int) -> dict:
    """Means and variances with their errors, and processor seconds after compilation."""
    trained(problem, width, BATCH)  # compiles
    start = time.process_time()
    ensemble = trained(problem, width, problem.members[width] - before, before)
    seconds = time.process_time() - start
    controlled = ensemble.controlled
    variance = [np.einsum("aiai->ai", part) for part in controlled.covariance]
    return {
        "members": ensemble.members,
        "seconds": seconds,
        "mean": [part.tolist() for part in controlled.mean],
        "variance": [part.tolist() for part in variance],
        "commit": commit(),
    }


def merged(first: dict, second: dict) -> dict:
    """Two ensembles of the same problem together, weighted by their numbers of networks."""
    members = [one["members"] for one in (first, second)]
    weights = np.array(members) / sum(members)
    both = {"members": sum(members), "seconds": first["seconds"] + second["seconds"]}
    for name in ("mean", "variance"):
        values, errors = (np.array([first[name][i], second[name][i]]) for i in (0, 1))
        value = np.einsum("w,w...->...", weights, values)
        error = np.sqrt(np.einsum("w,w...->...", weights**2, errors**2))
        both[name] = [value.tolist(), error.tolist()]
    return {**both, "commit": second["commit"]}


def main() -> None:
    warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    names = sys.argv[1:]
    for problem in (one for one in problems() if one.name in names or not names):
        of_problem = results.setdefault(problem.name, {})
        for width, members in problem.members.items():
            old = of_problem.get(str(width))
            before = 0 if old is None else old["members"]
            if before >= members:
                continue
            new = measured(problem, width, before)
            of_problem[str(width)] = new if old is None else merged(old, new)
            FILE.write_text(json.dumps(results, indent=1))
            print(f"{problem.name}, width {width}: {of_problem[str(width)]['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
