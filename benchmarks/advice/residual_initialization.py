"""Residual networks of 50 and 100 layers in PyTorch: initializations side by side, and plain networks.

    python -m benchmarks.advice.residual_initialization [--quick] [--only PART OF A NAME]

Digits of scikit-learn, cross-entropy, gradient descent in batches of 64. Every initialization is tuned over
the same grid of one learning rate for all parameters; `fw.torch.recommend` is used as it comes, untuned.
Writes benchmarks/advice/results/residual_initialization.md.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import finitewidth as fw
from benchmarks.provenance import stamp

RESULTS = Path(__file__).parent / "results" / "residual_initialization.md"
WIDTH, BATCH, STEPS = 64, 64, 80
RATES = tuple(0.8 / 2**k for k in range(9))  # the largest first
LAYERS = (50, 100)


class Branch(nn.Module):
    """gamma x + f(x) with two layers in f."""

    def __init__(self, width: int, *, scalars: bool = False, gamma: float = 1.0):
        super().__init__()
        self.gamma = gamma
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)
        starts = [0.0, 0.0, 0.0, 1.0] if scalars else []
        self.scalars = nn.ParameterList([torch.full((1,), one) for one in starts])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not len(self.scalars):
            return self.gamma * x + self.last(torch.relu(self.first(x)))
        before, between, after, factor = self.scalars
        return x + factor * self.last(torch.relu(self.first(x + before)) + between) + after


def residual(layers: int, *, scalars: bool = False) -> nn.Sequential:
    branches = [Branch(WIDTH, scalars=scalars) for _ in range((layers - 2) // 2)]
    return nn.Sequential(nn.Linear(64, WIDTH), *branches, nn.Linear(WIDTH, 10))


def damped(layers: int) -> nn.Sequential:
    """With the gamma at which one over the number of branches is critical: 1 - gamma^2."""
    count = (layers - 2) // 2
    branches = [Branch(WIDTH, gamma=math.sqrt(1 - 1 / count)) for _ in range(count)]
    return nn.Sequential(nn.Linear(64, WIDTH), *branches, nn.Linear(WIDTH, 10))


def plain(layers: int) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Linear(64, WIDTH)]
    for _ in range(layers - 2):
        parts += [nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    return nn.Sequential(*parts, nn.ReLU(), nn.Linear(WIDTH, 10))


def he_(model: nn.Module, seed: int) -> nn.Module:
    """Variance 2/fan-in behind a relu and 1/fan-in elsewhere, biases zero."""
    generator = torch.Generator().manual_seed(seed)
    for name, layer in model.named_modules():
        if isinstance(layer, nn.Linear):
            gain = 2.0 if name.endswith("last") else 1.0
            nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.in_features), generator=generator)
            nn.init.zeros_(layer.bias)
    return model


def scaled(layers: int, seed: int) -> nn.Module:
    model = he_(residual(layers), seed)
    _change_last(model, 1 / math.sqrt((layers - 2) // 2))
    return model


def unscaled(layers: int, seed: int) -> nn.Module:
    return he_(residual(layers), seed)


def zero(layers: int, seed: int) -> nn.Module:
    model = he_(residual(layers), seed)
    _change_last(model, 0.0)
    return model


def fixup(layers: int, seed: int) -> nn.Module:
    """Zhang, Dauphin and Ma (2019): last weights and head zero, first over sqrt(branches), scalars."""
    model = he_(residual(layers, scalars=True), seed)
    _change_last(model, 0.0)
    with torch.no_grad():
        for branch in model[1:-1]:  # type: ignore[index]
            branch.first.weight.mul_(1 / math.sqrt((layers - 2) // 2))
        model[-1].weight.zero_()  # type: ignore[index]
    return model


def _change_last(model: nn.Module, factor: float) -> None:
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, Branch):
                part.last.weight.mul_(factor)


def by_default(build: Callable[[int], nn.Module]) -> Callable[[int, int], nn.Module]:
    """As PyTorch draws it."""

    def make(layers: int, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return build(layers)

    return make


def critical(build: Callable[[int], nn.Module]) -> Callable[[int, int], nn.Module]:
    """As `fw.torch.initialize_` draws it."""

    def make(layers: int, seed: int) -> nn.Module:
        model = build(layers)
        fw.torch.initialize_(model, generator=torch.Generator().manual_seed(seed))
        return model

    return make


def balanced(layers: int, seed: int) -> nn.Module:
    """As `fw.torch.initialize_`, with the share of a branch in both of its layers, the root in each."""
    model, root = critical(residual)(layers, seed), ((layers - 2) // 2) ** 0.25
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, Branch):
                part.first.weight.div_(root)
                part.last.weight.mul_(root)
    return model


NETWORKS: dict[str, Callable[[int, int], nn.Module]] = {
    "skips, `fw.torch.initialize_`": critical(residual),
    "skips with gamma, `fw.torch.initialize_`": critical(damped),
    "skips, `fw.torch.initialize_`, share in both layers": balanced,
    "skips, He and 1/sqrt(branches)": scaled,
    "skips, zero last layers": zero,
    "skips, Fixup": fixup,
    "skips, He": unscaled,
    "skips, PyTorch's defaults": by_default(residual),
    "plain, `fw.torch.initialize_`": critical(plain),
}
RECOMMENDED = tuple(name for name in NETWORKS if "initialize_" in name)


class Data(NamedTuple):
    X: torch.Tensor
    labels: torch.Tensor
    X_test: torch.Tensor
    labels_test: torch.Tensor


def digits() -> Data:
    X, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X = X[order] - X.mean(axis=0)
    X /= np.sqrt(np.mean(X**2))
    images, names = torch.tensor(X, dtype=torch.float32), torch.tensor(labels[order])
    return Data(images[:1300], names[:1300], images[1300:], names[1300:])


def trained(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Data, steps: int
) -> tuple[float, float]:
    """The training loss after the last step and the test accuracy; infinite and zero where it diverged."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(len(data.X), (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(data.X[rows]), data.labels[rows])
        if not torch.isfinite(loss):
            return math.inf, 0.0
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        loss = float(nn.functional.cross_entropy(model(data.X), data.labels))
        right = (model(data.X_test).argmax(dim=1) == data.labels_test).double().mean()
    return (loss if math.isfinite(loss) else math.inf), float(right)


def tuned(
    make: Callable[[int, int], nn.Module], layers: int, data: Data, steps: int
) -> tuple[float, float, float]:
    """The best loss of the grid, its accuracy and its rate."""
    results = []
    for rate in RATES:
        model = make(layers, 0)
        results.append((*trained(model, torch.optim.SGD(model.parameters(), lr=rate), data, steps), rate))
    return min(results)


def main(quick: bool = False, only: str = "") -> None:
    """Train all networks, or those whose names have `only` in them; rows of the others stay in the table."""
    torch.set_num_threads(1)
    data, steps, rows = digits(), 20 if quick else STEPS, []
    kept = RESULTS.read_text(encoding="utf-8").splitlines() if only else []
    start = time.process_time()
    for name, make in NETWORKS.items():
        if only not in name:
            rows += [line for line in kept if line.startswith(f"| {name} |")]
            continue
        for layers in LAYERS:
            loss, accuracy, rate = tuned(make, layers, data, steps)
            cells = f"{loss:.3g} | {accuracy:.3f} | {rate:.3g}" if math.isfinite(loss) else "diverges | | all"
            rows.append(f"| {name} | {layers} | {cells} |")
            print(rows[-1], flush=True)
            if name in RECOMMENDED:
                model = make(layers, 0)
                advice = fw.torch.recommend(model, data.X[:BATCH], loss="cross_entropy", optimizer="SGD")
                loss, accuracy = trained(model, advice.optimizer(), data, steps)
                untuned = f"`fw.torch.recommend`, {advice.learning_rate:.3g}"
                rows.append(f"| {name} | {layers} | {loss:.3g} | {accuracy:.3f} | {untuned} |")
                print(rows[-1], flush=True)
    if not quick:
        write(rows, time.process_time() - start)


def write(rows: list[str], seconds: float) -> None:
    text = f"""# Residual networks of 50 and 100 layers: initializations side by side

Written by `benchmarks/advice/residual_initialization.py` ({stamp()}; last call {seconds:.0f} processor
seconds). Relu networks of width {WIDTH}, 1300 digits, cross-entropy, {STEPS} steps of gradient descent
in batches of {BATCH}, one seed. Branches have two layers. The rate is the best of
{", ".join(f"{rate:.3g}" for rate in RATES)}, one for all parameters, or that of `fw.torch.recommend`
without tuning.

| network | layers | training loss | test accuracy | rate |
|---|---|---|---|---|
""" + "\n".join(rows)
    RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps, nothing is written")
    parser.add_argument("--only", default="", help="train networks with this in their names only")
    given = parser.parse_args()
    main(given.quick, given.only)
