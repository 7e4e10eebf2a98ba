r"""Infinitely wide networks trained on any loss, in the space of their outputs.

Outputs follow (PDLT 10.36-10.38)

$$\frac{dz_d}{dt} = -\Theta_{dA}\, \frac{dL}{dz_A},$$

which is linear in z for the squared error alone. The end of training is the kernel prediction of the outputs
that minimize the loss, except for components that no gradient moves. Before the end, members z ~ Normal(0, K)
are drawn and trained.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from finitewidth.core.keys import as_key
from finitewidth.core.memory import require_memory
from finitewidth.core.methods import FunctionSpace, as_method
from finitewidth.core.run import Run
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.network import Network
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.fitting import fit_outputs, ntk
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.sampled import SampledPrediction, gaussian_members
from finitewidth.training.infinite.solver import largest_eigenvalue


def drawing(method: object, loss: AbstractLoss, *, at_end: bool = False) -> FunctionSpace | None:
    """How networks are drawn; None where their distribution is known in closed form."""
    method = as_method(method, (FunctionSpace,), where="with order=0")
    if method is not None and at_end:
        raise ValueError(
            f"method=fw.{method!r} draws networks before the end of training; at the end they are known "
            "in closed form: remove it, or stop at a finite time."
        )
    closed = at_end or loss.is_squared_error
    return FunctionSpace() if method is None and not closed else method


def refuse_where_drawn(**asked: object) -> None:
    """Refuse what belongs to the closed form."""
    for name, value in asked.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} has no meaning where networks are drawn in function space; remove it."
            )


def end_of_training(
    net: Network,
    X: np.ndarray,
    Y: np.ndarray,
    X_test: np.ndarray,
    algorithm: AbstractAlgorithm,
    loss: AbstractLoss,
    *,
    run: Run | None,
    covariance: bool,
) -> Prediction:
    """Cov = (1 - P) L K L^T + P K, with P the projector on components that training never moves."""
    loss.check_targets(Y)
    fitted = fit_outputs(net, X, loss.minimizer(Y), algorithm, loss, run=run)
    trained = fitted.predict(X_test, covariance=covariance)
    unmoved = loss.unmoved(net.outputs)
    if unmoved is None or trained.factors is None:
        return trained
    factors = ((np.eye(net.outputs) - unmoved, trained.factors[0][1]), (unmoved, kernels(net, X_test).K))
    return dataclasses.replace(trained, factors=factors)


def sampled_trajectory(
    net: Network,
    X: np.ndarray,
    Y: np.ndarray,
    X_test: np.ndarray,
    stops: Sequence[AbstractAlgorithm],
    loss: AbstractLoss,
    method: FunctionSpace,
) -> list[SampledPrediction]:
    """The same sampled members at each of several ends of one algorithm."""
    loss.check_targets(Y)
    members, key = method.members, as_key(method.raw_key)
    N, total, outputs = X.shape[0], X.shape[0] + X_test.shape[0], Y.shape[1]
    require_memory(
        8
        * (4 * total**2 + members * outputs * (16 * N + 4 * total) + len(stops) * members * outputs * total),
        f"{members} members on {total} inputs",
        "ask for fewer members",
    )
    both = kernels(net, np.concatenate([X, X_test]))
    Theta = ntk(both)
    z = gaussian_members(both.K, members, outputs, key)
    coefficients = _coefficients(Theta[:N, :N], z[:, :N], Y, stops, loss, jax.random.fold_in(key, 1))
    condition = float(np.linalg.cond(Theta[:N, :N]))
    predictions = []
    for stop, c in zip(stops, coefficients, strict=True):
        trained = z[:, N:] - np.einsum("da,mai->mdi", Theta[N:, :N], c, optimize=True)
        probabilities = loss.probabilities(trained)
        predictions.append(
            SampledPrediction(net, stop, loss, trained, probabilities, condition, both.error, method)
        )
    return predictions


def _coefficients(
    Theta: np.ndarray,
    z: np.ndarray,
    Y: np.ndarray,
    stops: Sequence[AbstractAlgorithm],
    loss: AbstractLoss,
    key,
) -> list[np.ndarray]:
    """c with z_A - Theta c the trained outputs of every member: (members, N, n_L) at each stop."""
    gradient = jax.jit(loss.gradient)
    last = max(stops, key=lambda stop: stop.end)
    largest = largest_eigenvalue(Theta)
    for stop in stops:
        stop.check_stable(largest, loss)
    masks = last.masks(len(Theta), len(z) if last.draws_batches else 1, key) if last.mixes_modes else None

    def force(c: np.ndarray, step: int) -> np.ndarray:
        outputs = z - np.einsum("ab,mbi->mai", Theta, c, optimize=True)
        slope = np.asarray(gradient(outputs, np.broadcast_to(Y, outputs.shape)))
        return slope if masks is None else masks[:, step, :, None] * slope

    order = np.argsort([stop.end for stop in stops], kind="stable")
    found = last.replay(force, np.zeros_like(z), [stops[index].end for index in order])
    return [found[int(np.argmax(order == index))] for index in range(len(stops))]
