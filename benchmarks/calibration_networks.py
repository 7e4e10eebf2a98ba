"""Real networks for the calibration of error bars: one file of measured means and variances.

    python benchmarks/calibration_networks.py           all problems, about an hour of two cores

Results go to benchmarks/results/calibration_networks.npz as they come; problems in it are not run again.
"""

import sys
import time
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # the finitewidth of this tree

from calibration_problems import COUNT, Case, case  # noqa: E402

import finitewidth as fw  # noqa: E402

FILE = HERE / "results" / "calibration_networks.npz"
KEY = 20261118


def measured(one: Case) -> dict[str, np.ndarray]:
    """Means and variances of trained networks on the test inputs, with standard errors."""
    control = fw.control_variate(one.net, *one.problem, one.algorithm)
    ensemble = fw.train_ensemble(
        one.net,
        *one.problem,
        algorithm=one.algorithm,
        members=one.members,
        key=KEY + one.number,
        control=control,
        tolerance=1e-6,  # of gradient flow
        progress=False,
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


def main() -> None:
    measures = dict(np.load(FILE)) if FILE.exists() else {}
    warnings.simplefilter("ignore")
    for number in range(COUNT):
        if f"{number}_mean" in measures:
            continue
        one, start = case(number), time.perf_counter()
        measures |= {f"{number}_{name}": value for name, value in measured(one).items()}
        np.savez_compressed(FILE, **measures)
        print(
            f"{number}: {one.net!r}, {one.members} members, {time.perf_counter() - start:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
