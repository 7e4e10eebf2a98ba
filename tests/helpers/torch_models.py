"""PyTorch modules: perceptrons, residual blocks, pictures."""

import torch.nn.functional as F
from torch import nn


def stack(widths, activation, **options) -> nn.Sequential:
    """Linear layers with `activation()` between them, or with one of several activations after each."""
    several = isinstance(activation, tuple)
    between = activation if several else (activation,) * (len(widths) - 2)
    parts: list[nn.Module] = []
    for fan_in, fan_out, make in zip(widths, widths[1:], (*between, nn.Identity), strict=False):
        parts += [nn.Linear(fan_in, fan_out, **options), make()]
    return nn.Sequential(*parts[:-1])


class Branch(nn.Module):
    """x + scale f(x), with a norm in front of f if wanted."""

    def __init__(self, width, *, scale=1.0, norm=False):
        super().__init__()
        self.norm = nn.LayerNorm(width) if norm else nn.Identity()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.scale = scale

    def forward(self, x):
        return x + self.scale * self.second(F.gelu(self.first(self.norm(x))))


def residual(blocks=2, width=8, **options) -> nn.Module:
    branches = [Branch(width, **options) for _ in range(blocks)]
    return nn.Sequential(nn.Linear(6, width), *branches, nn.Linear(width, 2))


class Pictures(nn.Module):
    """A block with a shortcut that has weights."""

    def __init__(self):
        super().__init__()
        self.first, self.inner = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.last, self.skip = nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.Conv2d(4, 8, 1, stride=2)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x)
        x = self.last(F.relu(self.inner(F.relu(x)))) + self.skip(x)
        return self.head(x.mean((2, 3)))
