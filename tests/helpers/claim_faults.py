"""The theory broken on purpose: one wrong coefficient at a time, put where a recursion is computed.

A fault is put in by `contextlib` and taken out again; it names the claims that must fail while it is there.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from unittest import mock

import numpy as np
from scipy.interpolate import BSpline

from finitewidth.comparison.claims import FILES
from finitewidth.comparison.statements import residual
from finitewidth.critical import one_input as critical_one_input
from finitewidth.network.algorithms import clock, projectors
from finitewidth.theory import one_input, one_input_with_skips, recursion, solve, steps, streams
from finitewidth.theory.layers.activation import ActivationStep
from finitewidth.theory.layers.isometry import Isometry
from finitewidth.theory.layers.sites import Pairs
from finitewidth.theory.tensors import SHAPES
from finitewidth.training.first_order import mean_and_covariance, one_network
from finitewidth.training.infinite import dynamics
from finitewidth.training.textbook import delta_expansion, finite_angle

FACTOR = 1.05  # a coefficient five per cent too large

# row and column feature of every tensor in the recursion for several inputs
BLOCKS = {name: (shape.row, shape.column) for name, shape in SHAPES.items()}
MEANS = ("K", "Theta", "G1", "H1")


def about(name: str) -> str:
    """The cheapest claim about a statistic."""
    if name in (*MEANS, "V"):
        return "sparsity.many-layers"
    return "inf.14-17" if name in "RSTU" else "sparsity.many-layers-ntk"


SAMPLED = ("narrow_networks", "real_networks")  # know no theory


def forget() -> None:
    """Drop what claims remember of the theory, right or wrong."""
    for name in FILES:
        module = importlib.import_module(f"finitewidth.comparison.statements.{name}")
        for key, value in vars(module).items():
            if hasattr(value, "cache_clear") and key not in SAMPLED:
                value.cache_clear()


@dataclass(frozen=True)
class Fault:
    """What is wrong, how to put it in, and the claims that must see it, the cheapest first."""

    name: str
    put_in: Callable[[], contextlib.AbstractContextManager]
    claims: tuple[str, ...]

    @contextlib.contextmanager
    def inject(self) -> Iterator[None]:
        forget()
        try:
            with self.put_in():
                yield
        finally:
            forget()


@contextlib.contextmanager
def replaced(module, name: str, wrong: Callable) -> Iterator[None]:
    """`wrong` gets the original function as its first argument."""
    with mock.patch.object(module, name, functools.partial(wrong, getattr(module, name))):
        yield


def scaled_field(name: str) -> Callable:
    def wrong(original, *arguments):
        right = original(*arguments)
        value = getattr(right, name)
        return right if value is None else replace(right, **{name: FACTOR * value})

    return wrong


@contextlib.contextmanager
def in_scalar_recursion(name: str) -> Iterator[None]:
    """In the recursion for one input, which is compiled."""

    def wrong(original, *arguments):
        right = original(*arguments)
        return right._replace(**{name: FACTOR * getattr(right, name)})

    one_input._scan.clear_cache()
    try:
        with replaced(one_input, "_next", wrong):
            yield
    finally:
        one_input._scan.clear_cache()


@contextlib.contextmanager
def in_pair_recursion(which: int) -> Iterator[None]:
    """In the recursion of K and Theta at infinite width: the mean of s s, or that of s' s'."""
    original = ActivationStep.apply

    def wrong(self, pairs, wanted, block):
        right = original(self, pairs, wanted, block)
        K = FACTOR * right.K if which == 0 else right.K
        Theta = FACTOR * right.Theta if which == 1 and right.Theta is not None else right.Theta
        return Pairs(right.grid, right.displacements, K, Theta)

    with mock.patch.object(ActivationStep, "apply", wrong):
        yield


def scaled_result(original, *arguments, **options):
    return FACTOR * original(*arguments, **options)


def opposite(contribution: str) -> Callable:
    """The form of one contribution to the mean with the wrong sign."""

    def wrong(original, modes, tensors, symbols, name):
        form = original(modes, tensors, symbols, name)
        return -form if name == contribution else form

    return wrong


def scaled_symbol(name: str) -> Callable:
    def wrong(original, *arguments, **options):
        right = original(*arguments, **options)
        return right | {name: FACTOR * right[name]}

    return wrong


def wrong_moments(original, e, u, K):
    right = original(e, u, K)
    return replace(right, off=FACTOR * right.off)


def wrong_curvature(original, e, u, K):
    right = original(e, u, K)
    return replace(right, on=FACTOR * right.on)


def wrong_first_moments(original, e, u, K):
    right = original(e, u, K)
    return replace(right, first=FACTOR * right.first)


def wrong_table(original, activation):
    """The table of averages of an activation, five per cent too large on its grid."""
    table = original(activation)
    right = table._splines
    return replace(table, _splines=BSpline(right.t, FACTOR * right.c, right.k))


def created_too_much(key):
    """What a layer creates of one block, five per cent too large."""

    def wrong(original, *arguments):
        recipes = original(*arguments)
        if key in recipes:
            terms = recipes[key].sources
            recipes[key].sources = [term._replace(row=FACTOR * term.row) for term in terms]
        return recipes

    return wrong


def moved_too_much(key):
    """What moves to one block, five per cent too large."""

    def wrong(original, recipes, *arguments):
        before = len(recipes[key].moves)
        original(recipes, *arguments)
        moves = recipes[key].moves
        for number, move in enumerate(moves[before:], start=before):
            moves[number] = move._replace(rows=[(X, R, FACTOR * factor) for X, R, factor in move.rows])

    return wrong


def wrong_wiring(original, *arguments):
    """The contribution of the dNTK to the covariance between outputs, five per cent too large."""
    correct = original(*arguments)
    return replace(correct, coupling=FACTOR * correct.coupling)


def wrong_two_step(original, algorithm, l):
    right = original(algorithm, l)
    return replace(right, outputs=scaled_symbol("B")(lambda: right.outputs))


def wrong_angle(original, net, square, product, A_2, rho):
    return original(net, square, product, A_2, FACTOR * rho)


def _statistics() -> Iterator[Fault]:
    sampled = {"A": "ntk", "B": "ntk", "D": "ntk", "F": "ntk", "P": "dntk", "Q": "dntk"}
    sampled |= dict.fromkeys("RSTU", "ddntk")
    for name, key in BLOCKS.items():
        claims = [about(name)]
        if name in sampled:
            claims.append(f"sparsity.two-layers-{sampled[name]}")
        if name in "ST":
            claims.append("inf.46-48")
        inject = functools.partial(replaced, recursion, "created_recipes", created_too_much(key))
        yield Fault(f"source of {name}", inject, tuple(claims))
    for name, key in BLOCKS.items():
        inject = functools.partial(replaced, recursion, "add_moves", moved_too_much(key))
        yield Fault(f"transport of {name}", inject, (about(name),))
    for name in MEANS:
        inject = functools.partial(replaced, solve, "next_layer", scaled_field(name))
        yield Fault(f"{name}, several inputs", inject, (about(name),))
    asymptotic = {name: "effective-theory.order-L-over-n" for name in ("V", "G1", "B", "F", "P")}
    asymptotic |= {name: "inf.30-33" for name in "RSTU"} | {name: "inf.34-38" for name in ("K", "Theta")}
    for name in one_input.NAMES:
        claims = (about(name), *([asymptotic[name]] if name in asymptotic else []))
        yield Fault(f"{name}, one input", functools.partial(in_scalar_recursion, name), claims)
    for which, (name, claim) in enumerate((("K", "10.91"), ("Theta", "10.96-10.98"))):
        inject = functools.partial(in_pair_recursion, which)
        yield Fault(f"{name}, infinite width", inject, ("ntk-talk.recursions", claim))


def _training() -> Iterator[Fault]:
    for name in ("A", "IA", "IIA", "IIB"):
        inject = functools.partial(replaced, clock, "_ordered_symbols", scaled_symbol(name))
        claims = ("inf.149-153", "inf.142-147", "inf.168-171", "inf.141", "inf.126-130")
        yield Fault(f"projector Z_{name}", inject, claims)
    for name in ("B", "IB"):
        inject = functools.partial(replaced, clock, "_ordered_symbols", scaled_symbol(name))
        yield Fault(f"projector Z_{name}", inject, ("inf.149-153", "inf.142-147", "inf.168-171", "inf.141"))
    parts = {"ntk_fluctuation": "NTK fluctuation", "dntk": "dNTK", "ddntk_1": "first ddNTK"}
    parts |= {"ddntk_2": "second ddNTK"}
    for name, what in parts.items():
        claims = ("inf.172", "inf.160-165") if name == "ntk_fluctuation" else ("inf.160-165",)
        function = "_cubic_form" if name.startswith("ddntk") else "_linear_form"
        inject = functools.partial(replaced, mean_and_covariance, function, opposite(name))
        yield Fault(f"sign of the {what} in the mean", inject, claims)
    one = {"evolved_ntk": "inf.117", "evolved_dntk": "inf.101-102", "interaction": "inf.126-130"}
    for function, claim in one.items():
        inject = functools.partial(replaced, one_network, function, scaled_result)
        yield Fault(f"{function} of one network", inject, (claim,))
    inject = functools.partial(replaced, one_network, "_trained_ntk", wrong_trained)
    yield Fault("trained NTK", inject, ("inf.155",))
    inject = functools.partial(replaced, dynamics, "mode_response", scaled_result)
    yield Fault("what training makes of a mode", inject, ("ntk-talk.trajectory",))
    inject = functools.partial(replaced, delta_expansion, "_average", wrong_moments)
    yield Fault("expansion for nearby inputs", inject, ("10.70", "10.62-10.63", "10.110-10.112"))
    inject = functools.partial(replaced, delta_expansion, "_average", wrong_curvature)
    yield Fault("curvature between nearby inputs", inject, ("10.113-10.116", "10.110-10.112"))
    inject = functools.partial(replaced, delta_expansion, "_average", wrong_first_moments)
    yield Fault("expansion for nearby inputs of different norms", inject, ("10.67", "10.65-10.66"))
    inject = functools.partial(replaced, critical_one_input, "leg_table", wrong_table)
    yield Fault("one input through thousands of layers", inject, ("10.71-10.72", "10.75"))
    inject = functools.partial(replaced, mean_and_covariance, "_output_with_dntk", wrong_wiring)
    yield Fault("covariance from the dNTK", inject, ("inf.166-167",))
    inject = functools.partial(replaced, projectors, "_fully_trained", wrong_two_step)
    yield Fault("projector Z_B of two steps", inject, ("inf.148",))
    inject = functools.partial(replaced, finite_angle, "_through_layers", wrong_angle)
    yield Fault("angle of relu networks", inject, ("10.90", "10.92-10.95", "10.footnote-37"))


def wrong_trained(original, modes, s):
    """H plus 1.05 times what training adds to it."""
    right = original(modes, s)
    none = {name: np.zeros_like(part) for name, part in s.outputs.items()}
    free = original(modes, replace(s, outputs=none))
    return free + FACTOR * (right - free)


def wrong_stream(name: str) -> Callable:
    """One input through skips: G1, a tensor without its bare terms, or the memory A of a neuron."""

    def wrong(original, *arguments):
        right = original(*arguments)
        if name in right._fields:
            return right._replace(**{name: FACTOR * getattr(right, name)})
        row, column = (one_input_with_skips._PLACE[letter] for letter in BLOCKS[name])
        N = right.N.copy()
        N[row, column] *= FACTOR
        return right._replace(N=N)

    return wrong


def scaled_mean(name: str) -> Callable:
    """The one loop over depth: K or Theta of each layer, five per cent too large."""

    def wrong(original, *arguments):
        means = original(*arguments)
        return means._replace(**{name: FACTOR * getattr(means, name)})

    return wrong


def no_memory(original, *arguments):
    right = original(*arguments)
    return right._replace(A=np.zeros_like(right.A))


def without_memory_of_relu(original, a_plus, a_minus, gamma, depth):
    """Only what a layer's noise has in common with itself."""
    kept = 2 * (1 - gamma**4) + 3 * (1 - gamma**2) ** 2
    return kept * np.arange(depth)


def too_much_exchanged(original, now, share, k, t):
    return original(now, FACTOR * share, k, t)


@contextlib.contextmanager
def in_scalar_exchanges() -> Iterator[None]:
    """In what orthogonal weights take away for one input, which is compiled."""
    one_input._scan.clear_cache()
    try:
        with replaced(one_input, "_without_exchanges", too_much_exchanged):
            yield
    finally:
        one_input._scan.clear_cache()


def _orthogonal() -> Iterator[Fault]:
    right = Isometry.take_from

    def wrong(self, blocks):
        right(replace(self, share=FACTOR * self.share), blocks)

    inject = functools.partial(mock.patch.object, Isometry, "take_from", wrong)
    yield Fault("exchanges of orthogonal weights, several inputs", inject, ("orthogonal.linear",))
    yield Fault("exchanges of orthogonal weights, one input", in_scalar_exchanges, ("orthogonal.saturation",))


def _streams() -> Iterator[Fault]:
    deep = ("residual.memory", "residual.odd-class")
    for name, deepest in (("K", "10.71-10.72"), ("Theta", "10.75")):
        inject = functools.partial(replaced, steps, "behind_weights", scaled_mean(name))
        yield Fault(f"{name}, from layer to layer", inject, (deepest, *deep[1:]))
    about_stream = {"A": ("residual.memory", "residual.fixed-kernel")}
    about_stream |= dict.fromkeys(("G1", "B", "F", "P", "U"), deep)
    about_stream |= {"V": (*deep, "residual.linear", "appendix-B.depth", "appendix-B.networks")}
    words = {"A": "memory of a neuron"}
    for name, claims in about_stream.items():
        inject = functools.partial(replaced, one_input_with_skips, "_next", wrong_stream(name))
        yield Fault(f"{words.get(name, name)}, one input with skips", inject, claims)
    inject = functools.partial(replaced, one_input_with_skips, "_next", no_memory)
    yield Fault("no memory of a neuron", inject, ("residual.memory", "residual.memory-sampled"))
    for function, wrong, what in (
        ("_two_layers", scaled_result, "correlation of two layers"),
        ("self_interaction", wrong_self_interaction, "action of a neuron on itself"),
        ("bare_averages", wrong_bare, "bare pairs"),
    ):
        inject = functools.partial(replaced, streams, function, wrong)
        yield Fault(f"{what}, several inputs with skips", inject, ("residual.memory",))
    inject = functools.partial(replaced, residual, "scale_invariant_vertex", without_memory_of_relu)
    yield Fault("no memory of relu networks", inject, ("residual.relu",))


def wrong_self_interaction(original, *arguments):
    return tuple(FACTOR * term for term in original(*arguments))


def wrong_bare(original, *arguments):
    return {family: FACTOR * value for family, value in original(*arguments).items()}


FAULTS = {fault.name: fault for fault in (*_statistics(), *_training(), *_streams(), *_orthogonal())}
