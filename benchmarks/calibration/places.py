"""Random learning problems that ask at three places: on training points, beside them, and far from them.

Problems are numbered. Those below JUDGES have chosen the form and the constants of error bars; the others
judge them. Activations may differ from layer to layer, and hidden layers may have unequal widths. A near
point lies 0.05 to 0.3 of the typical distance of training inputs away from one of them, in a random
direction. Of problems that judge, three have the same network and numbers of points, so that training is
compiled once; targets grow with the square root of width/32 beyond 32, since what order 1/n neglects could
not be seen otherwise.
"""

import functools
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

import finitewidth as fw

JUDGES = 10_000  # the first number of a problem that judges
TOGETHER = 3  # problems of one network
ACTIVATIONS = {"tanh": 1.3, "gelu": 1.9, "sin": 1.2, "swish": 1.9, "erf": 1.0, "softplus": 1.5}  # and C_W
WIDTHS = (16, 16, 24, 24, 32, 32, 48, 64)
WIDE = (96, 128, 256)  # of every sixth network
USUAL_WIDTH = 32
NEAR = (0.05, 0.3)  # of the typical distance of training inputs
PLACES = ("training", "near", "far")
TESTS = 3  # near points, and far points
WORK = 2e11  # operations that the networks of one problem may take
FEWEST, MOST = 4_000, 60_000  # networks

# widths, activations and training points of the problems that chose; number % 100 is the place here
CHOOSING = (
    ((3, 24, 1), ("gelu",), 4),
    ((3, 16, 16, 1), ("swish",) * 2, 3),
    ((3, 24, 16, 2), ("tanh", "gelu"), 4),
    ((3, 32, 32, 1), ("sin",) * 2, 1),
    ((3, 24, 24, 24, 1), ("softplus", "tanh", "erf"), 3),
    ((3, 16, 24, 16, 1), ("gelu",) * 3, 5),
    ((3, 32, 32, 32, 32, 1), ("tanh",) * 4, 3),
    ((3, 24, 24, 2), ("erf", "swish"), 2),
    ((3, 48, 32, 1), ("gelu",) * 2, 1),
    ((3, 20, 20, 20, 20, 20, 1), ("swish",) * 5, 2),
    ((3, 24, 24, 1), ("sin", "tanh"), 6),
    ((3, 32, 24, 1), ("softplus",) * 2, 3),
    ((3, 16, 16, 16, 1), ("gelu", "sin", "swish"), 1),
    ((3, 32, 2), ("tanh",), 6),
)
EACH = 7  # problems of each of these networks; the place is number % 100, and number // 100 counts them


@dataclass(frozen=True)
class Problem:
    """A network, its data and its training, and test inputs at three places."""

    number: int
    net: fw.MLP
    X: np.ndarray
    Y: np.ndarray
    X_test: np.ndarray  # training inputs, then near ones, then far ones
    algorithm: fw.GradientDescent | fw.GradientFlow
    data: str
    steps: float  # of the training of one network, about

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.X, self.Y, self.X_test

    @property
    def place(self) -> np.ndarray:
        """Of each test input, an index into PLACES."""
        return np.repeat([0, 1, 2], [len(self.X), TESTS, TESTS])

    @property
    def members(self) -> int:
        """The number of networks, by the work that one of them is."""
        widths, inputs = self.net.widths, len(self.X_test)
        weights = sum(a * b for a, b in zip(widths[:-1], widths[1:], strict=True))
        work = self.steps * (6 * inputs * weights + 30 * weights + 200 * inputs * sum(widths))
        return int(np.clip(WORK / work, FEWEST, MOST) // 1000 * 1000)


def problem(number: int) -> Problem:
    return _judging(number) if number >= JUDGES else _choosing(number)


def _choosing(number: int) -> Problem:
    rng, of_net = np.random.default_rng([777, number]), np.random.default_rng([778, number % 100])
    widths, names, points = CHOOSING[number % 100]
    net = _network(of_net, widths, names)
    X, Y = rng.standard_normal((points + TESTS, 3)), rng.standard_normal((points, widths[-1]))
    near = near_points(X[:points], rng)
    X_test = np.concatenate([X[:points], near, X[points:]])
    progress = float(np.exp(rng.uniform(np.log(1.5), np.log(50))))
    algorithm, steps = _descent(net, X[:points], progress, float(rng.uniform(0.4, 0.95)))
    return Problem(number, net, X[:points], Y, X_test, algorithm, "random", steps)


def _judging(number: int) -> Problem:
    of_net, rng = (np.random.default_rng([20261119, *key]) for key in ((number // TOGETHER, 0), (number, 1)))
    wide = number // TOGETHER % 6 == 5
    net_of, width = random_network(of_net, WIDE if wide else WIDTHS)
    points, outputs = int(of_net.integers(1, 7)), int(of_net.integers(1, 3))
    data, flows = str(of_net.choice(["random", "random", "digits", "diabetes"])), of_net.random() < 0.15
    X, Y = drawn_data(data, int(of_net.integers(1, 7)), points + TESTS, outputs, rng)
    Y = Y[:points] * max(1.0, np.sqrt(width / USUAL_WIDTH))
    X_test = np.concatenate([X[:points], near_points(X[:points], rng), X[points:]])
    net, X = net_of(X.shape[1], outputs), X[:points]
    progress = float(np.exp(rng.uniform(np.log(1.5), np.log(60))))  # largest eigenvalue times the time
    if flows:
        largest = fw.textbook.spectrum(net, X).eigenvalues.max()
        algorithm, steps = fw.GradientFlow(time=progress / largest), 16 * progress
    else:
        algorithm, steps = _descent(net, X, progress, float(rng.uniform(0.3, 0.95)))
    return Problem(number, net, X, Y, X_test, algorithm, data, steps)


def _descent(net: fw.MLP, X: np.ndarray, progress: float, rate: float) -> tuple[fw.GradientDescent, float]:
    """Descent at a rate over the largest eigenvalue; as many steps as `progress` takes."""
    steps = max(2, round(progress / rate))
    return fw.GradientDescent(rate / fw.textbook.spectrum(net, X).eigenvalues.max(), steps), steps


def _network(rng: np.random.Generator, widths, names) -> fw.MLP:
    scale, C_b, lambda_b = rng.uniform(0.8, 1.2), rng.choice([0.0, 0.1, 0.3]), rng.choice([0.1, 0.5])
    C_W = [scale, *(scale * {**ACTIVATIONS, "relu": 2.0}[name] for name in names)]
    return fw.MLP(widths, names, C_b=float(C_b), C_W=C_W, lambda_b=float(lambda_b))


def random_network(rng: np.random.Generator, widths, activations=tuple(ACTIVATIONS)):
    """A network without its numbers of inputs and outputs, and its width."""
    hidden, width = int(rng.integers(1, 6)), int(rng.choice(widths))
    unequal, same = rng.random() < 0.5, rng.random() < 0.4
    inner = [int(width * rng.choice([0.75, 1.0, 1.5])) if unequal else width for _ in range(hidden)]
    drawn = [str(name) for name in rng.choice(list(activations), hidden)]
    names = drawn[:1] * hidden if same else drawn
    seed = int(rng.integers(2**32))

    def net(inputs: int, outputs: int) -> fw.MLP:
        return _network(np.random.default_rng(seed), (inputs, *inner, outputs), names)

    return net, width


def near_points(X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Inputs beside training inputs."""
    gaps = np.linalg.norm(X[:, None] - X, axis=2)
    typical = np.median(gaps[gaps > 0]) if len(X) > 1 else np.linalg.norm(X)
    beside = X[rng.integers(0, len(X), TESTS)]
    directions = rng.standard_normal(beside.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return beside + directions * typical * rng.uniform(*NEAR, (TESTS, 1))


def drawn_data(
    kind: str, components: int, count: int, outputs: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs whose squared length is about the number of components, and targets of order one."""
    if kind == "random":
        return rng.standard_normal((count, components)), rng.standard_normal((count, outputs))
    if kind == "digits":
        digits = _digits(max(outputs, 2))
        rows = rng.choice(len(digits.data), count, replace=False)
        X = digits.data[rows] / np.sqrt(np.mean(digits.data[rows] ** 2, axis=1, keepdims=True))
        return X, (digits.target[rows][:, None] == np.arange(outputs)) - 0.5
    bunch = load_diabetes()
    rows = rng.choice(len(bunch.data), count, replace=False)
    y = (bunch.target[rows] - bunch.target.mean()) / bunch.target.std()
    return bunch.data[rows] / bunch.data.std(axis=0), np.stack([y, np.tanh(y)], axis=1)[:, :outputs]


@functools.cache
def _digits(classes: int):
    return load_digits(n_class=classes)
