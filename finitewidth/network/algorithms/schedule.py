"""Any sequence of updates, also second-order ones and given mini-batches."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from finitewidth.core.checkpoint import digest
from finitewidth.network.algorithms.abstract import AbstractAlgorithm


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(AbstractAlgorithm):
    r"""Any sequence of first- and second-order updates (PDLT 10.19).

    $$d\theta_\mu = -\sum_{\nu, \alpha_1, \alpha_2} \lambda_{\mu\nu}\, \frac{dz_{\alpha_1}}{d\theta_\nu}\,
      (\eta\kappa)_{\alpha_1\alpha_2}\, (z - y)_{\alpha_2}$$

    Args:
        updates: $\eta\kappa$ of each step: a learning rate, or one rate for each training sample (zeros leave
            samples out, which is a mini-batch), or a matrix (a learning rate times a Newton tensor).

    ```python
    updates = [0.1] * 10 + [np.array([0.1, 0.0, 0.1])]  # ten steps, and one without the second sample
    fw.predict(net, X, Y, X_test, algorithm=fw.algorithms.Schedule(updates), order=0).mean
    ```
    """

    updates: tuple[np.ndarray, ...]

    def __init__(self, updates: Iterable):
        object.__setattr__(self, "updates", tuple(_update(step, u) for step, u in enumerate(updates)))

    @property
    def end(self) -> float:
        return float(len(self.updates))

    @property
    def mixes_modes(self) -> bool:
        return True

    def response_matrix(self, Theta: np.ndarray) -> np.ndarray:
        """F after all updates M: F += M (1 - Theta F), starting from zero."""
        size = Theta.shape[0]
        F = np.zeros_like(Theta)
        for step, update in enumerate(self.updates):
            if update.ndim and update.shape[0] != size:
                raise ValueError(
                    f"update {step} of the schedule is made for {update.shape[0]} training samples, "
                    f"but X_train has {size}; give one entry for each sample."
                )
            with np.errstate(over="ignore", invalid="ignore"):
                remaining = np.eye(size) - Theta @ F
                F += update @ remaining if update.ndim == 2 else np.atleast_1d(update)[:, None] * remaining
            if not np.isfinite(F).all():
                raise ValueError(f"the schedule diverges at step {step}; lower its learning rates.")
        return F

    def fingerprint(self) -> str:
        """Updates are known by their numbers."""
        return " ".join(["Schedule", *map(digest, self.updates)])

    def __repr__(self) -> str:
        return f"Schedule({len(self.updates)} updates)"


def _update(step: int, value) -> np.ndarray:
    try:
        update = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"updates must be numbers or arrays, got {value!r} for step {step}.") from None
    square = update.ndim < 2 or (update.ndim == 2 and update.shape[0] == update.shape[1])
    if not square or not np.isfinite(update).all():
        raise ValueError(
            f"update {step} must be a finite number, one for each training sample, or a square matrix over "
            f"them, got an array of shape {update.shape}."
        )
    return update
