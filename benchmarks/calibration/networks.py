"""Real networks for the calibration of error bars: one file of measured means and variances.

    python -m benchmarks.calibration.networks           all problems, half an hour of one core
    python -m benchmarks.calibration.networks --again   more networks where standard errors are not small yet
    python -m benchmarks.calibration.networks --fresh   the problems that judge, those of fresh.py

Results go to benchmarks/calibration/results/networks.npz as they come; problems in it are not run again. The
second round looks at standard errors and predictions alone, never at what networks leave over: it brings the
standard error of the mean down to a third of s S / 3 (`predictions.py`), as far as its work allows.
"""

import dataclasses
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import finitewidth as fw
from benchmarks.calibration.problems import COUNT, Case, case, fresh_cases, members_for

FILE = Path(__file__).parent / "results" / "networks.npz"
KEY = 20261118
AGAIN_WORK = 4e11
AGAIN = "_again"


def measured(one: Case, key: int) -> dict[str, np.ndarray]:
    """Means and variances of trained networks on the test inputs, with standard errors."""
    control = fw.control_variate(one.net, *one.problem, one.algorithm)
    ensemble = fw.train_ensemble(
        one.net,
        *one.problem,
        algorithm=one.algorithm,
        members=one.members,
        key=key,
        control=control,
        method=fw.Stepping(tolerance=1e-6),  # of gradient flow
    )
    controlled = ensemble.controlled
    mean = controlled.mean
    variance, error = (np.einsum("aiai->ai", part) for part in controlled.covariance)
    return {
        "mean": mean.value,
        "mean_stderr": mean.stderr,
        "variance": variance,
        "variance_stderr": error,
        "members": np.array([ensemble.members, ensemble.diverged]),
    }


def again(one: Case, first: dict[str, np.ndarray]) -> Case | None:
    """The same problem with the networks that its standard error still lacks, or None."""
    prediction = fw.predict(one.net, *one.problem, algorithm=one.algorithm)
    size = sum(np.abs(part) for part in prediction.contributions.values())
    expected = float(np.sqrt(np.mean(size**2)) * size.max() / np.abs(one.Y_train).max()) / 3
    stderr = float(np.sqrt(np.mean(first["mean_stderr"] ** 2)))
    missing = int(first["members"][0]) * ((3 * stderr / expected) ** 2 - 1)
    members = int(min(missing, members_for(one, AGAIN_WORK)) // 500 * 500)
    return dataclasses.replace(one, members=members) if members >= 500 else None


def main() -> None:
    measures = dict(np.load(FILE)) if FILE.exists() else {}
    warnings.simplefilter("ignore")
    second = "--again" in sys.argv
    cases = fresh_cases() if "--fresh" in sys.argv else map(case, range(COUNT))
    for one in cases:
        number, start = one.number, time.process_time()
        if second and f"{number}_mean" in measures:
            first = {name: measures[f"{number}_{name}"] for name in ("mean_stderr", "members")}
            one = again(one, first)
        name = f"{number}{AGAIN}" if second else f"{number}"
        if one is None or f"{name}_mean" in measures:
            continue
        results = measured(one, KEY + number + (1000 if second else 0))
        measures |= {f"{name}_{key}": value for key, value in results.items()}
        np.savez_compressed(FILE, **measures)
        print(f"{name}: {one.net!r}, {one.members} members, {time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
