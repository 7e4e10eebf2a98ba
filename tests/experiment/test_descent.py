"""Momentum, schedules and batches of real networks against PyTorch's optimizer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.problems import refused

import finitewidth as fw
from finitewidth.experiment.sampling import draw, member_key, outputs, rates

torch = pytest.importorskip("torch")

RANDOM = np.random.default_rng(5)
X, Y = RANDOM.normal(size=(4, 2)), RANDOM.normal(size=(4, 2))
NET = fw.MLP((2, 6, 5, 2), "tanh", C_b=0.1, C_W=1.2, lambda_b=(0.3, 0.5, 0.2), lambda_W=(0.9, 1.1, 0.7))
MASKS = np.array(
    [[0.5, 0.5, 0, 0], [0, 1, 0, 0], [0, 0.5, 0, 0.5], [0.25] * 4, [0, 0, 0.5, 0.5], [1, 0, 0, 0]]
)
RATES = (0.2, 0.2, 0.15, 0.1, 0.1, 0.05)


def by_torch(learning_rates, masks, momentum, nesterov, ridge=0.0, member=0, key=3):
    """Outputs of one member after steps of `torch.optim.SGD` on weighted samples, and a pull."""
    leaves, structure = jax.tree.flatten(draw(NET, member_key(jax.random.key(key), member)))
    scales = jax.tree.leaves(
        jax.tree.map(lambda p, rate: rate * jnp.ones(()), structure.unflatten(leaves), rates(NET))
    )
    tensors = [torch.tensor(np.array(leaf), dtype=torch.float64) for leaf in leaves]
    start = [tensor.clone() for tensor in tensors]
    groups = [{"params": [tensor], "lr": 1.0} for tensor in tensors]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=momentum, nesterov=nesterov)

    @jax.jit
    def gradient(theta, mask):
        def loss(theta):
            return 0.5 * jnp.sum(mask[:, None] * (outputs(NET, theta, jnp.asarray(X)) - Y) ** 2)

        return jax.grad(loss)(theta)

    for rate, mask in zip(learning_rates, masks, strict=True):
        theta = structure.unflatten([jnp.asarray(tensor.numpy()) for tensor in tensors])
        slopes = jax.tree.leaves(gradient(theta, mask))
        for tensor, slope, first, scale in zip(tensors, slopes, start, scales, strict=True):
            tensor.grad = torch.tensor(np.array(slope)) + ridge / float(scale) * (tensor - first)
        for group, scale in zip(optimizer.param_groups, scales, strict=True):
            group["lr"] = rate * float(scale)
        optimizer.step()
    theta = structure.unflatten([jnp.asarray(tensor.numpy()) for tensor in tensors])
    return np.asarray(outputs(NET, theta, jnp.asarray(X)))


def trained(algorithm, members=1, **options):
    return fw.train_ensemble(NET, X, Y, X[:1], algorithm=algorithm, members=members, key=3, **options)


@pytest.mark.parametrize(
    "options",
    [(0.0, False), (0.8, False), (0.8, True), (0.8, True, 0.3)],
    ids=["plain", "heavy", "Nesterov", "ridge"],
)
def test_steps_are_those_of_torch(options):
    """Batches with means (weights 1/b), a falling rate, and a weight towards the start, to 1e-12."""
    given = dict(zip(("momentum", "nesterov", "ridge"), options, strict=False))
    algorithm = fw.GradientDescent(RATES, batches=MASKS, **given)
    found = trained(algorithm).outputs.value[-1, :4]
    np.testing.assert_allclose(found, by_torch(RATES, MASKS, *options), rtol=1e-12, atol=1e-12)


def test_a_ridge_pulls_towards_the_initialization():
    """A network that is linear in its parameters follows the response with the eigenvalues moved."""
    flat = fw.MLP((2, 2), "tanh", C_b=0.2, C_W=1.5, lambda_b=0.5, lambda_W=0.8)
    algorithm = fw.GradientDescent(0.1, 7, momentum=0.5, ridge=0.3)
    found = fw.train_ensemble(
        flat, X, Y, X[:1], algorithm=algorithm, members=1, key=3, record=fw.Record(at=(0,))
    ).outputs.value
    Theta = 0.5 + 0.8 / 2 * X @ X.T
    total = velocity = np.zeros_like(Y)
    for _ in range(7):
        velocity = 0.5 * velocity + (found[0, :4] - Theta @ total - Y) - 0.3 * total
        total = total + 0.1 * velocity
    np.testing.assert_allclose(found[-1, :4], found[0, :4] - Theta @ total, rtol=1e-12, atol=1e-12)


def test_drawn_batches_that_are_fixed_train_every_network_alike():
    """The first member has the batches that `masks` says it has."""
    drawn = fw.StochasticGradientDescent(0.02, 6, batch_size=2, momentum=0.5)
    key = jax.random.key(3)
    own = drawn.masks(4, 3, key)
    assert own.shape == (3, 6, 4) and len(np.unique(own.reshape(3, -1), axis=0)) == 3
    np.testing.assert_allclose(own.sum(axis=2), 4)
    same = fw.GradientDescent(0.02, momentum=0.5, batches=drawn.fixed(4, key).batches)
    assert drawn.fixed(4, key) == same
    np.testing.assert_array_equal(same.batches.masks, own[0])


@pytest.mark.parametrize("replacement", [False, True])
def test_networks_draw_the_batches_that_the_theory_averages_over(replacement):
    drawn = fw.StochasticGradientDescent(0.02, 4, batch_size=3, replacement=replacement)
    found = trained(drawn).outputs.value
    masks = drawn.masks(4, 1, jax.random.key(3))  # of a network whose key is that of member 0
    assert member_key(jax.random.key(3), 0) == jax.random.fold_in(jax.random.key(3), 0)
    same = trained(fw.GradientDescent(0.02, batches=masks[0])).outputs.value
    np.testing.assert_allclose(found, same, rtol=1e-12)


@pytest.mark.parametrize(
    "algorithm, message",
    [
        (
            fw.GradientDescent(0.1, batches=np.ones((2, 3))),
            "batches are made for 3 training samples, but X_train",
        ),
        (fw.StochasticGradientDescent(0.1, 2, 5), "is 5, but there are 4 training inputs"),
    ],
)
def test_batches_that_do_not_fit_are_refused(algorithm, message):
    with refused(message):
        trained(algorithm)
