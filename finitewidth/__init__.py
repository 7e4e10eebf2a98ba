"""The effective theory of deep neural networks, made computable.

Names are imported when they are first used, so that `import finitewidth` takes milliseconds.
"""

import importlib
from typing import TYPE_CHECKING, Any

from finitewidth.precision import enable_double_precision

enable_double_precision()  # before anything imports JAX

__version__ = "0.1.0"

# modules of their own that are reached as attributes; some have the names of the packages that they serve
_MODULES = {
    "optax": "interface.optax",
    "plots": "interface.plots",
    "sklearn": "interface.sklearn",
    "torch": "interface.torch",
}

# every public name and the module that it lives in; a new name also goes into the block below
_HOMES = {
    "Activation": "activation",
    "KinkWarning": "activation",
    "activations": "activation",
    "MLP": "network",
    "GradientDescent": "algorithm",
    "GradientFlow": "algorithm",
    "Newton": "algorithm",
    "Schedule": "algorithm",
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
    "Criticality": "theory.criticality",
    "criticality": "theory.criticality",
    "fit_exponents": "theory.exponents",
    "Susceptibilities": "theory.susceptibilities",
    "susceptibilities": "theory.susceptibilities",
    "PhaseDiagram": "theory.phase_diagram",
    "phase_diagram": "theory.phase_diagram",
    "Asymptotes": "theory.asymptotes",
    "asymptotes": "theory.asymptotes",
    "Audit": "theory.audit",
    "audit": "theory.audit",
    "Estimate": "estimate",
    "claims": "comparison.claims",
    "compare": "comparison.compare",
    "control_variate": "comparison.compare",
    "Control": "experiment.plan",
    "DivergenceWarning": "experiment.ensemble",
    "Ensemble": "experiment.results",
    "SampledStatistics": "experiment.sample_statistics",
    "UnfinishedWarning": "experiment.ensemble",
    "sample_statistics": "experiment.sample_statistics",
    "train_ensemble": "experiment.ensemble",
    "Prediction": "training.gaussian",
    "SampledPrediction": "training.sampled",
    "predict": "training.prediction",
    "InductiveBias": "training.inductive_bias",
    "inductive_bias": "training.inductive_bias",
    "ExpectedLoss": "training.depth_and_width",
    "expected_loss": "training.depth_and_width",
    "ExpansionWarning": "training.finite_width",
    "FiniteWidth": "training.finite_width",
    "finite_width": "training.finite_width",
    "NetworkPrediction": "training.one_network",
    "predict_network": "training.one_network",
    "Projectors": "algorithm",
    "Fitted": "training.fitting",
    "fit": "training.fitting",
    "Trajectory": "training.dynamics",
    "trajectory": "training.dynamics",
    "stopping_time": "training.dynamics",
    "one_hot": "training.cross_entropy",
    "outputs_of": "training.cross_entropy",
    "softmax": "training.cross_entropy",
    "Evidence": "training.bayes",
    "bayesian_rates": "training.bayes",
    "evidence": "training.bayes",
    "posterior": "training.bayes",
    "choose_ridge": "training.ridge",
    "Spectrum": "training.spectrum",
    "spectrum": "training.spectrum",
    "TestLoss": "training.generalization",
    "test_loss": "training.generalization",
    "neighbour": "training.generalization",
    "delta_expansion": "training.delta_expansion",
    "finite_angle": "training.finite_angle",
    "starpolate": "training.starpolation",
    "LinearModel": "training.linear",
    "KernelMachine": "training.linear",
    "fit_linear_model": "training.linear",
    "fit_kernel_machine": "training.linear",
    "random_features": "training.linear",
    "with_constant": "training.linear",
    "save_spectrum": "interface.plots",
}

if TYPE_CHECKING:
    from finitewidth.activation import Activation as Activation
    from finitewidth.activation import KinkWarning as KinkWarning
    from finitewidth.activation import activations as activations
    from finitewidth.algorithm import GradientDescent as GradientDescent
    from finitewidth.algorithm import GradientFlow as GradientFlow
    from finitewidth.algorithm import Newton as Newton
    from finitewidth.algorithm import Projectors as Projectors
    from finitewidth.algorithm import Schedule as Schedule
    from finitewidth.algorithm import StochasticGradientDescent as StochasticGradientDescent
    from finitewidth.algorithm import TwoStep as TwoStep
    from finitewidth.comparison.claims import claims as claims
    from finitewidth.comparison.compare import compare as compare
    from finitewidth.comparison.compare import control_variate as control_variate
    from finitewidth.estimate import Estimate as Estimate
    from finitewidth.experiment.ensemble import DivergenceWarning as DivergenceWarning
    from finitewidth.experiment.ensemble import UnfinishedWarning as UnfinishedWarning
    from finitewidth.experiment.ensemble import train_ensemble as train_ensemble
    from finitewidth.experiment.plan import Control as Control
    from finitewidth.experiment.results import Ensemble as Ensemble
    from finitewidth.experiment.sample_statistics import SampledStatistics as SampledStatistics
    from finitewidth.experiment.sample_statistics import sample_statistics as sample_statistics
    from finitewidth.interface import optax as optax
    from finitewidth.interface import plots as plots
    from finitewidth.interface import sklearn as sklearn
    from finitewidth.interface import torch as torch
    from finitewidth.interface.plots import save_spectrum as save_spectrum
    from finitewidth.loss import MSE as MSE
    from finitewidth.loss import CrossEntropy as CrossEntropy
    from finitewidth.network import MLP as MLP
    from finitewidth.theory.asymptotes import Asymptotes as Asymptotes
    from finitewidth.theory.asymptotes import asymptotes as asymptotes
    from finitewidth.theory.audit import Audit as Audit
    from finitewidth.theory.audit import audit as audit
    from finitewidth.theory.criticality import Criticality as Criticality
    from finitewidth.theory.criticality import criticality as criticality
    from finitewidth.theory.exponents import fit_exponents as fit_exponents
    from finitewidth.theory.means import Kernels as Kernels
    from finitewidth.theory.means import kernels as kernels
    from finitewidth.theory.phase_diagram import PhaseDiagram as PhaseDiagram
    from finitewidth.theory.phase_diagram import phase_diagram as phase_diagram
    from finitewidth.theory.solve import Layer as Layer
    from finitewidth.theory.solve import Theory as Theory
    from finitewidth.theory.solve import load as load
    from finitewidth.theory.solve import solve as solve
    from finitewidth.theory.susceptibilities import Susceptibilities as Susceptibilities
    from finitewidth.theory.susceptibilities import susceptibilities as susceptibilities
    from finitewidth.theory.unroll import Unrolled as Unrolled
    from finitewidth.theory.unroll import unroll as unroll
    from finitewidth.training.bayes import Evidence as Evidence
    from finitewidth.training.bayes import bayesian_rates as bayesian_rates
    from finitewidth.training.bayes import evidence as evidence
    from finitewidth.training.bayes import posterior as posterior
    from finitewidth.training.cross_entropy import one_hot as one_hot
    from finitewidth.training.cross_entropy import outputs_of as outputs_of
    from finitewidth.training.cross_entropy import softmax as softmax
    from finitewidth.training.delta_expansion import delta_expansion as delta_expansion
    from finitewidth.training.depth_and_width import ExpectedLoss as ExpectedLoss
    from finitewidth.training.depth_and_width import expected_loss as expected_loss
    from finitewidth.training.dynamics import Trajectory as Trajectory
    from finitewidth.training.dynamics import stopping_time as stopping_time
    from finitewidth.training.dynamics import trajectory as trajectory
    from finitewidth.training.finite_angle import finite_angle as finite_angle
    from finitewidth.training.finite_width import ExpansionWarning as ExpansionWarning
    from finitewidth.training.finite_width import FiniteWidth as FiniteWidth
    from finitewidth.training.finite_width import finite_width as finite_width
    from finitewidth.training.fitting import Fitted as Fitted
    from finitewidth.training.fitting import fit as fit
    from finitewidth.training.gaussian import Prediction as Prediction
    from finitewidth.training.generalization import TestLoss as TestLoss
    from finitewidth.training.generalization import neighbour as neighbour
    from finitewidth.training.generalization import test_loss as test_loss
    from finitewidth.training.inductive_bias import InductiveBias as InductiveBias
    from finitewidth.training.inductive_bias import inductive_bias as inductive_bias
    from finitewidth.training.linear import KernelMachine as KernelMachine
    from finitewidth.training.linear import LinearModel as LinearModel
    from finitewidth.training.linear import fit_kernel_machine as fit_kernel_machine
    from finitewidth.training.linear import fit_linear_model as fit_linear_model
    from finitewidth.training.linear import random_features as random_features
    from finitewidth.training.linear import with_constant as with_constant
    from finitewidth.training.one_network import NetworkPrediction as NetworkPrediction
    from finitewidth.training.one_network import predict_network as predict_network
    from finitewidth.training.prediction import predict as predict
    from finitewidth.training.ridge import choose_ridge as choose_ridge
    from finitewidth.training.sampled import SampledPrediction as SampledPrediction
    from finitewidth.training.spectrum import Spectrum as Spectrum
    from finitewidth.training.spectrum import spectrum as spectrum
    from finitewidth.training.starpolation import starpolate as starpolate

__all__ = sorted([*_HOMES, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"finitewidth.{_MODULES[name]}")
    if name not in _HOMES:
        raise AttributeError(f"module 'finitewidth' has no attribute {name!r}; see dir(finitewidth).")
    value = getattr(importlib.import_module(f"finitewidth.{_HOMES[name]}"), name)
    globals()[name] = value  # the next use finds it without coming here
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
