"""Bayes' rule for networks: posterior, evidence, and networks of the prior weighted by their likelihood."""

from finitewidth.experiment.weighted import sample
from finitewidth.training.bayes.evidence import evidence
from finitewidth.training.bayes.posterior import posterior
from finitewidth.training.bayes.ranking import rank
from finitewidth.training.infinite.bayes import rates

__all__ = [
    "evidence",
    "posterior",
    "rank",
    "rates",
    "sample",
]
