"""Every symbol that the page shows: a sentence for its tooltip, and where the documentation defines it."""

from html import escape
from typing import NamedTuple


class Symbol(NamedTuple):
    """How a symbol is written, what it means, and the section of docs/ that defines it."""

    sign: str
    sentence: str
    section: str  # file of docs/ and anchor


_NETWORK, _TRAINING, _TENSORS = "notation.md#the-network", "notation.md#training", "notation.md#notation"
_CRITICAL, _VERDICT, _PAGE = "notation.md#criticality", "uncertainty.md#one-verdict", "page.md#the-page"

# controls first, under the names of their values, then what the plots show
SYMBOLS: dict[str, Symbol] = {
    "tab": Symbol("tab", "The question that the page shows; all tabs share the network and the data.", _PAGE),
    "activation": Symbol(
        "σ", "The nonlinear function that acts on every neuron of a hidden layer.", _NETWORK
    ),
    "depth": Symbol("L", "The number of layers with parameters, hidden layers and output.", _NETWORK),
    "width": Symbol(
        "n", "The number of neurons in every hidden layer; corrections are of order 1/n.", _NETWORK
    ),
    "gamma": Symbol(
        "γ",
        "The factor of the skip in z' = γ z + W σ(z); 0 is a network without skips.",
        "memory.md#the-memory-of-a-neuron",
    ),
    "start": Symbol(
        "critical",
        "At the critical point neither signals nor gradients grow or shrink exponentially with depth.",
        _CRITICAL,
    ),
    "C_b": Symbol("C_b", "The variance of biases at initialization.", _NETWORK),
    "C_W": Symbol(
        "C_W", "The variance of weights at initialization, times the width that feeds them.", _NETWORK
    ),
    "lambda_b": Symbol("λ_b", "The learning rate of biases, as a factor of the global one.", _NETWORK),
    "lambda_W": Symbol(
        "λ_W", "The learning rate of weights, as a factor of the global one over the width.", _NETWORK
    ),
    "algorithm": Symbol(
        "algorithm", "How networks are trained on the squared error, and when training ends.", _TRAINING
    ),
    "time": Symbol("t", "The time at which gradient flow stops.", _TRAINING),
    "learning_rate": Symbol(
        "η",
        "The global learning rate of gradient descent, stable below 2 over the largest eigenvalue of Θ.",
        _TRAINING,
    ),
    "steps": Symbol("steps", "The number of steps of gradient descent.", _TRAINING),
    "target": Symbol("y", "The function whose values at the training points are to be learned.", _TRAINING),
    "points": Symbol("N", "The number of training points, spread evenly over x from -1.05 to 1.05.", _PAGE),
    "noise": Symbol(
        "s²",
        "The variance of the noise that Bayesian inference expects on the targets.",
        "bayes.md#bayesian-inference",
    ),
    "members": Symbol("networks", "The number of real networks that the button below trains.", _PAGE),
    "x": Symbol(
        "x", "An angle: the network receives √2 (cos x, sin x), of the same norm for every x.", _PAGE
    ),
    "z": Symbol(
        "z(x)", "The output of a trained network; lines are means over networks, bands one std.", _TRAINING
    ),
    "std": Symbol("std", "The standard deviation of outputs from network to network.", _TRAINING),
    "uncertainty": Symbol(
        "uncertainty",
        "What order 1/n neglects, as one standard deviation.",
        "uncertainty.md#how-the-band-is-made",
    ),
    "verdict": Symbol(
        "order 1/n", "Trusted, doubtful or meaningless, by the size of what order 1/n neglects.", _VERDICT
    ),
    "K": Symbol("K", "The kernel: the mean square of a neuron's preactivation in a layer.", _TENSORS),
    "Theta": Symbol(
        "Θ", "The neural tangent kernel (NTK): how fast outputs move when the network is trained.", _TENSORS
    ),
    "chi": Symbol(
        "χ⊥",
        "The factor by which one layer multiplies gradients and small differences of direction.",
        _CRITICAL,
    ),
    "V": Symbol(
        "V",
        "The four-point vertex: how strongly squared outputs fluctuate and depend on each other.",
        _TENSORS,
    ),
    "A": Symbol("A", "The variance of the NTK from network to network, of one output with itself.", _TENSORS),
    "B": Symbol("B", "The variance of the NTK between two different outputs.", _TENSORS),
    "ratio": Symbol(
        "ratio",
        "The largest of the tensors of order 1/n, such as V/nK²; below 0.3 order 1/n is trusted.",
        _VERDICT,
    ),
    "posterior": Symbol(
        "posterior",
        "The distribution of networks given the data, by Bayes' rule instead of training.",
        "bayes.md#the-posterior-at-order-1n",
    ),
    "beyond": Symbol(
        "orders behind 1/n",
        "What trained narrow networks differ from theory, fitted with 1/n² and 1/n³ and read at width n.",
        "extrapolation.md#how-it-works",
    ),
    "layer": Symbol(
        "ℓ/n",
        "Layer over width: the size of corrections grows with it.",
        "theory.md#3-order-1n-differences-between-networks",
    ),
}


def described() -> dict[str, dict]:
    """The tooltips, by the name of the symbol."""
    return {
        name: {"sign": one.sign, "sentence": one.sentence, "more": f"/symbols#{name}"}
        for name, one in SYMBOLS.items()
    }


def as_html() -> str:
    """A page of all symbols, one anchor each, with the section of the documentation that defines them."""
    entries = "\n".join(
        f'<dt id="{escape(name)}">{escape(one.sign)}</dt>\n'
        f"<dd>{escape(one.sentence)} <span>Defined in <code>docs/{escape(one.section)}</code>.</span></dd>"
        for name, one in SYMBOLS.items()
    )
    return _FRAME.replace("ENTRIES", entries)


_FRAME = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>finitewidth: symbols of the page</title>
  <link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
  <link rel="stylesheet" href="/static/style.css">
  <script src="/static/theme.js"></script>
</head>
<body>
  <header><h1>Symbols of the page</h1><p><a href="/">Back to the page</a></p></header>
  <main class="reading"><dl class="card">
ENTRIES
  </dl></main>
</body>
</html>
"""
