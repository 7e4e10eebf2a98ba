"""The neural tangent kernel of two images as an ellipse, during training, at several widths.

    python examples/ntk_ellipse.py [--output figure.png]

Two handwritten digits make the NTK a matrix of two rows, drawn as the ellipse {x : x^T Theta^-1 x = 1}.
Gradient flow turns and stretches it; the wider the network, the less, until at infinite width it is frozen
(Jacot, Gabriel and Hongler 2018). At finite width it moves by the differential of the NTK, which is of order
1/n (PDLT section 11.2), so its motion must fall as the inverse width. The script fits the power and says so.
"""

from collections.abc import Sequence

import numpy as np
from figure_options import figure_options
from sklearn.datasets import load_digits

import finitewidth as fw
from finitewidth.experiment.scaling import power_of_width

TIMES = (0.0, 0.1, 0.4, 1.6)
END = 3.2
WIDTHS, MEMBERS = (16, 64, 256), 24


def two_digits() -> tuple[np.ndarray, np.ndarray]:
    """A zero and a one of scikit-learn's digits, of mean square one, and targets 1 and -1."""
    pixels, digits = load_digits(return_X_y=True)
    chosen = np.array([pixels[digits == digit][0] for digit in (0, 1)])
    return chosen / np.sqrt(np.mean(chosen**2, axis=1, keepdims=True)), np.array([[1.0], [-1.0]])


def network(width: int) -> fw.MLP:
    return fw.MLP((64, width, width, 1), "tanh", C_b=0.0, C_W=1.0)


def train(width: int, members: int) -> fw.records.Ensemble:
    X, Y = two_digits()
    return fw.train_ensemble(
        network(width),
        X,
        Y,
        X,
        algorithm=fw.GradientFlow(END),
        members=members,
        key=0,
        record=fw.Record(at=TIMES, ntk=True),
        method=fw.Stepping(tolerance=1e-4),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "ntk_ellipse", arguments)
    widths = (4,) if options.quick else WIDTHS
    networks = [train(width, 1) for width in widths]
    theory = fw.solve(network(1), two_digits()[0], order=0)
    if options.quick:
        fw.plots.save(fw.plots.ntk_ellipses(networks, theory=theory), options.output)
        return print(f"figure written to {options.output}")
    ensembles = [train(width, MEMBERS) for width in widths]
    moved = [fw.Estimate(*(part[-1] for part in ensemble.ntk_movement)) for ensemble in ensembles]
    for width, one in zip(widths, moved, strict=True):
        print(f"width {width:5d}: the NTK moves by {one.value:.2%} ± {one.stderr:.2%}")
    power = power_of_width(widths[-2:], moved[-2:])
    fw.plots.save(fw.plots.ntk_ellipses(networks, ensembles, theory), options.output)
    print(f"between the two widest: n^-p with p = {power.value:.2f} ± {power.stderr:.2f}; predicted is 1")
    print(f"figure written to {options.output}")
    if abs(power.value - 1) > 0.1 + 3 * power.stderr:
        raise SystemExit("the motion does not fall as the inverse width")


if __name__ == "__main__":
    main()
