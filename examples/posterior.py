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


BLOCK = 12  # test inputs at a time: the cost grows with the fourth power of their number


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "posterior", arguments)
    points, step, members = (5, 2, 400) if options.quick else (96, 5, 30_000)
    x = np.linspace(-2.5, 2.5, points)[:, None]
    warnings.simplefilter(
        "ignore", fw.warnings.ExpansionWarning
    )  # for the smallest variances, next to training data
    blocks = [x[start : start + BLOCK] for start in range(0, points, BLOCK)]
    posterior = [fw.bayes.posterior(NET, X, Y, block, order=1) for block in blocks]
    last, every = (
        [fw.predict(net, X, Y, block, run=fw.Run(progress=False)) for block in blocks]
        for net in (fw.bayes.rates(NET), NET)
    )
    some = x[::step]  # few points, so that the curves can be seen
    sampled = fw.bayes.sample(NET, X, Y, some, members=members, key=0)
    figure = fw.plots.posterior_and_training(posterior, last, every, x, (X, Y), sampled, some)
    fw.plots.save(figure, options.output)
    print(f"effective members {sampled.effective_members:,.0f} of {sampled.members:,}")
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
