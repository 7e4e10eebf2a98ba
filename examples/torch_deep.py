"""Fifty layers in PyTorch: the default initialization against the critical one.

    python examples/torch_deep.py [--quick]

A multilayer perceptron learns the digits of scikit-learn by plain gradient descent on the cross-entropy. With
PyTorch's own initialization no learning rate trains it; with `fw.torch.initialize_` and the learning rates of
`fw.torch.parameter_groups` it trains. --quick takes four of the ten digits and fewer steps.
"""

import argparse
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import finitewidth as fw

DEPTH = 50
ACTIVATIONS = {
    "tanh": (nn.Tanh, 100),
    "gelu": (nn.GELU, 128),
}  # gelu networks fluctuate more, so they are wider
DEFAULT_RATES = (0.01, 0.1, 1.0)  # one for all parameters
CRITICAL_RATES = {"tanh": 1.0, "gelu": 10.0}  # divided over layers


class Task(NamedTuple):
    """Inputs with a mean square of one, labels, and a budget of gradient steps."""

    X: torch.Tensor
    labels: torch.Tensor
    classes: int
    steps: int


def task(quick: bool) -> Task:
    """A hundred images of four digits, or three hundred of all ten."""
    classes, images, steps = (4, 100, 60) if quick else (10, 300, 400)
    X, labels = load_digits(n_class=classes, return_X_y=True)
    X = X[:images] - X[:images].mean(axis=0)
    X /= np.sqrt(np.mean(X**2))
    return Task(torch.tensor(X, dtype=torch.float32), torch.tensor(labels[:images]), classes, steps)


def perceptron(activation: str, outputs: int) -> nn.Sequential:
    """Fifty linear layers as PyTorch initializes them."""
    function, width = ACTIVATIONS[activation]
    widths = [64, *[width] * (DEPTH - 1), outputs]
    parts: list[nn.Module] = []
    for fan_in, fan_out in zip(widths, widths[1:], strict=False):
        parts += [nn.Linear(fan_in, fan_out), function()]
    return nn.Sequential(*parts[:-1])


def train(module: nn.Module, optimizer: torch.optim.Optimizer, data: Task) -> float:
    """The fraction of the training images that is classified correctly after training."""
    for _ in range(data.steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(data.X), data.labels).backward()
        optimizer.step()
    with torch.no_grad():
        return float((module(data.X).argmax(dim=1) == data.labels).double().mean())


def by_default(activation: str, data: Task, learning_rate: float) -> float:
    """PyTorch's initialization, one learning rate."""
    torch.manual_seed(0)
    module = perceptron(activation, data.classes)
    return train(module, torch.optim.SGD(module.parameters(), lr=learning_rate), data)


def critical(activation: str, data: Task, learning_rate: float) -> float:
    """The critical initialization, every layer at its own learning rate."""
    module = perceptron(activation, data.classes)
    fw.torch.initialize_(module, generator=torch.Generator().manual_seed(0))
    return train(module, torch.optim.SGD(fw.torch.parameter_groups(module, learning_rate)), data)


def main(quick: bool = False) -> None:
    data = task(quick)
    print(f"{DEPTH} layers, {len(data.X)} images of {data.classes} digits, {data.steps} steps")
    for activation in ACTIVATIONS:
        rows = [(rate, "PyTorch's defaults", by_default) for rate in DEFAULT_RATES]
        rows.append((CRITICAL_RATES[activation], "critical", critical))
        for rate, name, trained in rows:
            accuracy = trained(activation, data, rate)
            print(f"{activation}  {name:18}  learning rate {rate:5g}  training accuracy {accuracy:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four digits and fewer steps")
    main(parser.parse_args().quick)
