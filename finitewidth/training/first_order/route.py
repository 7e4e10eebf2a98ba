"""Which way order 1/n is computed: from whole tensors, leg by leg, or in samples, and how accurately."""

import math
from dataclasses import dataclass

import jax
import numpy as np

from finitewidth.core.inputs import as_count, as_positive
from finitewidth.core.keys import as_key
from finitewidth.training.many_points.estimation import BUDGET, TOLERANCE, Accuracy

RouteName = str  # "deterministic" or "sampled"
DENSE = 64  # samples; beyond, tensors of N^4 numbers are avoided unless the covariance is asked for
_FEWEST = 1000


@dataclass(frozen=True)
class Route:
    """A way, None where it is chosen by the number of samples, and what is asked of an estimate."""

    name: RouteName | None = None
    accuracy: Accuracy = Accuracy()
    variance: bool = False  # whether the variance is sampled too, where there is no covariance

    @classmethod
    def of(
        cls,
        name: RouteName | None,
        *,
        tolerance: float | None = None,
        samples: int | None = None,
        budget: float | None = None,
        variance: bool = False,
        key=0,
    ) -> "Route":
        """Check a route as a user gave it."""
        if name not in (None, "deterministic", "sampled"):
            raise ValueError(
                f'route must be "deterministic", "sampled", or None for either by itself, got {name!r}.'
            )
        if not isinstance(variance, bool | np.bool_):
            raise ValueError(f"variance must be True or False, got {variance!r}.")
        if name == "deterministic":
            _refuse_any({"tolerance": tolerance, "samples": samples}, 'with route="deterministic"')
        if samples is not None:
            samples = int(as_count("samples", samples, lowest=_FEWEST))
            if tolerance is not None:
                raise ValueError(
                    f"give tolerance={tolerance!r} or samples={samples}, not both; one sets the other."
                )
        seed = tuple(int(part) for part in jax.random.key_data(as_key(key)).ravel())
        budget = as_positive("budget", BUDGET if budget is None else budget, or_infinite=True)
        tolerance = as_positive("tolerance", TOLERANCE if tolerance is None else tolerance)
        budget = math.inf if math.isinf(budget) else budget
        return cls(name, Accuracy(tolerance, samples, budget, seed), bool(variance))

    def check_sampled(self, has_skips: bool, covariance: bool | None) -> None:
        """Refuse what sampling does not know."""
        if has_skips:
            raise ValueError(
                'route="sampled" knows dense networks only, and this one has skip connections; use '
                'route="deterministic".'
            )
        if covariance:
            raise ValueError(
                'route="sampled" gives the mean and, with variance=True, the variance of each output, got '
                'covariance=True; use variance=True, or route="deterministic", which needs whole tensors.'
            )

    def check_variance(self, has_skips: bool) -> None:
        """Refuse a variance without a covariance where it cannot be sampled."""
        if self.variance and (self.name == "deterministic" or has_skips):
            raise ValueError(
                "variance=True beyond 64 samples is sampled, for dense networks only; use covariance=True, "
                'which needs whole tensors, or route="sampled" with a dense network.'
            )

    def described(self) -> dict[str, object]:
        """The route in the configuration of a store, by the arguments; a budget changes no number."""
        accuracy = self.accuracy
        return {
            "route": self.name,
            "samples": accuracy.samples,
            "tolerance": accuracy.tolerance if accuracy.samples is None else None,
            "key": list(accuracy.seed),
            "variance": self.variance,
        }


def refuse_at_order_0(**asked: object) -> None:
    """Refuse what is asked of order 1/n where the order is 0."""
    _refuse_any(asked, "with order=0")


def _refuse_any(asked: dict[str, object], where: str) -> None:
    for name, value in asked.items():
        if value is not None:
            raise ValueError(f"{name}={value!r} has no meaning {where}; remove one of the two.")


AUTOMATIC = Route()
