"""Networks trained with the NTK that they have at the start: their own linearizations."""

from collections.abc import Sequence

import numpy as np


def linearized(
    net, data, rate: float, stops: Sequence[int], members: np.ndarray, key, batch: int = 24, largest=np.inf
) -> np.ndarray:
    """Outputs at the start and after steps of gradient descent, (members, record, sample, output).

    `data` are X_train, Y_train and X_test, `members` the numbers of networks of the ensemble with this key.
    Where an eigenvalue times the rate is above `largest`, it is cut there: from 2 on training diverges.
    """
    import jax
    import jax.numpy as jnp

    from finitewidth.experiment.directions import ntk
    from finitewidth.experiment.sampling import draw_members, outputs

    X, Y, X_test = data
    inputs, training = jnp.asarray(np.concatenate([X, X_test])), Y.size

    def one(parameters):
        z = outputs(net, parameters, inputs)
        H = ntk(net, parameters, inputs).transpose(1, 0, 3, 2).reshape(z.size, z.size)
        values, vectors = jnp.linalg.eigh(H[:training, :training])
        residual = vectors.T @ (z[: len(X)] - jnp.asarray(Y)).reshape(-1)
        steps = jnp.minimum(rate * values, largest)
        moves = [H[:, :training] @ (vectors @ ((1 - (1 - steps) ** t) / values * residual)) for t in stops]
        return jnp.stack([z, *(z - move.reshape(z.shape) for move in moves)])

    run = jax.jit(lambda numbers: jax.vmap(one)(draw_members(net, key, numbers)))
    parts = np.array_split(np.asarray(members, dtype=np.uint32), max(1, len(members) // batch))
    return np.concatenate([np.asarray(run(part)) for part in parts])
