"""The posterior of networks beside gradient descent, at both orders, and networks ranked by evidence.

python examples/posterior.py [--output figure.png]
"""

import warnings
from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

NET = fw.MLP((1, 48, 48, 1), "tanh", C_b=0.3, C_W=1.5)
X, Y = np.array([[-1.5], [-0.3], [1.2]]), np.array([[-0.9], [0.7], [-0.5]])


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "posterior", arguments)
    points, members = (3, 400) if options.quick else (13, 60_000)
    x = np.linspace(-2.5, 2.5, points)[:, None]
    warnings.simplefilter("ignore", fw.ExpansionWarning)  # for the smallest variances, next to training data
    posterior = fw.posterior(NET, X, Y, x, order=1)
    last, every = fw.predict(fw.bayesian_rates(NET), X, Y, x), fw.predict(NET, X, Y, x)
    sampled = fw.sample_posterior(NET, X, Y, x, members=members, key=0, progress=False)
    figure = fw.plots.posterior_and_training(posterior, last, every, x, (X, Y), sampled)
    fw.plots.save(figure, options.output)
    print(f"effective members {sampled.effective_members:,.0f} of {sampled.members:,}")
    ranking = fw.rank_by_evidence(candidates(options.quick), X, Y, noise=0.01)
    print(ranking)
    beside = options.output.with_name(f"evidence{options.output.suffix}")
    fw.plots.save(fw.plots.evidence_of_networks(ranking), beside)
    print(f"figures written to {options.output} and {beside}")


def candidates(quick: bool) -> list[fw.MLP]:
    """Depths, widths and activations, all critical."""
    names, depths, widths = ("tanh", "gelu", "relu"), (2, 4), (16, 64)
    if quick:
        names, depths, widths = ("tanh",), (2,), (16, 64)
    return [
        fw.MLP.critical((1, *[width] * (depth - 1), 1), name)
        for name in names
        for depth in depths
        for width in widths
    ]


if __name__ == "__main__":
    main()
