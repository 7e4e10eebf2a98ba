"""The types of results, for annotations and checks; functions of the library make them."""

from finitewidth.comparison.accuracy import Accuracy
from finitewidth.comparison.extrapolation import Extrapolation
from finitewidth.comparison.kinked_extrapolation import KinkedExtrapolation
from finitewidth.critical.activations.classification import Criticality
from finitewidth.critical.activations.susceptibilities import Susceptibilities
from finitewidth.critical.aspect_ratio import Aspect
from finitewidth.critical.asymptotic_laws import Asymptotes
from finitewidth.critical.audit import Audit
from finitewidth.critical.mutual_information import Information
from finitewidth.critical.ntk_shares import NTKShares
from finitewidth.critical.phases import PhaseDiagram
from finitewidth.critical.seed_spread import SeedSpread
from finitewidth.experiment.ensemble.plan import Control
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.experiment.statistics import SampledStatistics
from finitewidth.experiment.weighted import SampledPosterior
from finitewidth.theory.kernels import Kernels
from finitewidth.theory.records import Layer, Theory
from finitewidth.theory.unrolled.unroll import Unrolled
from finitewidth.training.bayes.posterior import Posterior
from finitewidth.training.bayes.ranking import Ranking
from finitewidth.training.depth_and_width import ExpectedLoss
from finitewidth.training.first_order.inductive_bias import InductiveBias
from finitewidth.training.first_order.one_network import NetworkPrediction
from finitewidth.training.first_order.prepared import Prepared
from finitewidth.training.infinite.bayes import Evidence
from finitewidth.training.infinite.fitting import Fitted
from finitewidth.training.infinite.gaussian import Prediction
from finitewidth.training.infinite.learning_curves import LearningCurve
from finitewidth.training.infinite.sampled import SampledPrediction
from finitewidth.training.infinite.spectrum import Spectrum
from finitewidth.training.infinite.test_loss import TestLoss
from finitewidth.training.kinks.correction import KinkCorrection
from finitewidth.training.replay.replayed import Expectation, ReplayedPrediction
from finitewidth.training.textbook.linear import KernelMachine, LinearModel
from finitewidth.training.trajectories import Trajectory

__all__ = [
    "Accuracy",
    "Aspect",
    "Asymptotes",
    "Audit",
    "Control",
    "Criticality",
    "Ensemble",
    "Evidence",
    "Expectation",
    "ExpectedLoss",
    "Extrapolation",
    "Fitted",
    "InductiveBias",
    "Information",
    "KernelMachine",
    "Kernels",
    "KinkCorrection",
    "KinkedExtrapolation",
    "Layer",
    "LearningCurve",
    "LinearModel",
    "NTKShares",
    "NetworkPrediction",
    "PhaseDiagram",
    "Posterior",
    "Prediction",
    "Prepared",
    "Ranking",
    "ReplayedPrediction",
    "SampledPosterior",
    "SampledPrediction",
    "SampledStatistics",
    "SeedSpread",
    "Spectrum",
    "Susceptibilities",
    "TestLoss",
    "Theory",
    "Trajectory",
    "Unrolled",
]
