"""The difference between trained networks and theory: 1/n at infinite width, 1/n^2 at order 1/n.

    python examples/residuals.py [--output figure.png]

Networks of one hidden layer learn three points by twelve steps of gradient descent, with targets large enough
for the NTK to move. Their mean output at a test point is sampled with the infinite-width prediction as a
control variate.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from figure_options import figure_options

import finitewidth as fw

X = np.array([[1.2, -0.4, 0.3], [-0.5, 1.1, 0.8], [0.2, 0.7, -1.3], [0.6, 0.5, 0.4]])
Y = np.array([[4.0], [-3.2], [2.0]])
DATA = X[:3], Y, X[3:]
ALGORITHM = fw.GradientDescent(0.12, steps=12)
MEMBERS = {16: 40_000, 24: 40_000, 32: 80_000, 48: 80_000, 64: 160_000, 128: 160_000, 256: 160_000}


def run(prepared: fw.records.Prepared, members: int) -> tuple[fw.records.Prediction, fw.records.Ensemble]:
    control = fw.control_variate(prepared.net, *DATA, ALGORITHM)
    ensemble = fw.train_ensemble(
        prepared.net, *DATA, algorithm=ALGORITHM, members=members, key=0, control=control
    )
    return prepared.predict(ALGORITHM), ensemble


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "residuals", arguments)
    warnings.simplefilter(
        "ignore", fw.warnings.ExpansionWarning
    )  # narrow networks are included to show where the expansion ends
    members = {4: 40, 8: 40} if options.quick else MEMBERS
    net = fw.MLP((3, 16, 1), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)
    prepared = fw.prepare(net, *DATA)  # serves all widths
    predictions, ensembles = zip(
        *(run(prepared.with_width(width), count) for width, count in members.items()), strict=True
    )
    fw.plots.save(fw.plots.residuals(predictions, ensembles), options.output)
    for width, prediction, ensemble in zip(members, predictions, ensembles, strict=True):
        mean = ensemble.controlled.mean
        gaps = [float(mean.value[0, 0] - p.mean[0, 0]) for p in (prediction.infinite_width, prediction)]
        print(f"width {width:3d}: {gaps[0]:+.5f} and {gaps[1]:+.5f} ± {float(mean.stderr[0, 0]):.5f}")
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
