"""How often trained networks name the right class: expected accuracy, and its spread between networks."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_count
from finitewidth.core.memory import require_memory
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.sampled import SampledPrediction, gaussian_members

_MEMBERS = 4096  # networks that are drawn from a prediction
_NEGATIVE = 1e-6  # eigenvalues closer to zero than this, in units of the largest, may be rounding


@shown("expected", "spread", "of_samples", dimensions={"of_samples": "sample"})
@dataclass(frozen=True, eq=False)
class Accuracy:
    """The share of test inputs whose largest output is that of their class, as `fw.accuracy` gives it.

    ```python
    two = fw.MLP((2, 64, 64, 2), "tanh")
    accuracy = fw.accuracy(fw.predict(two, X, fw.losses.one_hot([0, 1, 0], 2), X_test, order=0), [0, 1])
    accuracy.expected.value, accuracy.spread, accuracy.of_samples
    ```
    """

    expected: Estimate  # averaged over networks
    spread: float  # standard deviation between networks
    of_samples: Float[np.ndarray, " M"] = field(repr=False)  # the share of networks that are right, by sample


def accuracy(
    trained: Prediction | SampledPrediction | Ensemble,
    labels: ArrayLike,
    *,
    members: int | None = None,
    key: Any = None,
) -> Accuracy:
    """The expected accuracy of trained networks on their test inputs.

    Args:
        trained: A prediction, at either order, or an ensemble. From a prediction by mean and covariance
            networks are drawn as Gaussians, with the correlations of infinite width where the variance alone
            was computed. At order 1 that leaves out cumulants of third and fourth order, which change the
            accuracy by as much as the order 1/n that is kept. Of an ensemble the networks that its store has
            kept are counted.
        labels: Class numbers (M,) or one-hot targets (M, n_L).
        members: How many networks to draw from a prediction, 4096 by default. An ensemble and a sampled
            prediction have networks already, and refuse it.
        key: The randomness of the draw, a number or a key of JAX, 0 by default.

    Returns:
        The mean over networks, the spread between them, and the share of networks that are right by sample.

    ```python
    two = fw.MLP((2, 64, 64, 2), "tanh")
    prediction = fw.predict(two, X, fw.losses.one_hot([0, 1, 0], 2), X_test, order=0)
    fw.accuracy(prediction, [0, 1])
    ```
    """
    outputs = _outputs(trained, members, key)  # (members, M, n_L)
    right = outputs.argmax(axis=2) == _classes(labels, outputs.shape[1:])
    of_members = right.mean(axis=1)
    count = len(of_members)
    if count < 2:
        raise ValueError(f"members must be two or more, got {count}; a spread needs networks to differ.")
    spread = float(of_members.std(ddof=1))
    expected = Estimate(np.asarray(of_members.mean()), np.asarray(spread / np.sqrt(count)))
    return Accuracy(expected, spread, right.mean(axis=0))


def _outputs(trained, members: int | None, key) -> Float[np.ndarray, "members M n_L"]:
    if isinstance(trained, SampledPrediction | Ensemble):
        _refuse_a_draw(trained, members=members, key=key)
    match trained:
        case Prediction():
            count = _MEMBERS if members is None else as_count("members", members, lowest=2)
            return _drawn(trained, int(count), 0 if key is None else key)
        case SampledPrediction():
            return trained.outputs
        case Ensemble():
            return trained.member_outputs()[:, -1, len(trained.X_train) :]
    raise ValueError(
        f"trained must be a prediction that networks can be drawn from, or an ensemble, got "
        f"{type(trained).__name__}; a ReplayedPrediction has smoothed_accuracy and expectation instead."
    )


def _refuse_a_draw(trained: SampledPrediction | Ensemble, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} has no effect on a {type(trained).__name__}, whose networks are counted "
                f"as they are; remove {name}."
            )


def _classes(labels, shape: tuple[int, ...]) -> Int[np.ndarray, " M"]:
    samples, outputs = shape
    if outputs < 2:
        raise ValueError("a network with one output knows no classes; use one output for each class.")
    labels = np.asarray(labels)
    if labels.shape == (samples, outputs):
        return _largest(labels)
    if labels.shape != (samples,) or not np.isin(labels, np.arange(outputs)).all():
        raise ValueError(
            f"labels must be {samples} numbers of classes from 0 to {outputs - 1}, or one-hot targets of "
            f"shape {(samples, outputs)}, got shape {labels.shape}."
        )
    return labels.astype(int)


def _largest(targets: np.ndarray) -> Int[np.ndarray, " M"]:
    """The class of each row of one-hot targets, which may be shifted and scaled."""
    unclear = np.flatnonzero((targets == targets.max(axis=1, keepdims=True)).sum(axis=1) != 1)
    if unclear.size:
        raise ValueError(
            f"labels must have one largest entry in each row, but row {unclear[0]} is "
            f"{targets[unclear[0]].tolist()}; use one-hot targets or numbers of classes."
        )
    return targets.argmax(axis=1)


def _covariance(prediction: Prediction) -> Float[np.ndarray, "M n_L M n_L"]:
    """That of the prediction; where its variance alone is known, with correlations of infinite width."""
    if prediction.factors is not None or not prediction.gives_variance:
        return prediction.covariance
    if prediction.below_zero.any():
        raise ValueError(
            f"{int(prediction.below_zero.sum())} variances through order 1/n are below zero, so that no "
            "networks can be drawn; widen the network, or take prediction.infinite_width."
        )
    limit = prediction.infinite_width
    nothing = np.zeros_like(limit.variance)
    ratio = np.sqrt(np.divide(prediction.variance, limit.variance, where=limit.variance > 0, out=nothing))
    return np.einsum("ai,aibj,bj->aibj", ratio, limit.covariance, ratio)


def _drawn(prediction: Prediction, members: int, key) -> Float[np.ndarray, "members M n_L"]:
    """Outputs of networks that a Gaussian prediction describes."""
    shape = prediction.mean.shape
    size = prediction.mean.size
    require_memory(
        8 * (3 * size**2 + 2 * members * size), f"{members} draws of {size} outputs", "predict fewer inputs"
    )
    covariance = _covariance(prediction).reshape(size, size)
    values = np.linalg.eigvalsh(covariance)
    if values[0] < -_NEGATIVE * max(values[-1], 1e-300):
        raise ValueError(
            f"the covariance through order 1/n has an eigenvalue of {values[0] / values[-1]:.2g} of the "
            "largest, below zero, so that no networks can be drawn from it; widen the network, or take "
            "prediction.infinite_width."
        )
    return prediction.mean + gaussian_members(covariance, members, 1, key).reshape(members, *shape)
