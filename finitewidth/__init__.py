"""The effective theory of deep neural networks, made computable.

Names are imported when they are first used, so that `import finitewidth` takes milliseconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

from finitewidth.precision import enable_double_precision

enable_double_precision()  # before anything imports JAX

__version__ = "0.1.0"

# every public name and the module that it lives in; a new name also goes into the block below
_HOMES = {
    "Activation": "activation",
    "KinkWarning": "activation",
    "activations": "activation",
    "MLP": "network",
    "GradientDescent": "algorithm",
    "GradientFlow": "algorithm",
    "Newton": "algorithm",
    "StochasticGradientDescent": "algorithm",
    "TwoStep": "algorithm",
    "CrossEntropy": "loss",
    "MSE": "loss",
    "Kernels": "theory.means",
    "kernels": "theory.means",
    "Layer": "theory.solve",
    "Theory": "theory.solve",
    "load": "theory.solve",
    "solve": "theory.solve",
    "Unrolled": "theory.unroll",
    "unroll": "theory.unroll",
    "Estimate": "estimate",
    "Control": "experiment.plan",
    "DivergenceWarning": "experiment.ensemble",
    "Ensemble": "experiment.results",
    "SampledStatistics": "experiment.sample_statistics",
    "UnfinishedWarning": "experiment.ensemble",
    "sample_statistics": "experiment.sample_statistics",
    "train_ensemble": "experiment.ensemble",
}

if TYPE_CHECKING:
    from finitewidth.activation import Activation as Activation
    from finitewidth.activation import KinkWarning as KinkWarning
    from finitewidth.activation import activations as activations
    from finitewidth.algorithm import GradientDescent as GradientDescent
    from finitewidth.algorithm import GradientFlow as GradientFlow
    from finitewidth.algorithm import Newton as Newton
    from finitewidth.algorithm import StochasticGradientDescent as StochasticGradientDescent
    from finitewidth.algorithm import TwoStep as TwoStep
    from finitewidth.estimate import Estimate as Estimate
    from finitewidth.experiment.ensemble import DivergenceWarning as DivergenceWarning
    from finitewidth.experiment.ensemble import UnfinishedWarning as UnfinishedWarning
    from finitewidth.experiment.ensemble import train_ensemble as train_ensemble
    from finitewidth.experiment.plan import Control as Control
    from finitewidth.experiment.results import Ensemble as Ensemble
    from finitewidth.experiment.sample_statistics import SampledStatistics as SampledStatistics
    from finitewidth.experiment.sample_statistics import sample_statistics as sample_statistics
    from finitewidth.loss import MSE as MSE
    from finitewidth.loss import CrossEntropy as CrossEntropy
    from finitewidth.network import MLP as MLP
    from finitewidth.theory.means import Kernels as Kernels
    from finitewidth.theory.means import kernels as kernels
    from finitewidth.theory.solve import Layer as Layer
    from finitewidth.theory.solve import Theory as Theory
    from finitewidth.theory.solve import load as load
    from finitewidth.theory.solve import solve as solve
    from finitewidth.theory.unroll import Unrolled as Unrolled
    from finitewidth.theory.unroll import unroll as unroll

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'finitewidth' has no attribute {name!r}; see dir(finitewidth).")
    value = getattr(importlib.import_module(f"finitewidth.{_HOMES[name]}"), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
