"""The evidence of data for a prior, log p(y), through order 1/n, and its gradient."""

import numpy as np

from finitewidth.core.display.user_warnings import warn
from finitewidth.core.inputs import ArrayLike
from finitewidth.core.methods import Tensors
from finitewidth.core.run import Run, runner
from finitewidth.core.tasks import HERE, Runner
from finitewidth.network.foreign.reading import takes_models
from finitewidth.network.mlp import MLP
from finitewidth.network.network import Network
from finitewidth.training.bayes.bayesian_problem import BayesianProblem, checked, tolerance_of
from finitewidth.training.bayes.conditioned_prior import ConditionedPrior
from finitewidth.training.bayes.posterior_corrections import Derivatives, evidence_correction
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.infinite.bayes import Evidence, infinite_evidence
from finitewidth.training.neglected.posteriors import evidence_truncation
from finitewidth.training.neglected.truncation import depth_over_width

_STEP = 1e-3  # of central differences, relative to the hyperparameter
_DIFFERENCED = 1e-10  # accuracy of four-leg averages whose differences are taken


@takes_models
def evidence(
    net: Network,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    noise: float = 0.0,
    order: int = 1,
    gradient: bool = True,
    method: Tensors | None = None,
    run: Run | None = None,
) -> Evidence:
    """The log probability density of data under the prior, with noise of a given variance.

    At order 1 log p is linear in 1/n: a positive correction Q/n prefers narrow networks, a negative one wide
    networks, and neither has a best width. Q is quadratic in the data; a correction of the size of one
    makes the value meaningless, see `verdict`.

    The gradient is by C_b and C_W of each layer and by the noise; it is None for an activation that jumps and
    for networks with other layers than dense ones. At order 1 it is known in closed form for the last layer
    and the noise, and by central differences over the solver for the layers below, four solutions for each of
    them.

    Args:
        net: The network.
        X: Inputs (N, n_0).
        Y: Observed targets (N, n_L).
        noise: The variance of the observations.
        order: 0 is infinite width, 1 adds Q/n.
        gradient: Whether to compute the gradient.
        method: The accuracy of four-leg averages at order 1, an `fw.Tensors`.
        run: Store, cluster and progress of order 1, an `fw.Run`.

    Returns:
        The `value`, its `gradient`, and at order 1 the `correction` and a `verdict`.

    ```python
    fw.bayes.evidence(net, X, Y, noise=0.1, gradient=False).value
    ```
    """
    if checked(order, method, run) == 0:
        return infinite_evidence(net, X, Y, noise=noise, gradient=gradient)
    problem = BayesianProblem.of(net, X, Y, None, noise, tolerance_of(method))
    with runner(run, kind="evidence", configuration=problem.described) as running:
        value = _first_order(running, problem, gradient=gradient)
    _warn_of(value)
    return value


def _first_order(running: Runner, problem: BayesianProblem, *, gradient: bool) -> Evidence:
    net, n = problem.net, problem.net.ladder.widths[-2]
    infinite = infinite_evidence(net, problem.X, problem.Y, noise=problem.noise, gradient=gradient)
    fields, given = problem.prepared(running, tests=False)
    corrected = evidence_correction(given, fields.vertex(net.depth), running=running)
    neglected = evidence_truncation(corrected.parts / n, corrected.change / n, depth_over_width(net))
    slope = None
    if infinite.gradient is not None:
        of_Q = _gradient(problem, given, corrected.derivatives)
        slope = {name: part + of_Q[name] / n for name, part in infinite.gradient.items()}
    return Evidence(net, infinite.value + corrected.Q / n, slope, given.condition, 1, infinite, neglected)


def _gradient(
    problem: BayesianProblem, given: ConditionedPrior, derivatives: Derivatives
) -> dict[str, np.ndarray]:
    """The gradient of Q: in closed form for the last layer and the noise, else by central differences."""
    net, P = problem.net, derivatives.by_kernel
    C_b, C_W = net.C_b[-1], net.C_W[-1]
    K = given.K[np.ix_(given.train, given.train)]
    gradient = {"C_b": np.zeros(net.depth), "C_W": np.zeros(net.depth), "noise": np.asarray(np.trace(P))}
    gradient["C_b"][-1] = P.sum()
    gradient["C_W"][-1] = ((P * (K - C_b)).sum() + derivatives.by_shift + 2 * derivatives.by_vertex) / C_W
    for name in ("C_b", "C_W"):
        for layer in range(net.depth - 1):
            gradient[name][layer] = _difference(problem, name, layer)
    return gradient


def _difference(problem: BayesianProblem, name: str, layer: int) -> float:
    """A derivative of Q; one-sided where the hyperparameter is zero and cannot be lowered."""
    value = getattr(problem.net, name)[layer]
    if value == 0:
        base, near, far = (_changed(problem, name, layer, step * _STEP) for step in (0, 1, 2))
        return (4 * near - 3 * base - far) / (2 * _STEP)
    step = _STEP * value
    above, below = (_changed(problem, name, layer, value + sign * step) for sign in (1, -1))
    return (above - below) / (2 * step)


def _changed(problem: BayesianProblem, name: str, layer: int, value: float) -> float:
    """Q with one hyperparameter changed."""
    values = [*getattr(problem.net, name)]
    values[layer] = value
    tolerance = _DIFFERENCED if problem.net.is_smooth else problem.tolerance
    net = _with(problem.net, name, values)
    changed = BayesianProblem(net, problem.X, problem.Y, None, problem.noise, tolerance)
    fields, given = changed.prepared(HERE, tests=False)
    return evidence_correction(given, fields.vertex(net.depth)).Q


def _with(net: Network, name: str, values: list[float]) -> Network:
    """A network of dense layers with other C_b or C_W."""
    if not isinstance(net, MLP):
        net = MLP(net.widths, net.activations, C_b=net.C_b, C_W=net.C_W, weights=net.weights)
    return net.replace(**{name: tuple(values)})


def _warn_of(value: Evidence) -> None:
    if value.verdict != "trusted":
        warn(
            f"order 1/n of the log evidence is {value.verdict}: it adds {value.correction:.3g} and leaves it "
            f"uncertain by {value.uncertainty:.2g}; widen the network, use fewer data, or take a prior and a "
            "noise that fit the scale of the data.",
            ExpansionWarning,
        )
