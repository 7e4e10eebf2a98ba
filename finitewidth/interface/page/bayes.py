"""The tab of Bayesian inference: the posterior on the problem of the page, with noise on the observations."""

import numpy as np

from finitewidth.core.methods import Tensors
from finitewidth.interface.page import answers, problem
from finitewidth.interface.page.values import Values
from finitewidth.network.mlp import MLP
from finitewidth.training.bayes.posterior import posterior
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.infinite.bayes import infinite_evidence


def bayes(values: Values) -> dict:
    """Posterior mean and spread at infinite width and through order 1/n, and the evidence of the data."""
    net = problem.network(values)
    answers.check_signal(net)
    x, y = problem.training_points(values)
    data = problem.inputs(x), y[:, None]
    shown = problem.curve(x)
    infinite = posterior(net, *data, problem.inputs(shown), noise=values.noise, order=0)
    evidence = infinite_evidence(net, *data, noise=values.noise, gradient=False).value
    answer = {
        "infinite": answers.curve(shown, infinite.prediction),
        "finite": None,
        "verdict": "",
        "evidence": f"Log evidence of the data at infinite width: {evidence:.3g}.",
        "missing": _why_no_finite_width(net),
    }
    return answer if answer["missing"] else {**answer, **_finite_width(net, data, values, evidence)}


def _finite_width(net: MLP, data: tuple[np.ndarray, np.ndarray], values: Values, evidence: float) -> dict:
    compared = problem.compared(problem.training_inputs(values.points))
    with answers.noted(ExpansionWarning) as caught:
        there = posterior(
            net,
            *data,
            problem.inputs(compared),
            noise=values.noise,
            order=1,
            method=Tensors(tolerance=answers.FOUR_LEG_TOLERANCE),
        )
    return {
        "finite": answers.curve(compared, there.prediction),
        "verdict": there.verdict,
        "warning": answers.warnings_in_words(caught),
        "evidence": f"Log evidence of the data: {evidence:.3g} at infinite width; finite width adds "
        f"{there.log_evidence_correction:+.2g}.",
    }


def _why_no_finite_width(net: MLP) -> str:
    if net.kinked is not None:
        return (
            f"The posterior at finite width takes too long for this page where the activation has a kink, as "
            f"{net.kinked.name} has; fw.bayes.posterior computes it. Only infinite width is drawn."
        )
    return answers.why_too_deep(net)
