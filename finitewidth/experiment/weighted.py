r"""Bayes' rule for real networks: networks drawn from the prior, weighted by their likelihood.

Given its hidden layers a network is linear in its last weights, which are Gaussian. They are integrated
exactly: with the features' own kernel $\hat G = C_b + C_W\, \phi\phi^T / n$ a network has the weight

$$w = \prod_i \mathrm{Normal}(y_i;\, 0,\, \hat G_{AA} + s^2)$$

and stands for the mean $\hat G_{BA} (\hat G_{AA} + s^2)^{-1} y$ and its covariance. The posterior is the
weighted average, log p(y) the logarithm of the mean weight. Nothing is expanded in 1/n.

In the same way the neurons of a dense layer are independent Gaussian vectors given the layer below. Wide
dense networks are drawn so, with as many normal numbers as preactivations instead of weights.
"""

import functools
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from finitewidth.core.checkpoint import digest
from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_inputs, as_positive, as_targets, merge_inputs
from finitewidth.core.keys import as_key
from finitewidth.core.precision import require_double_precision
from finitewidth.core.run import Run, as_run, runner
from finitewidth.experiment.partition import Partition, partition
from finitewidth.experiment.sampling import draw, fan_in, member_key, passages, real_network
from finitewidth.network.layers.dense import Dense
from finitewidth.network.network import Network

LEAST_BATCHES = 200  # the standard errors are then known to 5 %
_ROUNDING = 1e-12  # of a variance: far below any standard error
AT_ONCE = 1  # two batches at a time, each with many Cholesky factors, never end on a CPU with jax 0.10.2


@dataclass(frozen=True, eq=False)
class SampledLayer:
    """A layer with weights given the data, on the training inputs and then on the test inputs."""

    kernel: Estimate  # of the values that come in: C_b + C_W times their mean product, (N, N)
    second_moment: Estimate  # E[z_j1 z_j2 | y], averaged over the neurons j, (N, N)
    mean: Estimate  # E[z_j1 | y], (N,)


@shown("mean", "log_evidence", "effective_members", "members", "net", dimensions={"mean": "sample output"})
@dataclass(frozen=True, eq=False)
class SampledPosterior:
    """The posterior of real networks, estimated from weighted samples of the prior.

    `fw.bayes.sample` makes it.

    ```python
    sampled = fw.bayes.sample(net, X, Y, X_test, members=400, key=0, noise=0.1)
    sampled.mean.value, sampled.mean.stderr, sampled.effective_members
    ```
    """

    net: Network
    members: int  # networks drawn from the prior
    effective_members: float  # (sum w)^2 / sum w^2: as many unweighted networks would know as much
    mean: Estimate = field(repr=False)  # (M, n_L)
    covariance: Estimate = field(repr=False)  # (M, n_L, M, n_L)
    log_evidence: Estimate  # log probability density of the data
    third_cumulant: Estimate = field(repr=False)  # of each output by itself, (M, n_L)
    fourth_cumulant: Estimate = field(repr=False)  # likewise
    layers: dict[int, SampledLayer] = field(repr=False)  # hidden layers, where asked for


class _Data(NamedTuple):
    X: Float[Any, "N n0"]  # training inputs, then test inputs
    Y: Float[Any, "N_A n_L"]
    noise: Float[Any, ""]
    root: Float[Any, "N N"] | None  # of the kernel of layer 1, where neurons are drawn and not weights


def sample(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike | None = None,
    *,
    members: int,
    key: Any,
    noise: float = 0.0,
    layers: bool = False,
    run: Run | None = None,
) -> SampledPosterior:
    """Estimate the posterior from networks of the prior, weighted by their likelihood.

    `effective_members` says how many of them count. Where it is small against `members`, weights degenerate,
    and a method that moves towards the data is needed. Standard errors come from the spread of at least 200
    batches.

    Args:
        net: A network whose last layer is dense.
        X_train: Training inputs (N, n_0).
        Y_train: Observed targets (N, n_L).
        X_test: Test inputs (M, n_0); the training inputs by default.
        members: The number of networks.
        key: The randomness: a number or a key of JAX.
        noise: The variance of the observations.
        layers: Whether to estimate the hidden layers given the data too.
        run: Store, cluster, progress and size of batches, an `fw.Run`.

    Returns:
        Estimates with standard errors.

    ```python
    sampled = fw.bayes.sample(net, X, Y, X_test, members=400, key=0, noise=0.1)
    sampled.effective_members
    ```
    """
    require_double_precision()
    noise = as_positive("noise", noise, or_zero=True)
    X = as_inputs(X_train, net.input_shape, name="X_train")
    Y = as_targets(Y_train, len(X), net.outputs)
    if X_test is not None:
        X = np.concatenate([X, as_inputs(X_test, net.input_shape, name="X_test")])
    _check(net, len(Y), noise, layers)
    data = _Data(X, Y, np.asarray(noise), _root(net, X))
    of_one = 8 * 3 * (real_network(net).normal_count + net.depth * len(X) * (len(X) + fan_in(net)))
    parts = partition(
        members, as_run(run, batches=True), of_one=of_one, least_batches=LEAST_BATCHES, lowest=2
    )
    key_data = np.asarray(jax.random.key_data(as_key(key)))
    work = functools.partial(_work, net, data, layers, X_test is None, parts, key_data)
    configuration = functools.partial(_configuration, net, data, layers, parts, key_data)
    with runner(run, kind="weighted", configuration=configuration, batches=True) as running:
        results = list(
            running.results(
                work,
                parts.batches,
                name="batches",
                what="weighting networks",
                at_once=AT_ONCE,
                size=parts.size,
            )
        )
    return _estimated(net, parts, results, layers)


def _check(net: Network, count: int, noise: float, layers: bool) -> None:
    last = net.layers[-1]
    if not isinstance(last, Dense):
        raise ValueError(
            f"the last layer must be dense, got a {type(last).__name__}; add fw.Dense({net.outputs}) "
            "behind it."
        )
    if last.is_orthogonal:
        raise ValueError(
            "the last layer has orthogonal weights, and only Gaussian ones are integrated exactly; give it "
            "weights='gaussian', the hidden layers may stay orthogonal."
        )
    if noise == 0 and fan_in(net) < count:
        raise ValueError(
            f"noise=0 asks networks with {fan_in(net)} features to fit {count} samples exactly; pass "
            "noise= above zero, or widen the last hidden layer."
        )
    if layers and net.not_dense is not None:
        raise ValueError(
            f"layers=True knows dense layers and activations only, not the {net.not_dense} of this network; "
            "use layers=False."
        )


def _configuration(net: Network, data: _Data, layers: bool, parts: Partition, key_data: np.ndarray) -> dict:
    return {
        "network": net.to_dict(),
        "X": digest(data.X),
        "Y": digest(data.Y),
        "noise": float(data.noise),
        "layers": layers,
        "key": key_data.tolist(),
        "members": parts.members,
        "batch_size": parts.batch_size,
    }


def _root(net: Network, X: np.ndarray) -> np.ndarray | None:
    """R with R R^T the kernel of layer 1, where kernels of all layers above can be factorized."""
    distinct, _ = merge_inputs(X)
    if net.not_dense is not None or net.depth < 2 or len(distinct) < len(X) or net.has_orthogonal_weights:
        return None
    if min(net.widths[1:-1]) < 2 * len(X):
        return None
    values, vectors = np.linalg.eigh(np.asarray(_kernel(net.dense[0], jnp.asarray(X))))
    return vectors * np.sqrt(np.maximum(values, 0.0))


# --- one batch ---------------------------------------------------------------------------------------


def _work(
    net: Network,
    data: _Data,
    layers: bool,
    on_training: bool,
    parts: Partition,
    key_data: np.ndarray,
    batch: int,
) -> dict[str, np.ndarray]:
    members, counts = parts.numbers(batch)
    arrays = jax.tree.map(jnp.asarray, data)
    sums = _batch(
        net, layers, on_training, arrays, jax.random.wrap_key_data(jnp.asarray(key_data)), members, counts
    )
    return {name: np.asarray(value) for name, value in sums.items()}


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _batch(net, layers, on_training, data: _Data, key, members, counts) -> dict[str, Array]:
    """Sums over a batch of w, w^2 and w times each quantity; weights are relative to exp(shift)."""

    def of_member(member):
        walked = _walked(net, data, member_key(key, member))
        return _of_one(net, layers, on_training, data, walked)

    log_weights, quantities = jax.vmap(of_member)(jnp.asarray(members))
    log_weights = jnp.where(counts > 0, log_weights, -jnp.inf)
    shift = jnp.max(log_weights)
    weights = jnp.exp(log_weights - shift)
    sums = {name: jnp.tensordot(weights, value, 1) for name, value in quantities.items()}
    return {"shift": shift, "weight": weights.sum(), "square": (weights**2).sum(), **sums}


class _Walked(NamedTuple):
    """One network of the prior: kernels of what comes into the layers, and hidden preactivations."""

    kernels: list[Array]  # of layers 1 ... L, or of the last alone
    z: list[Array]  # of layers 1 ... L - 1


def _walked(net: Network, data: _Data, key: Array) -> _Walked:
    if data.root is None:
        parts = passages(net, draw(net, key), data.X)
        if net.not_dense is not None:
            last = net.layers[-1]
            assert isinstance(last, Dense)
            return _Walked([_kernel(last, parts[-1].incoming)], [])
        kernels = [_kernel(layer, part.incoming) for layer, part in zip(net.dense, parts, strict=True)]
        return _Walked(kernels, [part.preactivations for part in parts[:-1]])
    kernels, z, root = [_kernel(net.dense[0], data.X)], [], data.root
    normals = jax.random.normal(key, (len(data.X), sum(net.widths[1:-1])), jnp.float64)
    for layer, activation, part in zip(
        net.dense[1:], net.activations, jnp.split(normals, np.cumsum(net.widths[1:-2]), axis=1), strict=True
    ):
        z.append(root @ part)
        kernels.append(_kernel(layer, activation(z[-1])))
        root = _factor(kernels[-1])
    return _Walked(kernels, z)


def _factor(K: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """A root of the kernel of close inputs too, which rounding makes indefinite."""
    return jnp.linalg.cholesky(K + _ROUNDING * jnp.max(jnp.diag(K)) * jnp.eye(len(K)))


def _of_one(net, layers, on_training, data: _Data, walked: _Walked) -> tuple[Array, dict[str, Array]]:
    """The log weight of one network, and what it says about test outputs and hidden layers."""
    Y, noise, G = data.Y, data.noise, walked.kernels[-1]
    count, outputs = Y.shape
    tests = slice(0, count) if on_training else slice(count, None)
    factor = jnp.linalg.cholesky(G[:count, :count] + noise * jnp.eye(count))
    weights = jax.scipy.linalg.cho_solve((factor, True), Y)
    log_determinant = 2 * jnp.sum(jnp.log(jnp.diag(factor))) + count * jnp.log(2 * jnp.pi)
    log_weight = -(jnp.sum(Y * weights) + outputs * log_determinant) / 2
    cross = G[tests, :count]
    mean = cross @ weights
    among = G[tests, tests] - cross @ jax.scipy.linalg.cho_solve((factor, True), cross.T)
    second = jnp.einsum("ij,ab->aibj", jnp.eye(outputs), among) + jnp.einsum("ai,bj->aibj", mean, mean)
    own = jnp.diag(among)[:, None]
    third = mean**3 + 3 * mean * own
    fourth = mean**4 + 6 * mean**2 * own + 3 * own**2
    quantities = {"mean": mean, "second": second, "third": third, "fourth": fourth}
    for index, z in enumerate(walked.z if layers else (), start=1):
        quantities[f"kernel {index}"] = walked.kernels[index - 1]
        quantities[f"second_moment {index}"] = z @ z.T / z.shape[1]
        quantities[f"mean {index}"] = z.mean(axis=1)
    return log_weight, quantities


def _kernel(layer: Dense, incoming: Float[Array, "N n"]) -> Float[Array, "N N"]:
    return layer.C_b + layer.C_W * (incoming @ incoming.T) / incoming.shape[1]


# --- all batches -------------------------------------------------------------------------------------


def _estimated(
    net: Network, parts: Partition, results: list[dict[str, np.ndarray]], layers: bool
) -> SampledPosterior:
    shifts = np.array([result["shift"] for result in results])
    scales = np.exp(shifts - shifts.max())
    weight = scales * np.array([result["weight"] for result in results])
    if not np.isfinite(weight.sum()):
        raise ValueError(
            "training inputs are so close that kernels of sampled networks are singular to rounding; pass "
            "noise= above zero, or leave one of two close inputs out."
        )
    square = float((scales**2 * np.array([result["square"] for result in results])).sum())

    def influences(name: str) -> tuple[np.ndarray, np.ndarray]:
        """A weighted mean, and what every batch adds to its error."""
        sums = np.stack([result[name] for result in results])
        sums = scales.reshape(-1, *[1] * (sums.ndim - 1)) * sums
        mean = sums.sum(axis=0) / weight.sum()
        return mean, (sums - weight.reshape(-1, *[1] * mean.ndim) * mean) / weight.sum()

    def estimate(name: str) -> Estimate:
        mean, influence = influences(name)
        return Estimate(mean, _spread(influence))

    mean, of_mean = influences("mean")
    second, of_second = influences("second")
    covariance = second - np.einsum("ai,bj->aibj", mean, mean)
    of_product = np.einsum("Bai,bj->Baibj", of_mean, mean)
    of_covariance = of_second - of_product - of_product.transpose(0, 3, 4, 1, 2)
    own = np.einsum("aiai->ai", second), np.einsum("Baiai->Bai", of_second)
    cumulants = _cumulants((mean, of_mean), own, influences("third"), influences("fourth"))
    share = weight / weight.sum() - np.array([parts.size(b) for b in range(parts.batches)]) / parts.members
    log_p = np.log(weight.sum() / parts.members) + shifts.max()
    hidden = {
        index: SampledLayer(*(estimate(f"{name} {index}") for name in ("kernel", "second_moment", "mean")))
        for index in (range(1, net.depth) if layers else ())
    }
    return SampledPosterior(
        net,
        parts.members,
        float(weight.sum() ** 2 / square),
        Estimate(mean, _spread(of_mean)),
        Estimate(covariance, _spread(of_covariance)),
        Estimate(np.asarray(log_p), _spread(share)),
        *cumulants,
        hidden,
    )


def _cumulants(*moments: tuple[np.ndarray, np.ndarray]) -> tuple[Estimate, Estimate]:
    """Third and fourth cumulants from four moments, each with what every batch adds to its error."""
    (m, of_m), (second, of_second), (third, of_third), (fourth, of_fourth) = moments
    kappa_3 = third - 3 * second * m + 2 * m**3
    of_3 = of_third - 3 * m * of_second + (6 * m**2 - 3 * second) * of_m
    kappa_4 = fourth - 4 * third * m - 3 * second**2 + 12 * second * m**2 - 6 * m**4
    of_4 = of_fourth - 4 * m * of_third + (12 * m**2 - 6 * second) * of_second
    of_4 = of_4 + (24 * second * m - 4 * third - 24 * m**3) * of_m
    return Estimate(kappa_3, _spread(of_3)), Estimate(kappa_4, _spread(of_4))


def _spread(influence: np.ndarray) -> np.ndarray:
    """The standard error of a sum of independent influences of mean zero."""
    batches = len(influence)
    return np.asarray(np.sqrt((influence**2).sum(axis=0) * batches / (batches - 1)))
