"""Order 1/n against trained networks: small versions of benchmarks/training/trained_networks.py."""

from pathlib import Path

import numpy as np
import pytest

import finitewidth as fw
from finitewidth.experiment.scaling import power_of_width

PULL = 4.0
X = np.array([[1.2, -0.4, 0.3], [-0.5, 1.1, 0.8], [0.2, 0.7, -1.3], [0.6, 0.5, 0.4], [-0.8, -0.3, 0.9]])
Y = np.array([[1.0, -0.6], [-0.8, 0.9], [0.5, 0.7]])
STEPS = fw.GradientDescent(0.12, 12)


def shallow(width: int, activation: str = "tanh", outputs: int = 1) -> fw.MLP:
    return fw.MLP((3, width, outputs), activation, C_b=0.1, C_W=1.2, lambda_b=0.5)


def trained(
    net: fw.MLP, Y: np.ndarray, algorithm, members: int
) -> tuple[fw.records.Prediction, fw.records.Ensemble]:
    data = X[:3], Y, X[3:]
    control = fw.control_variate(net, *data, algorithm)
    options = {"members": members, "key": 5, "control": control}
    ensemble = fw.train_ensemble(net, *data, algorithm=algorithm, **options)
    return fw.predict(net, *data, algorithm=algorithm), ensemble


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::finitewidth.warnings.ExpansionWarning")
def test_what_is_left_falls_as_one_over_width_and_as_its_square():
    """Powers 1 and 2, each within 0.5 since the next order is seen at these widths."""
    widths, left = (12, 24, 48), {"infinite width": [], "order 1/n": []}
    for width, members in zip(widths, (20_000, 40_000, 60_000), strict=True):
        prediction, ensemble = trained(shallow(width), 4 * Y[:, :1], STEPS, members)
        mean = ensemble.controlled.mean
        for value, parts in zip((prediction.infinite_width, prediction), left.values(), strict=True):
            gap = np.abs(mean.value[0, 0] - value.mean[0, 0])
            parts.append(fw.Estimate(np.asarray(gap), mean.stderr[0, 0]))
    for power, estimates in enumerate(left.values(), start=1):
        assert min(float(one.value / one.stderr) for one in estimates) > PULL  # there is something to fall
        assert power_of_width(widths, estimates).value == pytest.approx(power, abs=0.5)


def member_outputs(net: fw.MLP, Y: np.ndarray, algorithm, members: int, store: Path) -> np.ndarray:
    """Trained outputs on the two test inputs, (members, 2)."""
    options = {"members": members, "key": 5, "run": fw.Run(store=store), "record": fw.Record(members=True)}
    ensemble = fw.train_ensemble(net, X[:3], Y, X[3:], algorithm=algorithm, **options)
    return ensemble.member_outputs()[:, -1, 3:, 0]


@pytest.mark.long
def test_algorithms_end_at_different_means(tmp_path):
    """The same 3000 networks by descent in small and in large steps: infinitely wide ones would not differ.

    At width 128 order 1/n^2 is below two standard errors of the difference.
    """
    net = shallow(128)
    limit = fw.textbook.spectrum(net, X[:3]).largest_learning_rate
    chosen = [fw.GradientDescent(fraction * limit) for fraction in (0.15, 0.7)]
    ends = [member_outputs(net, Y[:, :1], how, 3000, tmp_path / f"{k}.zarr") for k, how in enumerate(chosen)]
    predicted = [fw.predict(net, X[:3], Y[:, :1], X[3:], algorithm=how).mean.ravel() for how in chosen]
    apart, stated = ends[1] - ends[0], predicted[1] - predicted[0]
    seen, stderr = apart.mean(axis=0), apart.std(axis=0, ddof=1) / np.sqrt(len(apart))
    assert np.abs(seen / stderr).max() > 5
    assert np.abs((seen - stated) / stderr).max() < PULL


def test_outputs_are_wired_together():
    """20000 networks of width 16; infinitely wide ones have independent outputs."""
    prediction, ensemble = trained(shallow(16, outputs=2), Y, fw.GradientDescent(0.12, 40), 20_000)
    value, stderr = (np.einsum("aa->a", part[:, 0, :, 1]) for part in ensemble.covariance)
    assert np.abs(value / stderr).max() > PULL
    predicted = np.einsum("aa->a", prediction.covariance[:, 0, :, 1])
    assert np.abs((value - predicted) / stderr).max() < PULL


@pytest.mark.long
@pytest.mark.parametrize("activation", ["gelu", pytest.param("sin", marks=pytest.mark.long)])
def test_other_activations_have_the_predicted_mean_and_covariance(activation):
    """1500 networks of width 64: what is left at order 1/n^2 is below a standard error."""
    comparison = fw.compare(*trained(shallow(64, activation), Y[:, :1], STEPS, 1500))
    assert comparison.worst < PULL
