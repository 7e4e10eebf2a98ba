"""The run of `finitewidth solve` without arguments, and the example that `--example` prints."""

from pathlib import Path

import numpy as np

from finitewidth.interface.runs.run_files import TrainingRun, training_run

MEMBERS = 6000
CLASSES = {1: 1.0, 7: -1.0}  # digit and target
TRAINED, TESTED = 4, 3  # images of each digit

EXAMPLE = """\
# A complete run for `finitewidth solve run.toml`. It runs as it stands.

[network]
widths = [2, 128, 128, 1]     # n_0, ..., n_L: inputs, hidden layers, outputs
activation = "tanh"           # or one for each hidden layer, such as ["tanh", "erf"]
critical = true               # critical C_b and C_W, and learning rates that let all layers learn equally.
                              # Instead of it, give numbers, each for all layers or one for each layer:
# C_b = 0.0                   #   variance of the biases
# C_W = 1.0                   #   variance of the weights, times the width of the layer before
# lambda_b = 1.0              #   learning rate of the biases
# lambda_W = 1.0              #   learning rate of the weights, times the width of the layer before

[data]                        # rows of numbers, or files beside this one with one sample on each line
train_inputs = [[1.0, 0.5], [-0.5, 1.5], [0.5, -1.0], [-1.0, -0.5]]   # or "X_train.csv"
train_targets = [1.0, -1.0, 0.5, -0.5]                                # or "Y_train.npy"
test_inputs = [[0.8, 0.0], [-0.2, 0.9], [0.0, -1.2]]                  # or "data.npz:X_test"
test_targets = [0.9, -0.6, 0.2]                                       # optional, shown beside the predictions

[training]
algorithm = "gradient_descent"   # or "gradient_flow" (time), "two_step"; at order 0 also "newton"
learning_rate = 0.1
steps = 20                       # without this key, training goes on to its end

[theory]                         # optional
order = 1                        # 0: infinite width; 1: with the correction of order 1/n
# method = "tensors"             # the default up to 64 training and test inputs
# tolerance = 1e-8               # of Gaussian averages; the default depends on the number of inputs
#
# method = "sampling"            # of neurons, for hundreds of training inputs; or "leg_by_leg"
# tolerance = 0.03               # standard error over the largest shift, rms; or samples = 100000
# variance = true                # also the spread between networks, which takes longer than the mean
# budget = 1800                  # seconds; what would take longer is refused
# key = 0                        # the same key gives the same samples

[ensemble]                       # optional; without this table no networks are trained
members = 2000
key = 0                          # the same key gives the same networks
# batch_size = 125               # or memory = 1e9

# [record]                       # optional, of the networks beside their outputs at the end
# at = [0, 10]                   # further keys: ntk = true, kernels = true

# [stepping]                     # optional, for training to its end and for gradient flow
# training_error = 1e-8          # further keys: max_steps = 100000, tolerance = 1e-8
"""


def embedded(members: int = MEMBERS) -> TrainingRun:
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
        "ensemble": {"members": members, "key": 0},
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
