"""A function of one input, learned by real networks, beside theory at infinite width and at order 1/n.

python examples/trained_outputs.py [--output figure.png]
"""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figure_options import figure_options

import finitewidth as fw

NET = fw.MLP((1, 128, 128, 1), "tanh", C_b=0.3, C_W=1.5)
X, Y = np.array([[-1.5], [-0.3], [1.2]]), np.array([[-0.5], [0.6], [-0.3]])
ALGORITHM = fw.GradientDescent(0.1, steps=40)
SHOWN = 12  # networks


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "trained_outputs", arguments)
    points, members = (2, 40) if options.quick else (15, 8_000)
    X_test = np.linspace(-2.5, 2.5, points)[:, None]
    warnings.simplefilter(
        "ignore", fw.warnings.ExpansionWarning
    )  # for the smallest variances, next to training data
    prediction = fw.predict(NET, X, Y, X_test, algorithm=ALGORITHM)
    control = fw.control_variate(NET, X, Y, X_test, ALGORITHM)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "ensemble.zarr"
        ensemble = fw.train_ensemble(
            NET,
            X,
            Y,
            X_test,
            algorithm=ALGORITHM,
            members=members,
            key=0,
            control=control,
            record=fw.Record(members=True),
            run=fw.Run(store=store, progress=False),
        )
        some = ensemble.member_outputs(SHOWN)[:, -1, len(X) :, 0]  # the end of training, test inputs
    fw.plots.save(fw.plots.trained_outputs(prediction, ensemble, some), options.output)
    print(f"largest pull {fw.compare(prediction, ensemble).worst:.1f}")
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
