"""Random learning problems whose remainder behind order 1/n is measured by real networks.

Problems are numbered. The first 64 are random. Others are drawn in the same way, but their widths are set
(`fresh_cases`, from the list that fresh.py has written), and they were fixed before any of their
networks was trained. Those below JUDGES have judged an earlier recipe of error bars and then helped to choose
the one in use, as the first 64 did; those from JUDGES on judge it.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

import finitewidth as fw

COUNT = 64
FRESH = Path(__file__).resolve().parent / "results" / "fresh.json"
ACTIVATIONS = ("tanh", "gelu", "sin", "swish", "erf", "softplus")
WIDTHS = (16, 16, 24, 24, 32, 32, 48, 48, 64, 96, 128, 256)
C_W = {"tanh": 1.3, "gelu": 1.9, "sin": 1.2, "swish": 1.9, "erf": 1.0, "softplus": 1.5}
# operations that the ensemble of one problem may take: lowered after the first nine, when they had taken
# three times as long as planned beside other programs, and before any result was looked at
WORK, EARLY_WORK, EARLY = 1.5e11, 5e11, 9
FIRST, FLOWS, LARGE_TARGETS = 10_000, 10_500, 11_000  # numbers of candidates that judge
JUDGES = FIRST
LARGER = (2, 5, 8, 11)  # thousands of problems whose targets are larger
USUAL_WIDTH = 32  # where targets of order one are large enough
FLOW = 4.0  # times as long as descent an adaptive step takes
ENOUGH = 4.0  # times width**3 networks: differences between networks fall as n**-1/2, remainders as n**-2


@dataclass(frozen=True)
class Case:
    """One problem: a network, its data and its training, and how many networks measure it."""

    number: int
    net: fw.Network
    X_train: np.ndarray
    Y_train: np.ndarray
    X_test: np.ndarray
    algorithm: fw.GradientDescent | fw.GradientFlow
    data: str
    members: int
    steps: float  # that the training of one network takes, about

    @property
    def judges(self) -> bool:
        return self.number >= JUDGES

    @property
    def problem(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.X_train, self.Y_train, self.X_test


def fresh_cases() -> list[Case]:
    """The problems that judge, or have judged an earlier recipe."""
    listed = json.loads(FRESH.read_text()) if FRESH.exists() else []
    return [case(one["number"], one["width"], one["members"]) for one in listed]


def case(number: int, width: int | None = None, members: int | None = None) -> Case:
    """A problem by its number; width and number of networks are drawn with it unless they are given."""
    rng = np.random.default_rng([20261118, number])
    name = str(rng.choice(ACTIVATIONS))
    depth, drawn = int(rng.integers(2, 6)), int(rng.choice(WIDTHS))
    width = drawn if width is None else width
    outputs, points = int(rng.integers(1, 4)), int(np.exp(rng.uniform(np.log(3), np.log(20.99))))
    kind = str(rng.choice(["random", "digits", "diabetes"]))
    X, Y = _data(kind, points + 3, outputs, rng)
    if number // 1000 in LARGER:
        Y = Y * np.sqrt(width / USUAL_WIDTH)
    scale = float(rng.uniform(0.8, 1.2))
    widths = (X.shape[1], *[width] * (depth - 1), outputs)
    net = fw.MLP(widths, name, C_b=float(rng.choice([0.0, 0.1, 0.3])), C_W=scale * C_W[name])
    net = _balanced(net, float(rng.choice([0.1, 0.5])))
    largest = fw.textbook.spectrum(net, X[:points]).eigenvalues.max()
    progress = float(np.exp(rng.uniform(np.log(4), np.log(60))))  # largest eigenvalue times the time
    if rng.random() < 0.25:
        algorithm, steps = fw.GradientFlow(time=progress / largest), 4 * FLOW * progress
    else:
        rate = float(rng.uniform(0.2, 0.9))
        steps = max(2, round(progress / rate))
        algorithm = fw.GradientDescent(rate / largest, steps)
    members = _members(number, net, points, steps) if members is None else members
    return Case(number, net, X[:points], Y[:points], X[points:], algorithm, kind, members, steps)


def _balanced(net: fw.Network, lambda_b: float) -> fw.Network:
    widths, layer = net.ladder.widths, net.layers[0]
    activation = net.activations[0]
    return fw.MLP(widths, activation, C_b=layer.C_b, C_W=layer.C_W, lambda_b=lambda_b)


def _data(kind: str, count: int, outputs: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs whose squared length is about the number of components, and targets of order one."""
    if kind == "random":
        X = rng.standard_normal((count, int(rng.integers(2, 9))))
        return X, rng.standard_normal((count, outputs))
    if kind == "digits":
        digits = load_digits(n_class=max(outputs, 2))
        rows = rng.choice(len(digits.data), count, replace=False)
        X = digits.data[rows]
        X = X / np.sqrt(np.mean(X**2, axis=1, keepdims=True))
        label = digits.target[rows]
        return X, (label[:, None] == np.arange(outputs)) - 0.5
    bunch = load_diabetes()
    rows = rng.choice(len(bunch.data), count, replace=False)
    X, y = bunch.data[rows] / bunch.data.std(axis=0), bunch.target[rows]
    y = (y - bunch.target.mean()) / bunch.target.std()
    return X, np.stack([y, y**2 / 2, np.tanh(y)], axis=1)[:, :outputs]


def _members(number: int, net: fw.Network, points: int, steps: float) -> int:
    """As many networks as the width asks for, or as the work allows."""
    work = EARLY_WORK if number < EARLY else WORK
    enough = ENOUGH * net.ladder.widths[1] ** 3
    return int(np.clip(min(work / _work_of_one(net, points, steps), enough), 1_000, 200_000) // 500 * 500)


def members_for(one: Case, work: float) -> int:
    """The number of networks of a problem that this work is enough for."""
    return int(work / _work_of_one(one.net, len(one.X_train), one.steps))


def _work_of_one(net: fw.Network, points: int, steps: float) -> float:
    """Products, activations and passes over memory of one network."""
    widths = net.ladder.widths
    weights = sum(a * b for a, b in zip(widths[:-1], widths[1:], strict=True))
    return steps * (6 * (points + 3) * weights + 30 * weights + 200 * (points + 3) * sum(widths))
