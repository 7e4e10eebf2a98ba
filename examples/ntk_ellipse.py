"""The neural tangent kernel of two images as an ellipse, during training, at several widths.

    python examples/ntk_ellipse.py          # a few minutes; writes ntk_ellipse.png

Two handwritten digits make the NTK a matrix of two rows, drawn as the ellipse {x : x^T Theta^-1 x = 1}.
Gradient flow turns and stretches it; the wider the network, the less, until at infinite width it is frozen
(Jacot, Gabriel and Hongler 2018). At finite width it moves by the differential of the NTK, which is of order
1/n (PDLT section 11.2), so its motion must fall as the inverse width. The script fits the power and says so.
"""

import argparse
from collections.abc import Sequence

import numpy as np

import finitewidth as fw
from finitewidth.experiment.scaling import power_of_width

TIMES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
END = 3.2


def two_digits() -> tuple[np.ndarray, np.ndarray]:
    """A zero and a one of scikit-learn's digits, of mean square one, and targets 1 and -1."""
    from sklearn.datasets import load_digits

    pixels, digits = load_digits(return_X_y=True)
    chosen = np.array([pixels[digits == digit][0] for digit in (0, 1)])
    return chosen / np.sqrt(np.mean(chosen**2, axis=1, keepdims=True)), np.array([[1.0], [-1.0]])


def train(width: int, members: int) -> fw.Ensemble:
    X, Y = two_digits()
    net = fw.MLP((64, width, width, 1), "tanh", C_b=0.0, C_W=1.0)
    return fw.train_ensemble(
        net,
        X,
        Y,
        X,
        algorithm=fw.GradientFlow(END),
        record_at=TIMES,
        members=members,
        key=0,
        ntk=True,
        tolerance=1e-4,
    )


def ellipse(Theta: np.ndarray) -> np.ndarray:
    """Points x with x^T Theta^-1 x = 1."""
    values, vectors = np.linalg.eigh(Theta)
    angle = np.linspace(0, 2 * np.pi, 200)
    return vectors @ (np.sqrt(values)[:, None] * np.array([np.cos(angle), np.sin(angle)]))


def draw(widths: Sequence[int], one: dict, movements: list, power, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(widths) + 1, figsize=(3.1 * (len(widths) + 1), 3.4), layout="constrained"
    )
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.95, len(TIMES) + 1))
    reach = 1.1 * max(np.sqrt(np.linalg.eigvalsh(M).max()) for kernels in one.values() for M in kernels)
    for axis, width in zip(axes, widths, strict=False):
        for Theta, colour, time in zip(one[width], colours, (*TIMES, END), strict=True):
            axis.plot(*ellipse(Theta), color=colour, linewidth=1.3, label=f"{time:g}")
        axis.set(title=f"width {width}", aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
        axis.set(xlabel="first image", ylabel="second image" if axis is axes[0] else "")
    axes[0].legend(title="time", fontsize=6, title_fontsize=7, loc="upper left")
    last = axes[-1]
    values, errors = np.array(movements).T
    last.errorbar(widths, values, errors, fmt="o", color="#D55E00", label="sampled networks")
    line = values[-1] * widths[-1] / np.asarray(widths, dtype=float)
    last.plot(widths, line, color="black", dashes=(5, 3), label="1 / width")
    last.set(
        xscale="log", yscale="log", xlabel="width", title=f"power {power.value:.2f} ± {power.stderr:.2f}"
    )
    last.set_ylabel("relative movement of the NTK")
    last.legend(fontsize=7)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[16, 64, 256, 1024])
    parser.add_argument("--members", type=int, default=24)
    parser.add_argument("--output", default="ntk_ellipse.png")
    options = parser.parse_args()
    one, movements = {}, []
    for width in options.widths:
        one[width] = train(width, members=1).ntk.value[:, 0, :2, 0, :2]
        moved = train(width, members=options.members).ntk_movement
        movements.append(fw.Estimate(moved.value[-1], moved.stderr[-1]))
        print(f"width {width:5d}: the NTK moves by {moved.value[-1]:.2%} ± {moved.stderr[-1]:.2%}")
    power = power_of_width(options.widths[-2:], movements[-2:])
    draw(options.widths, one, movements, power, options.output)
    print(f"between the two widest: n^-p with p = {power.value:.2f} ± {power.stderr:.2f}; predicted is 1")
    if abs(power.value - 1) > 0.1 + 3 * power.stderr:
        raise SystemExit("the motion does not fall as the inverse width")
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
