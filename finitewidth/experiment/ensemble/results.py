"""The results of an ensemble: estimates with standard errors, and the same with named dimensions."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from finitewidth import __version__
from finitewidth.core.display.records import shown
from finitewidth.core.estimate import Estimate
from finitewidth.experiment.ensemble.batch import centered_on
from finitewidth.experiment.ensemble.checkpoint import read_members
from finitewidth.experiment.ensemble.plan import Control, Plan
from finitewidth.experiment.streaming import covariance_estimate, mean_estimate
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss
from finitewidth.network.network import Network

if TYPE_CHECKING:
    import xarray


@shown("mean", "variance_ratio")
class Controlled(NamedTuple):
    """Trained outputs with a control variate, and the factor by which the variance of a mean is smaller."""

    mean: Estimate  # (N_test, n_L)
    train_mean: Estimate  # (N_train, n_L)
    variance_ratio: Float[np.ndarray, "N_test nL"]  # variance without over variance with control
    covariance: Estimate | None = None  # (N_test, n_L, N_test, n_L)


@shown("mean", "std", "loss", "members", "diverged", "unfinished", "algorithm", "net")
@dataclass(frozen=True, eq=False)
class Ensemble:
    """Trained networks; arrays with a first axis of records have the end of training last.

    `fw.train_ensemble` makes it.

    ```python
    descent = fw.GradientDescent(0.1, steps=20)
    ensemble = fw.train_ensemble(net, X, Y, X_test, algorithm=descent, members=50, key=0)
    ensemble.mean, ensemble.std, ensemble.loss.value[-1]
    ```
    """

    net: Network
    algorithm: AbstractAlgorithm  # how it was trained
    loss_function: AbstractLoss  # the loss
    members: int  # networks trained
    diverged: int  # members that are in no estimate
    unfinished: int  # members that did not come to the end, or to the training error
    points: tuple[float, ...]  # steps or times of the records
    X_train: np.ndarray = field(repr=False)  # training inputs
    Y_train: np.ndarray = field(repr=False)  # targets
    X_test: np.ndarray = field(repr=False)  # test inputs
    outputs: Estimate = field(repr=False)  # (record, sample, output), training inputs before test inputs
    output_covariance: Estimate = field(repr=False)  # (record, sample, output, sample, output)
    loss: Estimate = field(repr=False)  # (record,)
    steps: Estimate = field(repr=False)  # updates made
    ntk: Estimate | None = field(repr=False)  # (record, output, sample, output, sample)
    ntk_movement: Estimate | None = field(repr=False)  # (record,), Frobenius norm of the change, relative
    kernels: Estimate | None = field(repr=False)  # (record, hidden layer, sample, sample), sigma sigma / n
    kernel_movement: Estimate | None = field(repr=False)  # (record, hidden layer), relative
    # estimates with the control variate, where there is one
    controlled: Controlled | None = field(repr=False)
    configuration: dict = field(repr=False)  # what the store was made with
    store: str | Path | None = field(default=None, repr=False)  # where the outputs of members are kept, if so

    @property
    def mean(self) -> Estimate:
        """Mean outputs on test inputs at the end, (N_test, n_L)."""
        return self._at(self.outputs, -1, slice(len(self.X_train), None))

    @property
    def train_mean(self) -> Estimate:
        """Mean outputs on training inputs at the end, (N_train, n_L)."""
        return self._at(self.outputs, -1, slice(None, len(self.X_train)))

    @property
    def covariance(self) -> Estimate:
        """Covariance of outputs on test inputs at the end, (N_test, n_L, N_test, n_L)."""
        test = slice(len(self.X_train), None)
        return Estimate(*(part[-1][test][:, :, test] for part in self.output_covariance))

    @property
    def best_mean(self) -> Estimate:
        """`mean`, with the control variate where there is one."""
        return self.mean if self.controlled is None else self.controlled.mean

    @property
    def best_covariance(self) -> Estimate:
        """`covariance`, with the control variate where there is one for it."""
        controlled = None if self.controlled is None else self.controlled.covariance
        return self.covariance if controlled is None else controlled

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of outputs on test inputs at the end, (N_test, n_L)."""
        return np.sqrt(np.einsum("aiai->ai", self.covariance.value))

    @property
    def std_stderr(self) -> np.ndarray:
        """Standard error of `std`: that of the variance over twice the root; none where nothing varies."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.einsum("aiai->ai", self.covariance.stderr) / (2 * self.std)

    def _at(self, estimate: Estimate, record: int, samples: slice) -> Estimate:
        return Estimate(*(part[record][samples] for part in estimate))

    def member_outputs(self, count: int | None = None) -> Float[np.ndarray, "members record sample output"]:
        """The outputs of the first `count` members (default: all), training inputs before test inputs.

        They are read from the store of a run with `fw.Record(members=True)`; those that diverged are among
        them.
        """
        if self.store is None:
            raise ValueError(
                "store has no outputs of members; train with run=fw.Run(store='ensemble.zarr') and "
                "record=fw.Record(members=True)."
            )
        return read_members(self.store, count)

    def to_xarray(self) -> "xarray.Dataset":
        """All estimates with named dimensions."""
        return to_xarray(self)

    @classmethod
    def from_moments(
        cls,
        plan: Plan,
        X: np.ndarray,
        Y: np.ndarray,
        members: int,
        total: dict[str, Any],
        control: Control | None,
        configuration: dict,
        *,
        store: str | Path | None = None,
    ) -> "Ensemble":
        """The estimates from the moments of all members."""
        records, shape = len(plan.points), (len(X), plan.net.outputs)
        outputs, covariance = mean_estimate(total["outputs"]), covariance_estimate(total["outputs"])
        optional = {
            name: mean_estimate(total[name]) if name in total else None
            for name in ("ntk", "ntk_movement", "kernels", "kernel_movement")
        }
        return cls(
            plan.net,
            plan.algorithm,
            plan.loss,
            members,
            int(total["diverged"]),
            int(total["unfinished"]),
            plan.points,
            X[: plan.train_count],
            Y,
            X[plan.train_count :],
            Estimate(*(part.reshape(records, *shape) for part in outputs)),
            Estimate(*(part.reshape(records, *shape, *shape) for part in covariance)),
            mean_estimate(total["loss"]),
            mean_estimate(total["steps"]),
            **optional,
            controlled=_controlled(plan, total, control, Y, shape),
            configuration=configuration,
            store=store,
        )


def _controlled(
    plan: Plan, total: dict, control: Control | None, Y: np.ndarray, shape: tuple[int, int]
) -> Controlled | None:
    if control is None:
        return None
    difference = mean_estimate(total["controlled"])
    value, error = difference.value + control.mean, difference.stderr
    plain = np.einsum("aa->a", total["outputs"].M11[-1]).reshape(shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = plain / total["controlled"].M2
    train, test = slice(None, plan.train_count), slice(plan.train_count, None)
    covariance = None
    if plan.controls_covariance:
        products = mean_estimate(total["controlled_covariance"])
        off = (value - np.asarray(centered_on(control.function, Y, shape[0])))[test]
        covariance = Estimate(products.value - np.multiply.outer(off, off), products.stderr)
    return Controlled(
        Estimate(value[test], error[test]), Estimate(value[train], error[train]), ratio[test], covariance
    )


_SAMPLES = ("sample", "output", "sample_2", "output_2")
_DIMENSIONS = {
    "outputs": ("record", *_SAMPLES[:2]),
    "output_covariance": ("record", *_SAMPLES),
    "loss": ("record",),
    "steps": (),
    "ntk": ("record", "output", "sample", "output_2", "sample_2"),
    "ntk_movement": ("record",),
    "kernels": ("record", "hidden_layer", "sample", "sample_2"),
    "kernel_movement": ("record", "hidden_layer"),
}


def to_xarray(ensemble: Ensemble) -> "xarray.Dataset":
    """Every estimate and its standard error, with the configuration, the key and the counts as attributes."""
    import xarray

    variables: dict[str, Any] = {}
    for name, dimensions in _DIMENSIONS.items():
        estimate = getattr(ensemble, name)
        if estimate is not None:
            variables[name] = (dimensions, estimate.value)
            variables[f"{name}_stderr"] = (dimensions, estimate.stderr)
    controlled = None if ensemble.controlled is None else ensemble.controlled.covariance
    if controlled is not None:
        test = ("test_sample", "output", "test_sample_2", "output_2")
        variables["controlled_covariance"] = (test, controlled.value)
        variables["controlled_covariance_stderr"] = (test, controlled.stderr)
    if ensemble.controlled is not None:
        for name, part in zip(
            ("controlled_mean", "controlled_mean_stderr"), ensemble.controlled.mean, strict=True
        ):
            variables[name] = (("test_sample", "output"), part)
        variables["variance_ratio"] = (("test_sample", "output"), ensemble.controlled.variance_ratio)
    positions = (f"input_position_{axis}" for axis in range(1, ensemble.X_train.ndim - 1))
    inputs = np.concatenate([ensemble.X_train, ensemble.X_test])
    variables["inputs"] = (("sample", *positions, "input"), inputs)
    variables["targets"] = (("train_sample", "output"), ensemble.Y_train)
    trained = np.arange(len(ensemble.X_train) + len(ensemble.X_test)) < len(ensemble.X_train)
    coordinates = {"point": ("record", np.asarray(ensemble.points)), "is_trained": ("sample", trained)}
    about = {
        "kind": "finitewidth ensemble",
        "configuration": json.dumps(ensemble.configuration),
        "key": ensemble.configuration["key"],
        "version": __version__,
        "members": ensemble.members,
        "diverged": ensemble.diverged,
        "unfinished": ensemble.unfinished,
        "finished": False,  # until all of it is written
    }
    return xarray.Dataset(variables, coords=coordinates, attrs=about)
