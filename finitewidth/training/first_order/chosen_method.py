"""How order 1/n is computed: the methods that it knows, and which one serves a problem."""

import dataclasses
import math
from typing import Any

from finitewidth.core.methods import FirstOrder as Method
from finitewidth.core.methods import LegByLeg, Sampling, Tensors, as_method

DENSE = 64  # samples; beyond, tensors of N^4 numbers are avoided unless they are asked for
_TOLERANCES = {16: 1e-8, 32: 1e-6, math.inf: 1e-5}  # of four-leg averages, by number of samples


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A method for so many samples, and whether it gives the covariance.

    The method is None where tensors are not whole, until the algorithm says whether neurons can be drawn.
    """

    method: Method | None
    covariance: bool
    tolerance: float  # of four-leg averages

    @classmethod
    def of(cls, method: Any, covariance: bool | None, count: int, *, has_skips: bool) -> "Chosen":
        """Choose where a user left the choice, and refuse what does not go together."""
        method = as_method(method, (Tensors, LegByLeg, Sampling), where="with order=1")
        if not (covariance is None or isinstance(covariance, bool)):
            raise ValueError(f"covariance must be True, False or None, got {covariance!r}.")
        _check(method, covariance, has_skips)
        given = None if method is None or isinstance(method, Sampling) else method.tolerance
        tolerance = given or next(tolerance for most, tolerance in _TOLERANCES.items() if count <= most)
        if method is None and (covariance or count <= DENSE):
            method = Tensors()
        if method is None or isinstance(method, Sampling):
            return cls(method, False, tolerance)
        gives = isinstance(method, Tensors) and covariance is not False
        return cls(dataclasses.replace(method, tolerance=tolerance), gives, tolerance)

    def described(self) -> dict[str, object]:
        """The method in the configuration of a store, by its arguments; a budget changes no number."""
        if self.method is None:
            return {"method": None, "covariance": self.covariance}
        arguments = {name: value for name, value in vars(self.method).items() if name != "budget"}
        return {"method": type(self.method).__name__, "covariance": self.covariance, **arguments}


def _check(method: Method | None, covariance: bool | None, has_skips: bool) -> None:
    if isinstance(method, Sampling) and has_skips:
        raise ValueError(
            "fw.Sampling knows dense networks only, and this one has skip connections; use fw.Tensors or "
            "fw.LegByLeg."
        )
    if isinstance(method, Sampling) and covariance:
        raise ValueError(
            "fw.Sampling gives the mean and, with variance=True, the variance of each output, got "
            "covariance=True; use fw.Sampling(variance=True), or method=fw.Tensors()."
        )
    if isinstance(method, LegByLeg) and covariance:
        raise ValueError("fw.LegByLeg gives the mean alone, got covariance=True; use method=fw.Tensors().")
    if isinstance(method, Tensors) and method.remember is not True and not has_skips:
        raise ValueError(
            f"remember={method.remember!r} of fw.Tensors has no meaning for a network without skip "
            "connections, whose neurons remember nothing; remove it."
        )
