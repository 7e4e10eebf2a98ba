r"""Higher orders in 1/n from narrow networks: real ensembles where they are cheap, theory for the rest.

Theory knows the two lowest orders exactly. The remainder of narrow ensembles behind them is fitted with
$a_2/n^2 + a_3/n^3$, which falls so fast that little of its error is left at the width that was asked for.
Orders behind these are not known to vanish, and take part in the fit with the size that is expected of them
(`remainders.py`). Networks that are too narrow for the series (`widths.py`) cannot tell that size: an
extrapolation from them is not surer than theory alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from finitewidth.comparison.control_variates import control_variate
from finitewidth.comparison.kinked_extrapolation import WIDTHS, KinkedExtrapolation, extrapolate_kinked
from finitewidth.comparison.remainders import ORDERS, falls_of_remainders
from finitewidth.comparison.widths import START, too_narrow, wide_enough, wider_width
from finitewidth.core.display.records import shown
from finitewidth.core.display.user_warnings import warn
from finitewidth.core.estimate import Estimate
from finitewidth.core.inputs import ArrayLike, as_count
from finitewidth.core.keys import as_key
from finitewidth.core.methods import Sampling
from finitewidth.core.run import Run, as_run
from finitewidth.core.tasks import HERE
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.ensemble.training import LEAST_BATCHES, train_ensemble
from finitewidth.experiment.scaling import Fall
from finitewidth.network.algorithms.abstract import AbstractAlgorithm
from finitewidth.network.losses.abstract import AbstractLoss, as_loss
from finitewidth.network.losses.squared_error import MSE
from finitewidth.network.network import Network
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.first_order.learning_problem import of_width
from finitewidth.training.first_order.prepared import Prepared, prepare
from finitewidth.training.infinite.fitting import fit
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.prediction import predict
from finitewidth.training.replay.replayed import ReplayedPrediction
from finitewidth.training.replay.replaying import is_replayed

CACHED = 4e6  # bytes of the parameters of a batch; larger batches are slower
LEAST_MEMBERS = 16  # of an ensemble, for standard errors that are themselves known to a fifth
ROUNDING = 1e-9  # of the largest variance, or of the largest mean squared
_DRAWS = 8000  # of initial outputs, where theory is sampled; its standard errors are in the result
WIDE = 2**20  # a width of which only order 1/n is seen


@shown(
    "n",
    "mean",
    "variance",
    "chi_square",
    "freedom",
    "widths",
    "members",
    "note",
    dimensions={"mean": "sample output", "variance": "sample output"},
)
@dataclass(frozen=True, eq=False)
class Extrapolation:
    """Mean and variance of trained networks at any width, from order 1/n and narrow ensembles.

    `fw.extrapolate` makes it.

    ```python
    wide = fw.extrapolate(
        net,
        X,
        Y,
        X_test,
        algorithm=fw.GradientDescent(0.1, steps=5),
        widths=(8, 12, 16),
        members=40,
    )
    wide.at(256).variance.stderr
    ```
    """

    n: int  # the width that was asked for
    widths: tuple[int, ...]  # of the ensembles
    members: int  # of each ensemble
    prepared: Prepared | ReplayedPrediction = field(repr=False)  # the theory through order 1/n
    algorithm: AbstractAlgorithm  # how networks are trained
    falls: Mapping[str, Fall] = field(repr=False)  # of the remainder of mean and variance
    remainders: Mapping[str, Sequence[Estimate]] = field(repr=False)  # networks minus theory at each width
    too_narrow: tuple[int, ...] = ()  # widths from which the series cannot be learned

    def at(self, n: int) -> "Extrapolation":
        """The same at another width of all hidden layers.

        An `fw.warnings.ExpansionWarning` comes with a width below those that were trained, where the fitted
        orders grow without bound, and with variances below zero.
        """
        there = replace(self, n=int(as_count("n", n, lowest=2)))
        _warn_of_width(there)
        return there

    @property
    def prediction(self) -> Prediction | ReplayedPrediction:
        """Theory through order 1/n at this width."""
        return _predicted(self.prepared, self.algorithm, self.n)

    @property
    def mean(self) -> Estimate:
        """Mean outputs on test inputs, (M, n_L)."""
        return self._with_remainder("mean")

    @property
    def variance(self) -> Estimate:
        """Variances of outputs on test inputs, (M, n_L)."""
        return self._with_remainder("variance")

    @property
    def below_zero(self) -> Bool[np.ndarray, "M n_L"]:
        """Where the variance is negative, beyond rounding: no standard deviation exists."""
        variance = self.variance.value
        scale = max(np.abs(variance).max(initial=0.0), np.square(self.mean.value).max(initial=0.0))
        return variance < -ROUNDING * scale

    @property
    def std(self) -> Estimate:
        """Standard deviations of outputs on test inputs, (M, n_L); NaN where there is none."""
        variance = self.variance
        std = np.where(self.below_zero, np.nan, np.sqrt(np.maximum(variance.value, 0.0)))
        none = np.where(variance.stderr > 0, np.nan, 0.0)
        return Estimate(std, np.divide(variance.stderr, 2 * std, out=none, where=std > 0))

    @property
    def note(self) -> str | None:
        """What a line that shows this record must say besides its numbers, or None."""
        return "variances below zero" if self.below_zero.any() else None

    @property
    def chi_square(self) -> dict[str, Float[np.ndarray, "M n_L"]]:
        """Of the fits to mean and variance, each over `freedom`; large values say that orders are missing."""
        return {name: fall.chi_square for name, fall in self.falls.items()}

    @property
    def freedom(self) -> int:
        """Degrees of freedom of each fit."""
        return len(self.widths) - len(ORDERS)

    def _with_remainder(self, name: str) -> Estimate:
        left, theory = self.falls[name].at(self.n), self.prediction
        neglected = {"mean": theory.uncertainty, "variance": theory.variance_uncertainty}[name]
        own = {"mean": theory.stderr, "variance": theory.variance_stderr}[name]  # where theory is sampled
        error = np.hypot(np.hypot(left.stderr, own), self._reach * neglected)
        return Estimate(getattr(theory, name) + left.value, error)

    @property
    def _reach(self) -> float:
        """The share of the uncertainty of theory that networks cannot remove: none where they are."""
        return max(1 - self.widths[-1] / self.n, 0.0) if self.too_narrow else 0.0


def extrapolate(
    net: Network,
    X_train: ArrayLike,
    Y_train: ArrayLike,
    X_test: ArrayLike,
    *,
    algorithm: AbstractAlgorithm,
    widths: Sequence[int] | None = None,
    members: int = 4000,
    key: Any = 0,
    loss: AbstractLoss = MSE(),
    run: Run | None = None,
) -> Extrapolation | KinkedExtrapolation:
    """Mean and variance of trained networks at the width of `net`, with the orders behind 1/n.

    Ensembles of narrower networks are trained with control variates, and what order 1/n leaves over is fitted
    with 1/n² and 1/n³. Errors are those of the ensembles and of the orders that the fit neglects, larger
    where the fit is worse than both allow. Each width draws networks of its own. From networks that are too
    narrow the errors are those of theory alone, with an `fw.warnings.ExpansionWarning` that names widths that
    will do.

    Networks with kinks such as relu approach infinite width as n^(-1/2), and order 1/n does not exist for
    them: their networks are compared with infinite width, and fitted with n^(-1/2), 1/n and n^(-3/2).

    Args:
        net: A network whose hidden layers all have the same width.
        X_train: Training inputs (N, n_0).
        Y_train: Targets (N, n_L).
        X_test: Test inputs (M, n_0).
        algorithm: How and how long networks are trained.
        widths: Widths of the ensembles. By default 24, 32 and 48, and wider ones where orders behind the fit
            would be most of the error; the record has them. With kinks 64, 128, 256 and 512.
        members: Networks of each ensemble, 16 or more.
        key: The randomness.
        loss: The loss.
        run: Where networks are trained, an `fw.Run`; its store is a folder with one ensemble for each width.

    Returns:
        Estimates `mean` and `variance` with standard errors, also `at` other widths: an
        `fw.records.Extrapolation`, or for networks with kinks an `fw.records.KinkedExtrapolation`.

    ```python
    wide = fw.extrapolate(
        net,
        X,
        Y,
        X_test,
        algorithm=fw.GradientDescent(0.1, steps=5),
        widths=(8, 12, 16),
        members=40,
    )
    wide.mean.value, wide.mean.stderr, wide.at(256).mean.value
    ```
    """
    members, start = checked_members(members), START if net.is_smooth else WIDTHS
    narrow = list(checked_widths(net, start if widths is None else widths))
    loss, key, run = as_loss(loss), as_key(key), as_run(run, batches=True)

    def measured(n: int) -> dict[str, Estimate]:
        small = of_width(net, n)
        ensemble = train_ensemble(
            small,
            X_train,
            Y_train,
            X_test,
            algorithm=algorithm,
            loss=loss,
            members=members,
            key=jax.random.fold_in(key, n),  # one key for all widths would draw the same first neurons
            control=control_variate(small, X_train, Y_train, X_test, algorithm, loss),
            run=_of_width(run, n, small, members),
        )
        return _mean_and_variance(ensemble)

    if not net.is_smooth:
        if not loss.is_squared_error:
            raise ValueError(
                f"networks with kinks are extrapolated with the squared error alone, got loss={loss!r}; use "
                "fw.MSE(), or a smooth activation."
            )
        infinite = fit(net, X_train, Y_train, algorithm=algorithm).predict(X_test)
        return extrapolate_kinked(net.ladder.widths[-2], narrow, members, algorithm, infinite, measured)
    prepared = _theory(net, X_train, Y_train, X_test, algorithm, loss)

    def meaningless(n: int) -> bool:
        return _predicted(prepared, algorithm, n).verdict == "meaningless"

    if widths is not None:  # before anything is trained
        _warn_of_narrow(too_narrow(narrow, meaningless), meaningless, prepared.n)

    def remainders(n: int) -> dict[str, Estimate]:
        return _remainders(measured(n), _predicted(prepared, algorithm, n))

    seen = [remainders(n) for n in narrow]
    first = _first_order(_predicted(prepared, algorithm, WIDE))
    while widths is None:
        size = lambda n: prepared.with_width(n).net.parameter_count  # noqa: E731
        wider = wider_width(falls_of_remainders, narrow, _by_name(seen), first, prepared.n, size)
        if wider is None:
            break
        narrow.append(wider)
        seen.append(remainders(wider))
    useless = too_narrow(narrow, meaningless)
    if widths is None:
        _warn_of_narrow(useless, meaningless, prepared.n)
    left = _by_name(seen)
    falls = falls_of_remainders(narrow, left, first)
    there = Extrapolation(prepared.n, tuple(narrow), members, prepared, algorithm, falls, left, useless)
    _warn_of_width(there)
    return there


def _theory(net, X_train, Y_train, X_test, algorithm, loss) -> Prepared | ReplayedPrediction:
    """Order 1/n, for any width of the hidden layers."""
    if not is_replayed(algorithm, loss):
        return prepare(net, X_train, Y_train, X_test, covariance=True)
    method = Sampling(samples=_DRAWS)
    found = predict(net, X_train, Y_train, X_test, algorithm=algorithm, loss=loss, method=method)
    assert isinstance(found, ReplayedPrediction)  # the method draws initial outputs
    return found


def _warn_of_narrow(useless: Sequence[int], meaningless: Callable[[int], bool], n: int) -> None:
    if not useless:
        return
    better = wide_enough(meaningless)
    remedy = f"use widths={better}" if better and better[-1] < n else "use wider ones, or fw.train_ensemble"
    warn(
        f"order 1/n is meaningless at {_plural('width', len(useless))} {', '.join(map(str, useless))}: "
        "networks so narrow do not show the orders behind it, and errors are those of theory alone; "
        f"{remedy}.",
        ExpansionWarning,
    )


def _warn_of_width(there: Extrapolation) -> None:
    """Warn of a width at which the fit only guesses, and of variances that no ensemble can have."""
    below, negative = there.n < there.widths[0], int(np.sum(there.below_zero))
    if not below and not negative:
        return
    known = f"the trained widths {', '.join(map(str, there.widths))}"
    place = f"width {there.n} is below {known}, where the fitted orders grow without bound"
    count = f"{negative} of {there.below_zero.size}"
    what = f"variances at width {there.n} are below zero and have no std ({count})"
    parts = [place] * below + [what] * bool(negative)
    remedy = f"use width {there.widths[0]} or more" if below else "use a larger width or more members"
    warn(f"{', and '.join(parts)}; {remedy}, or fw.train_ensemble.", ExpansionWarning)


def _of_width(run: Run, n: int, net: Network, members: int) -> Run:
    """The run of the ensemble of one width."""
    store = None if run.store is None else Path(run.store) / f"width_{n}.zarr"
    free = run.batch_size is None and run.memory is None
    return replace(run, store=store, batch_size=_batch(net, members) if free else run.batch_size)


def _batch(net: Network, members: int) -> int:
    """Networks that are trained at once: few enough for a cache, and batches enough for workers."""
    return max(1, min(int(CACHED // (8 * net.parameter_count)), -(-members // LEAST_BATCHES)))


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def _by_name(seen: Sequence[Mapping[str, Estimate]]) -> dict[str, list[Estimate]]:
    return {name: [one[name] for one in seen] for name in seen[0]}


def checked_members(members) -> int:
    """The number of networks of a width, enough for a standard error."""
    try:
        return int(as_count("members", members, lowest=LEAST_MEMBERS))
    except ValueError:
        raise ValueError(
            f"members must be a whole number of at least {LEAST_MEMBERS}, for standard errors that a fit can "
            f"use, got {members!r}; use 4000."
        ) from None


def checked_widths(net: Network, widths) -> tuple[int, ...]:
    """Different widths in order, enough for a fit that can be judged."""
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise ValueError(f"widths must be several widths, got {widths!r}; use widths={START}.")
    widths = tuple(widths)
    narrow = tuple(sorted({int(as_count("widths", n, lowest=2)) for n in widths}))
    if len(narrow) <= len(ORDERS):
        raise ValueError(
            f"widths={widths!r} has {len(narrow)} different {_plural('width', len(narrow))}, but a fit of "
            f"{len(ORDERS)} orders that can be judged needs {len(ORDERS) + 1}; use "
            f"widths={START}."
        )
    hidden = set(net.ladder.widths[1:-1])
    if len(hidden) != 1:
        raise ValueError(
            f"net has hidden layers of widths {net.ladder.widths[1:-1]}; extrapolation in the width needs "
            "hidden layers of one width."
        )
    return narrow


def _predicted(
    prepared: Prepared | ReplayedPrediction, algorithm: AbstractAlgorithm, n: int
) -> Prediction | ReplayedPrediction:
    if isinstance(prepared, ReplayedPrediction):
        return prepared.with_width(n)
    return prepared.with_width(n).predict_with(HERE, algorithm, True)


def _first_order(prediction: Prediction | ReplayedPrediction) -> dict[str, np.ndarray]:
    """The coefficients of 1/n, from a prediction so wide that it has no others."""
    limit = prediction.infinite_width
    return {name: WIDE * (getattr(prediction, name) - getattr(limit, name)) for name in ("mean", "variance")}


def _mean_and_variance(ensemble: Ensemble) -> dict[str, Estimate]:
    """Of trained outputs, with the control variate."""
    variance = Estimate(*(np.einsum("aiai->ai", part) for part in ensemble.best_covariance))
    return {"mean": ensemble.best_mean, "variance": variance}


def _remainders(
    seen: Mapping[str, Estimate], prediction: Prediction | ReplayedPrediction
) -> dict[str, Estimate]:
    """Trained networks less theory, with the standard errors of both."""
    own = {"mean": prediction.stderr, "variance": prediction.variance_stderr}
    return {
        name: Estimate(one.value - getattr(prediction, name), np.hypot(one.stderr, own[name]))
        for name, one in seen.items()
    }
