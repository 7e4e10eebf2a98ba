"""The run of `finitewidth solve` without arguments, and the example that `--example` prints."""

from pathlib import Path

import numpy as np

from finitewidth.interface.runs.run_files import TrainingRun, training_run

MEMBERS = 6000
CLASSES = {1: 1.0, 7: -1.0}  # digit and target
TRAINED, TESTED = 4, 3  # images of each digit


def example() -> str:
    """A complete, commented run file."""
    return Path(__file__).with_name("example.toml").read_text(encoding="utf-8")


def embedded() -> TrainingRun:
    """A critical tanh network that learns handwritten ones and sevens."""
    X, digits = _digits()
    rows = [np.flatnonzero(digits == digit) for digit in CLASSES]
    train = np.concatenate([row[:TRAINED] for row in rows])
    test = np.concatenate([row[TRAINED : TRAINED + TESTED] for row in rows])
    targets = np.array([[CLASSES[digit]] for digit in digits])
    tables = {
        "network": {"widths": [X.shape[1], 96, 96, 1], "activation": "tanh", "critical": True},
        "data": {
            "train_inputs": X[train],
            "train_targets": targets[train],
            "test_inputs": X[test],
            "test_targets": targets[test],
        },
        "training": {"algorithm": "gradient_descent", "learning_rate": 0.15, "steps": 12},
        "theory": {"order": 1},
        "ensemble": {"members": MEMBERS, "key": 0},
    }
    return training_run(
        tables,
        Path(),
        "default",
        "the embedded run",
        source="handwritten ones (target 1) and sevens (target -1) of the scikit-learn digits",
        labels=tuple(str(digit) for digit in digits[test]),
    )


def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Centred pixels of mean square one, and the digits that they show."""
    from sklearn.datasets import load_digits

    pixels, digits = map(np.asarray, load_digits(return_X_y=True))
    chosen = np.isin(digits, list(CLASSES))
    centred = pixels[chosen] - pixels[chosen].mean(axis=0)
    return centred / np.sqrt(np.mean(centred**2)), digits[chosen]
