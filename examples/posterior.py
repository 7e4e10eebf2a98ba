"""The posterior of networks beside gradient descent on one problem, at both orders, and weighted networks.

python examples/posterior.py [--output figure.png]
"""

import warnings
from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

NET = fw.MLP((1, 128, 128, 1), "tanh", C_b=0.3, C_W=1.5)
X, Y = np.array([[-1.5], [-0.3], [1.2]]), np.array([[-0.9], [0.4], [0.2]])


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "posterior", arguments)
    points, members = (3, 400) if options.quick else (15, 30_000)
    x = np.linspace(-2.5, 2.5, points)[:, None]
    warnings.simplefilter("ignore", fw.ExpansionWarning)  # for the smallest variances, next to training data
    posterior = fw.posterior(NET, X, Y, x, order=1)
    last, every = fw.predict(fw.bayesian_rates(NET), X, Y, x), fw.predict(NET, X, Y, x)
    sampled = fw.sample_posterior(NET, X, Y, x, members=members, key=0, progress=False)
    figure = fw.plots.posterior_and_training(posterior, last, every, x, (X, Y), sampled)
    fw.plots.save(figure, options.output)
    print(f"effective members {sampled.effective_members:,.0f} of {sampled.members:,}")
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
