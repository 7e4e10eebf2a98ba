"""Real networks: trained outputs foretold from derivatives at initialization; second-order leaps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import finitewidth as fw
from finitewidth.experiment.directions import differentials
from finitewidth.experiment.sampling import draw, outputs, rates

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 1))
ETA, STEPS = 0.15, 10


def network(width, gamma=0.0):
    """Three layers, the second one with a skip if gamma is not zero."""
    if not gamma:
        return fw.MLP((3, width, width, 1), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
    shapes = ((width, 1.2), (width, 1.2 * (1 - gamma**2)), (1, 1.2))
    first, body, last = (fw.Dense(n, 0.1, C_W, 0.25, 0.5) for n, C_W in shapes)
    return fw.Network(3, first, fw.Residual("tanh", body, gamma=gamma), "tanh", last)


@functools.cache
def seen(width, gamma=0.0):
    """Outputs of one network, their derivatives, and the outputs after descent, as a compiled function."""
    net = network(width, gamma)

    def step(_, parameters):
        def loss(parameters):
            return jnp.sum((outputs(net, parameters, jnp.asarray(X[:3])) - jnp.asarray(Y)) ** 2) / 2

        moves = jax.tree.map(lambda g, rate: ETA * rate * g, jax.grad(loss)(parameters), rates(net))
        return jax.tree.map(jnp.subtract, parameters, moves)

    def run(key):
        parameters = draw(net, key)
        trained = jax.lax.fori_loop(0, STEPS, step, parameters)
        z, after = (outputs(net, p, jnp.asarray(X)) for p in (parameters, trained))
        return z, differentials(net, parameters, jnp.asarray(X)), after

    return jax.jit(run)


def foretold_and_seen(width, key, gamma=0.0):
    """Outputs of one network after descent: by its NTK alone, with the differentials, and trained."""
    z, last, after = jax.tree.map(np.asarray, seen(width, gamma)(key))
    foretold = fw.empirical.trained_outputs(
        z, last.H, last.dH, last.ddI, last.ddII, Y, fw.GradientDescent(ETA, STEPS)
    )
    return foretold, after


@pytest.mark.long
@pytest.mark.parametrize("gamma, wide, networks", [(0.0, 128, 10), (0.8, 256, 40)])
def test_one_network_is_foretold_to_second_order_in_the_inverse_width(key, gamma, wide, networks):
    """Networks of width 32 and a larger one: squares of differentials are left, without them 1/n."""
    left = {}
    for width in (32, wide):
        pairs = [foretold_and_seen(width, k, gamma) for k in jax.random.split(key, networks)]
        left[width] = [
            np.sqrt(np.mean([(getattr(foretold, name) - after)[3] ** 2 for foretold, after in pairs]))
            for name in ("free", "outputs")
        ]
    powers = np.log(np.array(left[32]) / left[wide]) / np.log(wide / 32)
    assert powers[0] == pytest.approx(1.0, abs=0.3)
    assert powers[1] == pytest.approx(2.0, abs=0.4)
    assert left[wide][1] < left[wide][0] / 3


@pytest.mark.long
def test_training_errors_after_one_and_two_leaps_fall_as_powers_of_the_width():
    """The residual is of order 1/n after the leap that fits infinite width, and 1/n^2 after the second."""
    losses = {}
    for algorithm in (fw.Newton(), fw.TwoStep()):
        for width in (32, 128):
            ensemble = fw.train_ensemble(
                network(width), X[:3], Y, X[3:], algorithm=algorithm, members=100, key=0
            )
            losses[type(algorithm), width] = float(np.asarray(ensemble.loss.value)[-1])
    for algorithm, power in ((fw.Newton, 2), (fw.TwoStep, 4)):
        seen = np.log(losses[algorithm, 32] / losses[algorithm, 128]) / np.log(4)
        assert seen == pytest.approx(power, abs=0.25 * power)
