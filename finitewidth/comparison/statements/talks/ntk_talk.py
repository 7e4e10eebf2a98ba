"""Talk about the paper "Neural Tangent Kernel" of Jacot, Gabriel and Hongler."""

from collections.abc import Iterator

import numpy as np
import scipy.linalg
from scipy.integrate import solve_ivp

from finitewidth.comparison.claim import claim
from finitewidth.comparison.evidence import Comparison, agree, falls, root_mean_square
from finitewidth.comparison.statements.problems import (
    EXACT,
    ONE_OUTPUT,
    TRAINING,
    X,
    Y,
    at_the_end,
    frozen_ntk,
    kernels_of,
    networks,
    of_members,
    pair_averages,
    predicted,
)
from finitewidth.experiment.ensemble.plan import Record, Stepping
from finitewidth.network.algorithms.gradient_descent import GradientDescent
from finitewidth.network.mlp import MLP
from finitewidth.theory.kernels import kernels
from finitewidth.theory.solve import solve
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.trajectories import trajectory

SOURCE = "Talk: Neural Tangent Kernel (Jacot, Gabriel, Hongler)"
WIDTHS = (32, 128)
DRAWN, TRAINED = 400, 100
NET = MLP.ntk_parametrization((3, 8, 8, 1), "erf", beta=0.1)
TARGETS = Y[:, :1]


def of_width(n: int) -> MLP:
    return NET.replace(widths=(3, n, n, 1))


@claim(
    "ntk-talk.deterministic",
    SOURCE,
    "As the width grows the NTK of a random network tends to a deterministic kernel: its fluctuations fall "
    "as n^(-1/2).",
    f"sampled networks: {DRAWN} of each of the widths {WIDTHS}",
)
def deterministic() -> Iterator[Comparison]:
    Theta, spread = frozen_ntk(NET, X), []
    for n in WIDTHS:
        H = of_members(of_width(n), X, DRAWN, n, kernels_of).H[:, 0, :, 0]
        spread.append(root_mean_square(H - Theta))
    yield falls("deviation of a network's NTK", 0.5, WIDTHS, spread)


@claim(
    "ntk-talk.constant",
    SOURCE,
    "As the width grows the NTK becomes constant during training: its relative movement falls as 1/n.",
    f"trained networks: {TRAINED} of each of the widths {WIDTHS}, 40 steps",
)
def constant() -> Iterator[Comparison]:
    moved = []
    for n in WIDTHS:
        descent, record = GradientDescent(0.3, 40), Record(ntk=True)
        ensemble = networks(of_width(n), ONE_OUTPUT, descent, TRAINED, 4, record=record)
        moved.append(at_the_end(ensemble.ntk_movement))
    yield falls("movement of the NTK", 1.0, WIDTHS, moved)


@claim(
    "ntk-talk.trajectory",
    SOURCE,
    "Outputs follow f_t(x) = f_0(x) + Theta(x, X) Theta(X, X)^-1 (e^(-Theta t) - 1) (f_0(X) - y) at every "
    "time.",
    "closed form, against integration of the differential equation, error 1e-10",
)
def closed_form_trajectory() -> Iterator[Comparison]:
    times = (0.1, 1.0, 5.0)
    Theta = frozen_ntk(NET, X)
    T, y = slice(TRAINING), np.concatenate([TARGETS[:, 0], [0.0, 0.0]])
    flow = solve_ivp(
        lambda _, f: -Theta[:, T] @ (f[T] - y[T]),
        (0, times[-1]),
        np.zeros(len(X)),
        "DOP853",
        times,
        rtol=1e-11,
        atol=1e-12,
    )
    path = trajectory(NET, X[T], TARGETS, X, times=times, order=0)
    yield agree("mean over time", flow.y.T, path.mean[..., 0], 1e-8)
    for t, prediction in zip(times, path.predictions, strict=True):
        inner = Theta[T, T]
        shift = Theta[:, T] @ np.linalg.inv(inner) @ (scipy.linalg.expm(-inner * t) - np.eye(TRAINING))
        kept = np.eye(len(X))
        kept[:, T] += shift
        assert isinstance(prediction, Prediction)
        yield agree("mean as printed", -shift @ y[T], prediction.mean[:, 0], EXACT)
        covariance = kept @ kernels(NET, X).K @ kept.T
        yield agree("covariance", covariance, prediction.covariance[:, 0, :, 0], EXACT)


@claim(
    "ntk-talk.perfect-fit",
    SOURCE,
    "At the end of training the training data are fitted perfectly.",
    "trained networks: 50 of width 64, until the loss is below 1e-16",
)
def perfect_fit() -> Iterator[Comparison]:
    method = Stepping(training_error=1e-16)
    ensemble = networks(of_width(64), ONE_OUTPUT, GradientDescent(0.4), 50, 1, method=method)
    yield agree("mean on the training data", TARGETS, ensemble.train_mean.value, 1e-6)
    variance = np.einsum("aiai->ai", ensemble.output_covariance.value[-1])[:TRAINING]
    yield agree("variance on the training data", 0.0, variance, 1e-12, scale=1.0)
    short = ensemble.unfinished + ensemble.diverged
    yield agree("networks that do not reach it", 0.0, short, EXACT, scale=1.0)
    theory = predicted(NET, X[:TRAINING], TARGETS, X, order=0)
    yield agree("mean in theory", TARGETS, theory.mean[:TRAINING], EXACT)


@claim(
    "ntk-talk.kernel-regression",
    SOURCE,
    "Networks that start from zero end at kernel regression with the NTK: y Theta(X, X)^-1 Theta(X, x).",
    "closed form, against kernel ridge regression of scikit-learn without ridge",
)
def kernel_regression() -> Iterator[Comparison]:
    from sklearn.kernel_ridge import KernelRidge

    Theta = frozen_ntk(NET, X)
    machine = KernelRidge(alpha=0, kernel="precomputed").fit(Theta[:TRAINING, :TRAINING], TARGETS)
    theory = predicted(NET, *ONE_OUTPUT, order=0)
    yield agree("mean prediction", machine.predict(Theta[TRAINING:, :TRAINING]), theory.mean, EXACT)


@claim(
    "ntk-talk.recursions",
    SOURCE,
    "Sigma' = <s s> + beta^2 and Theta' = Theta <s' s'> + Sigma', from Sigma = Theta = x.x/n_0 + beta^2.",
    "recursion: as printed, by Gauss-Hermite averages over pairs, tanh, four layers",
)
def recursions() -> Iterator[Comparison]:
    net = MLP.ntk_parametrization((3, 8, 8, 8, 1), "tanh", beta=0.3)
    Sigma = X @ X.T / 3 + 0.09
    Theta = Sigma.copy()
    theory = solve(net, X, order=0)
    for layer in range(2, 5):
        mean = pair_averages(lambda u, v: np.tanh(u) * np.tanh(v), Sigma)
        slope = pair_averages(lambda u, v: (np.cosh(u) * np.cosh(v)) ** -2.0, Sigma)
        Sigma = mean + 0.09
        Theta = Theta * slope + Sigma
        yield agree(f"Sigma of layer {layer}", Sigma, theory.layer(layer).K, 1e-8)
        yield agree(f"Theta of layer {layer}", Theta, theory.layer(layer).Theta, 1e-8)
