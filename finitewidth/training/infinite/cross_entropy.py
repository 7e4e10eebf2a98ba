r"""Classification: targets as probabilities, and training on the cross-entropy at infinite width.

With $q = \mathrm{softmax}(z/T)$ and target probabilities p the outputs follow (PDLT 10.36-10.38)

$$\frac{dz_d}{dt} = -\frac1T\, \Theta_{dA}\,(q_A - p_A),$$

which is not linear in z. The mean over output components is never moved, since probabilities sum to one.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp

from finitewidth.core.inputs import as_inputs, as_targets
from finitewidth.core.memory import require_memory
from finitewidth.network.algorithm import Algorithm, GradientDescent, GradientFlow, Schedule
from finitewidth.network.loss import CrossEntropy
from finitewidth.network.mlp import MLP
from finitewidth.theory.kernels import kernels
from finitewidth.training.infinite.fitting import fit, require_ntk
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.learned import at_time, is_finished
from finitewidth.training.infinite.sampled import SampledPrediction, gaussian_members
from finitewidth.training.infinite.solver import largest_eigenvalue

_MOST_STIFF = 1e5  # largest eigenvalue times time that the integrator of gradient flow takes on


def one_hot(labels, classes: int, *, smoothing: float = 0.0) -> Float[np.ndarray, "N classes"]:
    """Labels 0, 1, ... as probabilities: 1 - smoothing for the label, the rest shared by the others."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"labels must be whole numbers in one row, got {labels.dtype} of shape {labels.shape}."
        )
    if not (isinstance(classes, int | np.integer) and classes >= 2):
        raise ValueError(f"classes must be a whole number of at least 2, got {classes!r}.")
    if labels.size and not (0 <= labels.min() and labels.max() < classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise ValueError(f"labels must lie between 0 and {classes - 1}, got {wrong}; raise classes.")
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing must lie between 0 and 1, got {smoothing!r}.")
    probabilities = np.full((labels.size, int(classes)), smoothing / (classes - 1))
    probabilities[np.arange(labels.size), labels] = 1 - smoothing
    return probabilities


def softmax(z: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Probabilities of the classes (last axis)."""
    shifted = np.exp(z - z.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def outputs_of(probabilities, *, temperature: float = 1.0) -> Float[np.ndarray, "N n_L"]:
    """Outputs y with softmax(y / temperature) = p and component mean zero; a shift of all y says the same."""
    p = as_probabilities(probabilities, name="probabilities")
    if (p <= 0).any():
        row = int(np.argmax((p <= 0).any(axis=1)))
        raise ValueError(
            f"row {row} of probabilities has an entry of zero, which puts its output at minus infinity; "
            "use fw.one_hot(labels, classes, smoothing=0.1), or stop training early."
        )
    logs = temperature * np.log(p)
    return logs - logs.mean(axis=1, keepdims=True)


def as_probabilities(Y, *, name: str) -> np.ndarray:
    p = np.asarray(Y, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] < 2:
        raise ValueError(f"{name} must have one column for each of two or more classes, got shape {p.shape}.")
    if not ((p >= 0).all() and np.allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-9)):
        row = int(np.argmax((p < 0).any(axis=1) | (np.abs(p.sum(axis=1) - 1) > 1e-9)))
        raise ValueError(
            f"{name} must hold probabilities, but row {row} sums to {p[row].sum():.6g} with smallest entry "
            f"{p[row].min():.6g}; use fw.one_hot(labels, classes, smoothing=...)."
        )
    return p


def predict_cross_entropy(
    net: MLP, X_train, Y_train, X_test, *, algorithm: Algorithm, loss: CrossEntropy, members: int, key
) -> Prediction | SampledPrediction:
    """Trained to the end: Gaussian, in closed form. Stopped before: sampled over z(0) ~ Normal(0, K)."""
    X = as_inputs(X_train, net.widths[0], name="X_train")
    p = as_probabilities(as_targets(Y_train, X.shape[0], net.widths[-1]), name="Y_train")
    if isinstance(algorithm, Schedule):
        raise ValueError(
            "fw.Schedule is for loss=fw.MSE(); with cross-entropy use GradientFlow or GradientDescent."
        )
    if not is_finished(algorithm):
        times = (algorithm.time if isinstance(algorithm, GradientFlow) else algorithm.steps,)  # type: ignore[union-attr]
        return cross_entropy_path(net, X, p, X_test, algorithm, loss, times, members=members, key=key)[0]
    if (p == 0).any():
        raise ValueError(
            "Y_train has probabilities of zero (one-hot labels): the cross-entropy pulls outputs to infinity "
            "and training has no end; stop at a finite time, or use fw.one_hot(..., smoothing=0.1)."
        )
    return _trained_to_the_end(net, X, p, X_test, algorithm, loss)


def _trained_to_the_end(net, X, p, X_test, algorithm, loss: CrossEntropy) -> Prediction:
    """Kernel prediction of y = T log p, except that the mean over components stays as it was.

    Cov = (delta_ij - 1/n_L) L K L^T + (1/n_L) K.
    """
    y = outputs_of(p, temperature=loss.temperature)
    if isinstance(algorithm, GradientDescent):
        _check_rate(algorithm.learning_rate, kernels(net, X).Theta, loss)
        algorithm_of_leap: Algorithm = GradientFlow()
    else:
        algorithm_of_leap = algorithm
    leap = fit(net, X, y, algorithm=algorithm_of_leap).predict(X_test)
    assert leap.factors is not None
    among, outputs = leap.factors[0][1], net.widths[-1]
    common = np.full((outputs, outputs), 1 / outputs)
    prior = kernels(net, as_inputs(X_test, net.widths[0], name="X_test")).K
    factors = ((np.eye(outputs) - common, among), (common, prior))
    return Prediction(net, algorithm, 0, leap.mean, factors, leap.condition, leap.error)


def _check_rate(learning_rate: float, Theta, loss: CrossEntropy) -> None:
    largest = largest_eigenvalue(Theta)
    limit = 4 * loss.temperature**2 / largest if largest > 0 else math.inf
    if learning_rate >= limit:
        raise ValueError(
            f"learning_rate={learning_rate:.6g} is not below 4 T^2 / {largest:.6g} = {limit:.6g}, with T the "
            "temperature and the largest eigenvalue of the training NTK below it: descent on the "
            "cross-entropy may not settle; lower it."
        )


def cross_entropy_path(
    net: MLP,
    X: np.ndarray,
    p: np.ndarray,
    X_test,
    algorithm: Algorithm,
    loss: CrossEntropy,
    times,
    *,
    members: int,
    key,
) -> list[SampledPrediction]:
    """One ensemble at each of several times (flow) or numbers of steps (descent)."""
    require_ntk(net)
    if not (isinstance(members, int | np.integer) and members >= 2):
        raise ValueError(f"members must be a whole number of at least 2, got {members!r}.")
    X_test = as_inputs(X_test, net.widths[0], name="X_test")
    N, total, outputs = X.shape[0], X.shape[0] + X_test.shape[0], p.shape[1]
    require_memory(
        8
        * (4 * total**2 + members * outputs * (16 * N + 4 * total) + len(times) * members * outputs * total),
        f"{members} members on {total} inputs",
        "ask for fewer members",
    )
    found = kernels(net, np.concatenate([X, X_test]))
    assert found.Theta is not None
    z = gaussian_members(found.K, int(members), outputs, key)
    Theta = found.Theta[:N, :N]
    moved = _dual_path(Theta, z[:, :N], p, algorithm, loss, times)
    condition = float(np.linalg.cond(Theta))
    results = []
    for time, c in zip(times, moved, strict=True):
        trained = z[:, N:] - np.einsum("da,mai->mdi", found.Theta[N:, :N], c, optimize=True)
        stopped = at_time(algorithm, time)
        q = softmax(trained / loss.temperature)
        results.append(SampledPrediction(net, stopped, loss, trained, q, condition, found.error))
    return results


def _dual_path(Theta, z, p, algorithm, loss: CrossEntropy, times) -> list[np.ndarray]:
    """c(t) with z_A(t) = z_A - Theta c(t), for every member: (members, N, n_L) at each time."""
    T = loss.temperature

    def force(c: np.ndarray) -> np.ndarray:
        return (softmax((z - np.einsum("ab,mbi->mai", Theta, c, optimize=True)) / T) - p) / T

    order = np.argsort(times)
    results: list[np.ndarray] = [np.empty(0)] * len(order)
    c, now = np.zeros_like(z), 0.0
    if isinstance(algorithm, GradientDescent):
        _check_rate(algorithm.learning_rate, Theta, loss)
        for index in order:
            for _ in range(int(times[index] - now)):
                c = c + algorithm.learning_rate * force(c)
            results[index], now = c, times[index]
        return results
    stiffness = largest_eigenvalue(Theta) * max(times) / T**2
    if stiffness > _MOST_STIFF:
        raise ValueError(
            f"time={max(times):.3g} is {stiffness:.1e} times the shortest time scale of learning, beyond the "
            f"{_MOST_STIFF:.0e} that is integrated; stop earlier."
        )
    for index in order:
        c = _flow(force, c, times[index] - now)
        results[index], now = c, times[index]
    return results


def _flow(force, c: np.ndarray, duration: float) -> np.ndarray:
    if duration == 0:
        return c
    flat = solve_ivp(
        lambda _, state: force(state.reshape(c.shape)).ravel(),
        (0.0, duration),
        c.ravel(),
        method="DOP853",
        rtol=1e-9,
        atol=1e-12,
        t_eval=(duration,),
    )
    if not flat.success:
        raise ValueError(f"gradient flow on the cross-entropy could not be integrated: {flat.message}")
    return flat.y[:, -1].reshape(c.shape)
