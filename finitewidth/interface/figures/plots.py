"""All figures of the library (`fw.plots`). Each takes records and returns a matplotlib figure; none computes.

figure = fw.plots.kernels_over_depth(fw.solve(net, X))
fw.plots.save(figure, "kernels.svg")
"""

from finitewidth.interface.figures.algorithms import expected_loss, inductive_bias
from finitewidth.interface.figures.bayes import evidence_of_networks, posterior_and_training
from finitewidth.interface.figures.depth import fluctuations, kernels_over_depth
from finitewidth.interface.figures.learning import learning_curve, spectrum, starpolation, trained_outputs
from finitewidth.interface.figures.phases import phase_diagrams
from finitewidth.interface.figures.saving import save
from finitewidth.interface.figures.skips import depth_and_skips, memory
from finitewidth.interface.figures.widths import ntk_ellipses, residuals

__all__ = [
    "depth_and_skips",
    "evidence_of_networks",
    "expected_loss",
    "fluctuations",
    "inductive_bias",
    "kernels_over_depth",
    "learning_curve",
    "memory",
    "ntk_ellipses",
    "phase_diagrams",
    "posterior_and_training",
    "residuals",
    "save",
    "spectrum",
    "starpolation",
    "trained_outputs",
]


def __dir__() -> list[str]:
    return __all__.copy()
