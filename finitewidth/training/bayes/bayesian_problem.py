"""A Bayesian problem at order 1/n: network and data checked, equal inputs merged, statistics prepared."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from finitewidth.core import methods
from finitewidth.core.checkpoint import digest
from finitewidth.core.inputs import as_inputs, merge_inputs
from finitewidth.core.methods import Tensors, as_method
from finitewidth.core.run import Run, as_run
from finitewidth.core.tasks import HERE, Runner
from finitewidth.network.network import Network
from finitewidth.theory.vertex.fields import Fields, fields
from finitewidth.training.bayes.conditioned_prior import ConditionedPrior
from finitewidth.training.first_order.learning_problem import check_widths
from finitewidth.training.infinite.bayes import invert, observations


@dataclass(frozen=True, eq=False)
class BayesianProblem:
    """A network, noisy observations and test inputs that have passed the checks of order 1/n."""

    net: Network
    X: Float[np.ndarray, "N_A n0"]
    Y: Float[np.ndarray, "N_A n_L"]
    X_test: Float[np.ndarray, "N_B n0"] | None  # None stands for the training inputs
    noise: float
    tolerance: float | None  # of four-leg averages

    @classmethod
    def of(
        cls, net: Network, X_train, Y_train, X_test, noise: float, tolerance: float | None
    ) -> "BayesianProblem":
        """The problem of a network and data as a user gave them, after all checks."""
        check_prior(net)
        X, Y = observations(net, X_train, Y_train, noise)
        X_test = None if X_test is None else as_inputs(X_test, net.input_shape, name="X_test")
        return cls(net, X, Y, X_test, float(noise), tolerance)

    def merged(self) -> tuple[np.ndarray, Int[np.ndarray, " N_A"], Int[np.ndarray, " N_B"]]:
        """Distinct inputs, and the places of training and test samples among them."""
        count = len(self.X)
        everything = self.X if self.X_test is None else np.concatenate([self.X, self.X_test])
        distinct, places = merge_inputs(everything)
        return distinct, places[:count], places[:count] if self.X_test is None else places[count:]

    def prepared(self, running: Runner = HERE, *, tests: bool = True) -> tuple[Fields, ConditionedPrior]:
        """Statistics of the preactivations, and the prior of infinite width conditioned on the data.

        The training kernel is inverted first: where that is refused, nothing else is computed.
        """
        X, train, places = self.merged() if tests else (*merge_inputs(self.X), np.arange(0))
        unaveraged = fields(self.net, X, tolerance=self.tolerance)
        K = unaveraged.K[-1]
        solved = invert(self.net, self.X, self.Y, K[np.ix_(train, train)], self.noise)
        given = ConditionedPrior.of(K, self.Y, train, places, solved, exact=self.noise == 0)
        return unaveraged.with_averages(running), given

    def described(self) -> dict:
        """Everything that a posterior depends on, for the store of a run."""
        return {
            "network": self.net.to_dict(),
            "X_train": digest(self.X),
            "Y_train": digest(self.Y),
            "X_test": None if self.X_test is None else digest(self.X_test),
            "noise": self.noise,
            "four_leg_tolerance": self.tolerance,
        }


def checked(order: int, method: Tensors | None, run: Run | None) -> int:
    """The order, with what acts at it; what order 0 does not look at is refused."""
    if order not in (0, 1):
        raise ValueError(f"order must be 0 (infinite width) or 1 (through 1/n), got {order!r}.")
    if order == 0:
        as_method(method, (), where="at order 0")
        as_run(run, tasks=False)
    return order


def tolerance_of(method: Tensors | None) -> float | None:
    """The accuracy of four-leg averages, all that a posterior asks of its method."""
    method = as_method(method, (Tensors,), where="in fw.bayes") or Tensors()
    methods.only(method, ("tolerance",), "in fw.bayes")
    return method.tolerance


def check_prior(net: Network) -> None:
    """Refuse networks whose prior is not given by K, G1 and V at order 1/n."""
    ladder = net.ladder
    if net.discontinuous is not None:
        raise ValueError(
            f"activation {net.discontinuous.name!r} jumps, and order 1/n needs a continuous one; use "
            "order=0, or a smooth activation such as erf."
        )
    if ladder.skips[-1] is not None:
        raise ValueError(
            "a skip ends in the output of this network, whose neurons then have higher cumulants of order "
            "1/n that K, G1 and V do not hold; add fw.Dense(outputs) behind it, or use order=0."
        )
    check_widths(net)
