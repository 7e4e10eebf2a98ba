"""The tab of Bayesian inference: the posterior on the problem of the page, with noise on the observations."""

import warnings

import numpy as np

from finitewidth.interface.page import answers, problem
from finitewidth.interface.page.values import Values
from finitewidth.network.mlp import MLP
from finitewidth.training.bayes.posterior import Posterior, posterior
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.infinite.bayes import infinite_evidence


def bayes(values: Values) -> dict:
    """Posterior mean and spread at infinite width and through order 1/n, and the evidence of the data."""
    net = problem.network(values)
    answers.check_depth(net)
    answers.check_signal(net)
    x, y = problem.training_points(values)
    shown = problem.curve(x)
    X, Y = problem.inputs(x), y[:, None]
    infinite = posterior(net, X, Y, problem.inputs(shown), noise=values.noise)
    compared = problem.compared(x)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ExpansionWarning)
        finite = posterior(
            net,
            X,
            Y,
            problem.inputs(compared),
            noise=values.noise,
            order=1,
            four_leg_tolerance=answers.FOUR_LEG_TOLERANCE,
        )
    return {
        "infinite": answers.curve(shown, infinite.prediction),
        "finite": answers.curve(compared, finite.prediction),
        "verdict": finite.verdict,
        "warning": answers.warnings_in_words(caught),
        "evidence": _evidence(net, X, Y, finite),
    }


def _evidence(net: MLP, X: np.ndarray, Y: np.ndarray, finite: Posterior) -> str:
    value = infinite_evidence(net, X, Y, noise=finite.noise, gradient=False).value
    assert finite.log_evidence_correction is not None  # posteriors of order 1 have it
    return (
        f"Log evidence of the data: {value:.4g} at infinite width, and finite width adds "
        f"{finite.log_evidence_correction:+.2g}."
    )
