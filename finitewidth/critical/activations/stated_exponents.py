r"""Critical exponents as the theory states them: powers of the depth at criticality.

A statistic $X \sim l^{-p}$ has exponent p. With the learning rates of the equivalence principle (PDLT
sections 9.4, 11.3 and infinity.1) every ratio $V/K^2$, $B/\Theta^2$, ..., $RK/\Theta^3$ that matters has
exponent -1: it grows as depth over width. The exponents of K, of a small separation of directions and of
Theta are $p_0$, $p_\perp$ and $p_\Theta = p_\perp - 1$.
"""

from finitewidth.network.layers.activation import Activation

FINITE_WITH_KINKS = ("V", "D", "A", "F", "B")
ALL = (*FINITE_WITH_KINKS, "P", "Q", "R", "S", "T", "U")
_VANISHING_IF_LINEAR = ("P", "R", "U")


def stated_exponents(
    universality_class: str, activation: Activation, p_0: float, p_perp: float
) -> dict[str, float]:
    """The exponents that the theory states; tensors that vanish or do not exist are left out.

    The exponents of tensors are stated for scale-invariant activations, and for smooth ones at K* = 0 that
    have p_0 = 1.
    """
    means = {"p_0": p_0, "p_perp": p_perp, "p_Theta": p_perp - 1}
    if universality_class == "scale-invariant":
        linear = activation.is_smooth
        names = [n for n in ALL if n not in _VANISHING_IF_LINEAR] if linear else FINITE_WITH_KINKS
        return means | dict.fromkeys(names, -1.0)
    if activation.is_smooth and p_0 == 1.0:
        return means | dict.fromkeys(ALL, -1.0) | {"U": 1.0 if p_perp == 1.0 else 0.0}
    return means
