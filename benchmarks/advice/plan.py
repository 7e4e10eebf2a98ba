"""What the benchmark of advice trains, fixed before anything was trained, the most important rows first."""

from typing import NamedTuple

from benchmarks.advice.methods import METHODS

BY_LAYER = "bias share 1/10"
PEOPLE = ["PyTorch", "Xavier", "Kaiming", "orthogonal", "layer norm", "skips", "muP"]
OURS = ["critical", "critical skips", "lambda_b = 1", "bias share 1", BY_LAYER]
OURS_ADAM = ["critical", "critical skips", "Adam by layer", "Adam by layer, outputs"]
BIASES = ["lambda_b = 1", "bias share 1", BY_LAYER, "bias share 1/100", "bias share 0", "critical"]
DEEP = ["PyTorch", "orthogonal", "layer norm", "skips", "critical", "critical skips"]


class Problem(NamedTuple):
    """A network, a data set, a loss and an optimizer."""

    depth: int
    width: int
    activation: str
    data: str = "digits"
    loss: str = "cross-entropy"
    optimizer: str = "sgd"

    @property
    def key(self) -> str:
        return f"{self.activation} {self.depth}x{self.width} {self.data} {self.loss} {self.optimizer}"

    @property
    def adaptive(self) -> bool:
        return self.optimizer in ("adam", "adamw")


class Part(NamedTuple):
    """A problem with the methods that are tried on it."""

    section: str
    problem: Problem
    methods: list[str]
    seeds: int = 2


# over width, over depth, and over both at one sixteenth; (depth, width)
OVER_WIDTH = ((8, 32), (8, 64), (8, 128), (8, 256))
OVER_DEPTH = ((4, 128), (8, 128), (16, 128), (32, 128))
OVER_BOTH = ((4, 64), (8, 128), (16, 256))
SIZES = sorted({*OVER_WIDTH, *OVER_DEPTH, *OVER_BOTH}, key=lambda s: s[0] * s[1] ** 2)

# twelve sizes of the table, in an order that mixes them with activations and optimizers
TABLE_SIZES = (
    (8, 128),
    (4, 64),
    (16, 128),
    (32, 64),
    (4, 256),
    (16, 32),
    (8, 64),
    (32, 128),
    (64, 64),
    (4, 32),
    (4, 512),
    (64, 32),
)
CHEAP = 16 * 2 * 128**2  # cost of a problem of the table that comes early
ACTIVATIONS = ("tanh", "relu", "gelu")
OPTIMIZERS = ("sgd", "adam", "momentum", "adamw")


def transfer(
    activation: str, loss: str = "cross-entropy", optimizer: str = "sgd", methods: tuple[str, ...] = ()
) -> list[Part]:
    """The best rate over the sizes, by layer and with one rate for all."""
    tried = list(methods) or [BY_LAYER, "critical"]
    problems = [Problem(*size, activation, "digits", loss, optimizer) for size in SIZES]
    return [Part("transfer", problem, tried) for problem in problems]


def biases() -> list[Part]:
    """How fast biases should learn beside the weights of their layer."""
    sizes = ((8, 128), (32, 64))
    problems = [Problem(*size, activation) for size in sizes for activation in ACTIVATIONS]
    problems += [Problem(*size, "tanh", loss="squared") for size in sizes]
    return [Part("biases", problem, BIASES) for problem in problems]


def last_layers() -> list[Part]:
    """How large outputs should start. Added when the squared loss of relu networks was seen to lose."""
    problems = [
        Problem(4, 256, "relu", "digits", "squared", "momentum"),
        Problem(16, 32, "tanh", "clusters", "squared", "sgd"),
        Problem(64, 32, "tanh", "digits", "squared", "momentum"),
        Problem(4, 64, "gelu", "clusters", "cross-entropy", "sgd"),
        Problem(8, 128, "tanh", "digits", "cross-entropy", "sgd"),
        Problem(32, 64, "relu", "digits", "cross-entropy", "sgd"),
        Problem(8, 128, "relu", "digits", "cross-entropy", "adamw"),
        Problem(16, 32, "gelu", "digits", "cross-entropy", "adamw"),
        Problem(4, 512, "relu", "clusters", "squared", "sgd"),
    ]
    names = ["critical", "critical, small last", "critical skips", "critical skips, small last"]
    return [Part("last layers", problem, names) for problem in problems]


def deep() -> list[Part]:
    """Plain and residual networks of 50 and 100 layers side by side."""
    settings = [("tanh", "sgd"), ("relu", "adam"), ("relu", "sgd"), ("tanh", "adam")]
    return [
        Part(
            "deep",
            Problem(depth, 64, activation, optimizer=optimizer),
            DEEP + ([BY_LAYER, "critical skips, by layer"] if optimizer == "sgd" else ["Adam by layer"]),
        )
        for activation, optimizer in settings
        for depth in (50, 100)
    ]


def table(block: int) -> list[Part]:
    """Twelve problems: each pair of activation and optimizer once; blocks differ in their sizes."""
    parts = []
    for i in range(12):
        activation, optimizer = ACTIVATIONS[i % 3], OPTIMIZERS[(i // 3 + i % 3) % 4]
        depth, width = TABLE_SIZES[(i + 5 * block) % 12]
        loss = "squared" if (i + block) % 3 == 1 and (i // 3 + block) % 2 else "cross-entropy"
        data = ("digits", "clusters")[(i // 2 + block) % 2]
        problem = Problem(depth, width, activation, data, loss, optimizer)
        methods = PEOPLE + (OURS_ADAM if problem.adaptive else OURS)
        if width == 64:  # muP's base width, where it is the critical initialization with one rate
            methods = [m for m in methods if m != "muP"]
        parts.append(Part("table", problem, methods))
    return sorted(parts, key=lambda part: part.problem.depth * part.problem.width**2)


def plan() -> list[Part]:
    """Everything, in the order in which it is trained.

    The rules of `fw.torch.recommend` may be read off the transfers, the biases and the deep networks. The
    table is kept for judging them. Its first two blocks come with the cheap problems first.
    """
    adam = ("Adam by layer", "Adam by layer, outputs", "critical")
    first = sorted([*table(0), *table(1)], key=_cost)
    cheap = [part for part in first if _cost(part) < CHEAP]
    shallower = [part for part in deep() if part.problem.depth == 50]
    return [
        *biases(),
        *transfer("tanh"),
        *transfer("relu"),
        *transfer("gelu"),
        *transfer("tanh", optimizer="adam", methods=adam),
        *transfer("tanh", loss="squared"),
        *transfer("tanh", optimizer="momentum"),
        *shallower,
        *cheap,
        *last_layers(),
        *transfer("relu", optimizer="adam", methods=adam),
        *[part for part in deep() if part not in shallower],
        *[part for part in first if part not in cheap],
        *table(2),
    ]


def _cost(part: Part) -> float:
    """Something like the time of one method."""
    problem = part.problem
    return problem.depth * (problem.width**2 + 64**2) * (2 if problem.adaptive else 1)


def centre(problem: Problem, method: str) -> int:
    """The middle of the grid of rates, as a power of two."""
    by_layer = METHODS[method].by_layer
    if problem.adaptive:
        return -1 if by_layer else -10
    middle = 4 if by_layer else -3
    return middle - 3 * (problem.optimizer == "momentum") - 3 * (problem.loss == "squared")
