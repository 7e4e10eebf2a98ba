"""The tensors of order 1/n: names, what each is made of, and where each exists.

A tensor is a matrix between a row pair (a b) and a column pair (c d) of samples: the average of a row feature
and a column feature of one neuron, times factors of Theta that tie rows to columns.
"""

from dataclasses import dataclass

from finitewidth.network.network import Network

MATRICES = ("K", "Theta", "G1", "H1")
TENSORS = ("V", "D", "A", "F", "B", "P", "Q", "R", "S", "T", "U")
ATTENTION_TENSORS = ("V",)  # known where heads are drawn
BARE_TENSORS = ("V", "F", "B")  # exist with kinks even between parallel inputs
KINKED_TENSORS = ("V", "D", "A", "F", "B")  # exist where sigma'' is a delta function


@dataclass(frozen=True)
class Shape:
    """What distinguishes a tensor: its features, the ties of Theta and its printed order of slots."""

    row: str
    column: str
    ties: tuple[str, ...] = ()  # pairs of the labels a b | c d, each tied by a factor of Theta
    centred: bool = False  # a covariance, not a second moment
    printed: str = "abcd"  # the labels in the order in which the tensor's subscripts are printed


SHAPES = {
    "V": Shape("v", "v", centred=True),
    "D": Shape("x", "v", centred=True),
    "A": Shape("x", "x", centred=True),
    "F": Shape("f", "f", ("ac",)),
    "Q": Shape("y", "f", ("ac",)),
    "T": Shape("y", "y", ("ac",), printed="abdc"),
    "B": Shape("b", "b", ("ac", "bd")),
    "P": Shape("p", "b", ("ac", "ad"), printed="acdb"),
    "R": Shape("r", "b", ("ac", "ad")),
    "S": Shape("s", "b", ("ac", "bd")),
    "U": Shape("u", "u", ("ac", "ad", "cb")),
}


def existing(net: Network, layer: int) -> tuple[str, ...]:
    """The tensors that exist at a layer: those that no kink below makes infinite.

    In layer 1 all vanish, and those are shown that exist in layer 2.
    """
    if net.unknown_layer is not None:  # beyond dense layers and residual blocks of them
        return ATTENTION_TENSORS if net.has_attention else KINKED_TENSORS
    return KINKED_TENSORS if _has_kink_below(net, layer) else TENSORS


def stderr_name(name: str) -> str:
    """The name of the standard error of a statistic, where heads are drawn."""
    return f"{name}_stderr"


def _has_kink_below(net: Network, layer: int) -> bool:
    return net.kinked_layer <= max(layer - 1, 1)


def why_missing(net: Network, layer: int, name: str) -> str:
    """Why a statistic of a layer is not there, and the remedy."""
    jumping = net.discontinuous
    if jumping is not None and name != "K":
        return (
            f"{name} does not exist: activation {jumping.name!r} has a kernel but no NTK, since its "
            "derivative is a delta function; use a continuous activation."
        )
    if net.has_attention and name not in ("G1", "V"):
        return f"{name} behind fw.SelfAttention is not known at order 1/n; K, G1 and V are."
    if net.unknown_layer is not None and name in TENSORS and name not in KINKED_TENSORS:
        return (
            f"{name} is known of dense layers, activations and residual blocks of them; a network with "
            f"{net.unknown_layer} has V, D, A, F and B."
        )
    if name in TENSORS and name not in KINKED_TENSORS and _has_kink_below(net, layer):
        assert net.kinked is not None
        return (
            f"{name} does not exist: activation {net.kinked.name!r} has a kink, where derivatives of "
            f"sigma are delta functions and {name} is infinite or depends on how the kink is smoothed; "
            "use a smooth activation such as gelu or swish."
        )
    return f"{name} was not computed; use fw.solve(net, X, order=1) without tensors=, or add to them."
