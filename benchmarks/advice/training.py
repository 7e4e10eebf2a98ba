"""Many training runs of one network at once: seeds and learning rates are the leading axis of every array.

Float32 on one thread, as practitioners train. A run whose loss is no longer finite, or has grown to ten times
its start, has diverged; it is dropped, and the others go on.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits, make_classification
from torch.nn import functional

STEPS, BATCH = 80, 64
CHECKED = 5  # steps between two looks for runs that diverged
DIVERGED = 10.0  # times the loss at the start
FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "gelu": functional.gelu}


class Data(NamedTuple):
    """Inputs centred and scaled to a mean square of one, and their labels."""

    X: torch.Tensor
    labels: torch.Tensor
    X_test: torch.Tensor
    labels_test: torch.Tensor

    @property
    def classes(self) -> int:
        return int(self.labels.max()) + 1


def digits() -> Data:
    """1797 images of 64 pixels, 10 classes, of scikit-learn; 397 of them are held out."""
    return _split(*load_digits(return_X_y=True), held_out=397)


def clusters() -> Data:
    """A harder set: 10 classes of four clusters each in 16 of 64 directions, 1 percent mislabelled."""
    X, labels = make_classification(
        n_samples=4500,
        n_features=64,
        n_informative=16,
        n_redundant=8,
        n_classes=10,
        n_clusters_per_class=4,
        class_sep=2.0,
        flip_y=0.01,
        random_state=0,
    )
    return _split(X, labels, held_out=500)


def _split(X: np.ndarray, labels: np.ndarray, held_out: int) -> Data:
    order = np.random.default_rng(0).permutation(len(X))
    X, labels = X[order], labels[order]
    kept = len(X) - held_out
    X = X - X[:kept].mean(axis=0)
    X = torch.tensor(X / np.sqrt(np.mean(X[:kept] ** 2)), dtype=torch.float32)
    y = torch.tensor(labels)
    return Data(X[:kept], y[:kept], X[kept:], y[kept:])


DATA: dict[str, Callable[[], Data]] = {"digits": digits, "clusters": clusters}


# --- networks -----------------------------------------------------------------------------------------


@dataclass
class Start:
    """A network before training: parameters of one seed, and the factor on the learning rate of each."""

    weights: list[torch.Tensor]  # (fan-in, fan-out)
    biases: list[torch.Tensor]
    weight_rates: list[float]
    bias_rates: list[float]
    normalized: bool = False  # LayerNorm with gains and offsets behind each hidden layer
    skips: bool = False  # z + W sigma(z) instead of W sigma(z) between hidden layers
    gains: list[torch.Tensor] = field(default_factory=list)
    weight_decay: float = 0.01  # of AdamW, its default
    bias_decay: float = 0.01  # of biases and gains; PyTorch treats all parameters alike

    def parameters(self) -> list[torch.Tensor]:
        return [*self.weights, *self.biases, *self.gains]

    def rates(self) -> list[float]:
        return [*self.weight_rates, *self.bias_rates, *[1.0] * len(self.gains)]

    def decays(self) -> list[float]:
        others = len(self.biases) + len(self.gains)
        return [*[self.weight_decay] * len(self.weights), *[self.bias_decay] * others]


def forward(start: Start, parameters: list[torch.Tensor], activation: str, X: torch.Tensor) -> torch.Tensor:
    """Outputs of all runs, (runs, samples, classes), for inputs (runs, samples, n_0)."""
    L, sigma = len(start.weights), FUNCTIONS[activation]
    W, b, affine = parameters[:L], parameters[L : 2 * L], parameters[2 * L :]
    z = torch.baddbmm(b[0][:, None], X, W[0])
    for l in range(1, L):
        if start.normalized:
            z = functional.layer_norm(z, z.shape[-1:])
            z = torch.addcmul(affine[2 * l - 1][:, None], z, affine[2 * l - 2][:, None])
        new = torch.baddbmm(b[l][:, None], sigma(z), W[l])
        z = z + new if start.skips and l < L - 1 else new
    return z


def cross_entropy(z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over samples, one number for each run."""
    return (torch.logsumexp(z, -1) - z.gather(-1, labels[..., None])[..., 0]).mean(-1)


def squared(z: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Half the squared distance to the one-hot label, the mean over samples, one number for each run."""
    return 0.5 * (z - functional.one_hot(labels, z.shape[-1])).square().sum(-1).mean(-1)


LOSSES = {"cross-entropy": cross_entropy, "squared": squared}


# --- optimizers, with one learning rate for each run ----------------------------------------------------


class Optimizer:
    """PyTorch's SGD, Adam and AdamW with their defaults, for parameters with a leading axis of runs.

    Rates and weight decays are (runs, parameters).
    """

    def __init__(self, name: str, parameters: list[torch.Tensor], rates: torch.Tensor, decays: torch.Tensor):
        self.name, self.rates, self.decays, self.steps = name, rates, decays, 0
        states = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}[name]
        self.state = [[torch.zeros_like(p) for p in parameters] for _ in range(states)]

    def step(self, parameters: list[torch.Tensor]) -> None:
        self.steps += 1
        for i, p in enumerate(parameters):
            shape = (-1, *[1] * (p.ndim - 1))
            rate = self.rates[:, i].view(shape)
            if self.name == "adamw":
                p.mul_(1 - self.decays[:, i].view(shape) * rate)
            p.sub_(self._direction(i, p.grad).mul_(rate))
            p.grad = None

    def _direction(self, i: int, grad: torch.Tensor) -> torch.Tensor:
        if self.name == "sgd":
            return grad
        if self.name == "momentum":
            return self.state[0][i].mul_(0.9).add_(grad).clone()
        mean = self.state[0][i].lerp_(grad, 0.1)
        square = self.state[1][i].mul_(0.999).addcmul_(grad, grad, value=0.001)
        scale = square.div(1 - 0.999**self.steps).sqrt_().add_(1e-8)
        return (mean / scale).div_(1 - 0.9**self.steps)

    def keep(self, alive: torch.Tensor) -> None:
        self.rates, self.decays = self.rates[alive], self.decays[alive]
        self.state = [[s[alive] for s in kind] for kind in self.state]


# --- training -----------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """What is trained, apart from its initialization and its learning rates."""

    activation: str
    data: Data
    loss: str
    optimizer: str
    steps: int = STEPS


class Outcome(NamedTuple):
    """Of each run, (seeds, rates): loss on 512 training samples, accuracy on the samples held out.

    A run that diverged has an infinite loss and the accuracy of guessing.
    """

    loss: np.ndarray
    accuracy: np.ndarray


def train(starts: list[Start], rates: list[float], setting: Setting) -> Outcome:
    """Train the network of each seed with each learning rate, all at once."""
    S, R = len(starts), len(rates)
    seed = torch.arange(S).repeat_interleave(R)
    columns = zip(*(s.parameters() for s in starts), strict=True)
    parameters = [torch.stack(c)[seed].contiguous().requires_grad_() for c in columns]
    factors = torch.tensor([s.rates() for s in starts])[seed]
    decays = torch.tensor([s.decays() for s in starts])[seed]
    each = torch.tensor(rates).repeat(S)[:, None] * factors
    optimizer = Optimizer(setting.optimizer, parameters, each, decays)
    generators = [torch.Generator().manual_seed(1000 + s) for s in range(S)]
    runs, first = torch.arange(S * R), None
    worth = LOSSES[setting.loss]
    for step in range(setting.steps):
        rows = torch.stack([torch.randint(len(setting.data.X), (BATCH,), generator=g) for g in generators])
        rows = rows[seed]
        z = forward(starts[0], parameters, setting.activation, setting.data.X[rows])
        losses = worth(z, setting.data.labels[rows])
        first = losses.detach() if first is None else first
        losses.sum().backward()
        with torch.no_grad():
            optimizer.step(parameters)
            if step % CHECKED == CHECKED - 1:
                alive = torch.isfinite(losses) & (losses < DIVERGED * first.clamp(min=math.log(2)))
                if not alive.all():
                    parameters = [p[alive].requires_grad_() for p in parameters]
                    optimizer.keep(alive)
                    seed, runs, first = seed[alive], runs[alive], first[alive]
        if not len(runs):
            break
    return _judged(starts[0], parameters, setting, runs, (S, R))


@torch.no_grad()
def _judged(
    start: Start, parameters: list[torch.Tensor], setting: Setting, runs: torch.Tensor, shape: tuple[int, int]
) -> Outcome:
    data = setting.data
    loss = np.full(shape, np.inf)
    accuracy = np.full(shape, 1 / data.classes)
    if len(runs):
        z = _outputs(start, parameters, setting.activation, data.X[:512])
        seen = LOSSES[setting.loss](z, data.labels[:512].expand(len(runs), -1)).double().numpy()
        z = _outputs(start, parameters, setting.activation, data.X_test)
        right = (z.argmax(-1) == data.labels_test).double().mean(-1).numpy()
        loss.flat[runs.numpy()] = np.where(np.isfinite(seen), seen, np.inf)
        accuracy.flat[runs.numpy()] = np.where(np.isfinite(seen), right, 1 / data.classes)
    return Outcome(loss, accuracy)


def _outputs(start: Start, parameters: list[torch.Tensor], activation: str, X: torch.Tensor) -> torch.Tensor:
    runs = len(parameters[0])
    parts = [forward(start, parameters, activation, x.expand(runs, -1, -1)) for x in X.split(128)]
    return torch.cat(parts, dim=1)
