"""A classifier of digits, trained with cross-entropy and momentum: theory and networks at three widths.

python examples/classifier.py [--output figure.png]
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from figure_options import figure_options
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

import finitewidth as fw
from finitewidth.interface.figures.parts import draw_line, draw_sampled, heading, legend_below
from finitewidth.interface.figures.saving import in_house_style

CLASSES, TRAINING = (3, 5, 8), 6
ALGORITHM = fw.GradientDescent([0.08] * 6 + [0.04] * 4, momentum=0.6)
LOSS = fw.CrossEntropy()
WIDTHS = (16, 32, 64)


def data(tests: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training digits with their labels, and test digits with theirs."""
    pixels, digits = map(np.asarray, load_digits(return_X_y=True))
    chosen = np.isin(digits, CLASSES)
    centred = pixels[chosen] - pixels[chosen].mean(axis=0)
    X, labels = centred / np.sqrt(np.mean(centred**2)), np.searchsorted(CLASSES, digits[chosen])
    by_class = np.stack(
        [np.flatnonzero(labels == c)[: TRAINING // 3 + tests // 3] for c in range(3)], axis=1
    ).ravel()
    X, labels = X[by_class], labels[by_class]
    return X[:TRAINING], fw.losses.one_hot(labels[:TRAINING], 3), X[TRAINING:], labels[TRAINING:]


def network(n: int) -> fw.MLP:
    return fw.MLP((64, n, n, 3), "tanh", C_b=0.0, C_W=1.0)


def probabilities_of_networks(n: int, members: int, X, Y, X_test, labels) -> fw.Estimate:
    """The mean probability of the right class, over trained networks."""
    with tempfile.TemporaryDirectory() as folder:
        ensemble = fw.train_ensemble(
            network(n),
            X,
            Y,
            X_test,
            algorithm=ALGORITHM,
            loss=LOSS,
            members=members,
            key=n,
            record=fw.Record(members=True),
            run=fw.Run(store=Path(folder) / "ensemble.zarr", progress=False),
        )
        outputs = ensemble.member_outputs()[:, -1, TRAINING:]
    right = np.asarray(jax.nn.softmax(outputs, axis=-1))[:, np.arange(len(labels)), labels]
    return fw.Estimate(right.mean(axis=0), right.std(axis=0, ddof=1) / np.sqrt(members))


@in_house_style
def draw(theories: list[fw.records.Expectation], sampled: list[fw.Estimate], labels) -> Figure:
    """One panel for each width, test digits in the order of infinite width."""
    figure = Figure(figsize=(9.6, 3.8))
    heading(figure, "Cross-entropy and momentum: the probability of the right class, minus infinite width")
    order = np.argsort(theories[0].infinite_width.value)
    place = np.arange(len(labels))
    for axes, n, theory, seen in zip(
        figure.subplots(1, len(WIDTHS), sharey=True), WIDTHS, theories, sampled, strict=True
    ):
        limit = theory.infinite_width.value[order]
        draw_line(axes, place, 0 * limit, "infinite width", "theory at infinite width")
        draw_line(axes, place, theory.value[order] - limit, "finite width", "theory at order 1/n", marker=".")
        draw_sampled(axes, place, seen.value[order] - limit, seen.stderr[order], "trained networks")
        axes.set(title=f"width {n}", xlabel="test digit")
        axes.set_xticks(place, [str(CLASSES[labels[one]]) for one in order])
    figure.axes[0].set_ylabel("change of the probability")
    legend_below(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    options = figure_options(__doc__, "classifier", arguments)
    tests, members, samples = (3, 60, 1000) if options.quick else (9, 8_000, 4000)
    X, Y, X_test, labels = data(tests)
    prediction = fw.predict(
        network(WIDTHS[-1]), X, Y, X_test, algorithm=ALGORITHM, loss=LOSS, method=fw.Sampling(samples=samples)
    )
    right = np.arange(len(labels)), labels
    chance = lambda z: jax.nn.softmax(z, axis=-1)[right]  # noqa: E731
    theories = [prediction.with_width(n).expectation(chance) for n in WIDTHS]
    sampled = [probabilities_of_networks(n, members, X, Y, X_test, labels) for n in WIDTHS]
    for n, theory, seen in zip(WIDTHS, theories, sampled, strict=True):
        pulls = (theory.value - seen.value) / np.hypot(seen.stderr, theory.stderr)
        before = (theory.infinite_width.value - seen.value) / seen.stderr
        rms = lambda x: np.sqrt(np.mean(x**2))  # noqa: E731
        print(f"width {n}: rms pull {rms(before):.1f} at infinite width, {rms(pulls):.1f} at order 1/n")
    fw.plots.save(draw(theories, sampled, labels), options.output)
    print(f"figure written to {options.output}")


if __name__ == "__main__":
    main()
