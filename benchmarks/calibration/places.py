"""Random learning problems that ask at three places: on training points, beside them, and far from them.

Problems are numbered: those below JUDGES choose the constants of error bars, the others judge them. Activations
may differ from layer to layer and hidden layers may have unequal widths. A near point lies 0.05 to 0.3 of the
typical distance of training inputs away from one of them, in a random direction. Targets of wide networks are
larger by the square root of width/32: what order 1/n neglects could not be seen otherwise.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

import finitewidth as fw

SEED = 20261119
JUDGES = 10_000  # the first number of a problem that judges
ACTIVATIONS = {"tanh": 1.3, "gelu": 1.9, "sin": 1.2, "swish": 1.9, "erf": 1.0, "softplus": 1.5}  # and C_W
WIDTHS = (16, 16, 24, 24, 32, 32, 48, 64)
WIDE = (96, 128, 256)  # of every sixth problem that judges
USUAL_WIDTH = 32
NEAR = (0.05, 0.3)  # of the typical distance of training inputs
PLACES = ("training", "near", "far")


@dataclass(frozen=True)
class Problem:
    """A network, its data and its training, and test inputs at three places."""

    number: int
    net: fw.MLP
    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray  # training inputs, then near ones, then far ones
    place: np.ndarray  # of each test input, an index into PLACES
    algorithm: fw.GradientDescent | fw.GradientFlow
    data: str
    steps: float  # of the training of one network, about

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.X, self.Y, self.X_test


def problem(number: int) -> Problem:
    rng = np.random.default_rng([SEED, number])
    net_of, width = _network(rng, number)
    points, outputs = int(rng.integers(1, 7)), int(rng.integers(1, 3))
    data = str(rng.choice(["random", "random", "digits", "diabetes"]))
    X, Y = _data(data, points + 3, outputs, rng)
    if number >= JUDGES:
        Y = Y * max(1.0, np.sqrt(width / USUAL_WIDTH))
    X, Y, far = X[:points], Y[:points], X[points:]
    near = _near(X, rng)
    net = net_of(X.shape[1], outputs)
    largest = fw.textbook.spectrum(net, X).eigenvalues.max()
    progress = float(np.exp(rng.uniform(np.log(1.5), np.log(60))))  # largest eigenvalue times the time
    if rng.random() < 0.15:
        algorithm, steps = fw.GradientFlow(time=progress / largest), 16 * progress
    else:
        rate = float(rng.uniform(0.3, 0.95))
        steps = max(2, round(progress / rate))
        algorithm = fw.GradientDescent(rate / largest, steps)
    place = np.repeat([0, 1, 2], [len(X), len(near), len(far)])
    return Problem(number, net, X, Y, np.concatenate([X, near, far]), place, algorithm, data, steps)


def _network(rng: np.random.Generator, number: int):
    """A network without its numbers of inputs and outputs, and its first hidden width."""
    hidden = int(rng.integers(1, 6))
    width = int(rng.choice(WIDE if number >= JUDGES and number % 6 == 5 else WIDTHS))
    widths = [width] * hidden
    if rng.random() < 0.5:
        widths = [int(round(width * rng.choice([0.75, 1.0, 1.5]))) for _ in widths]
    same = rng.random() < 0.4
    names = [str(name) for name in rng.choice(list(ACTIVATIONS), 1 if same else hidden)]
    names = names * hidden if same else names
    scale, C_b, lambda_b = rng.uniform(0.8, 1.2), rng.choice([0.0, 0.1, 0.3]), rng.choice([0.1, 0.5])
    C_W = [1.0 * scale, *(scale * ACTIVATIONS[name] for name in names)]

    def net(inputs: int, outputs: int) -> fw.MLP:
        return fw.MLP((inputs, *widths, outputs), names, C_b=float(C_b), C_W=C_W, lambda_b=float(lambda_b))

    return net, width


def _near(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Three inputs beside training inputs."""
    gaps = np.linalg.norm(X[:, None] - X, axis=2)
    typical = np.median(gaps[gaps > 0]) if len(X) > 1 else np.linalg.norm(X)
    beside = X[rng.integers(0, len(X), 3)]
    directions = rng.standard_normal(beside.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return beside + directions * typical * rng.uniform(*NEAR, (3, 1))


def _data(kind: str, count: int, outputs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs whose squared length is about the number of components, and targets of order one."""
    if kind == "random":
        X = rng.standard_normal((count, int(rng.integers(1, 7))))
        return X, rng.standard_normal((count, outputs))
    if kind == "digits":
        digits = load_digits(n_class=max(outputs, 2))
        rows = rng.choice(len(digits.data), count, replace=False)
        X = digits.data[rows] / np.sqrt(np.mean(digits.data[rows] ** 2, axis=1, keepdims=True))
        return X, (digits.target[rows][:, None] == np.arange(outputs)) - 0.5
    bunch = load_diabetes()
    rows = rng.choice(len(bunch.data), count, replace=False)
    y = (bunch.target[rows] - bunch.target.mean()) / bunch.target.std()
    return bunch.data[rows] / bunch.data.std(axis=0), np.stack([y, np.tanh(y)], axis=1)[:, :outputs]
