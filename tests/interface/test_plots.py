"""Figures: words on every panel, error bars on what was sampled, colours of the house, the same bytes."""

import dataclasses
import re
import warnings

import matplotlib
import numpy as np
import pytest
from helpers.problems import refused
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

import finitewidth as fw
from finitewidth.experiment.ensemble.results import Ensemble
from finitewidth.interface.figures import look
from finitewidth.training.infinite.gaussian import Sampling, Truncation

RNG = np.random.default_rng(0)
TABLE = {role["color"].lower() for role in look.ROLES.values()} | {
    colour.lower() for colour in (*look.MATRIX, look.INK, look.PAPER, look.SHADE)
}
STDERR = 0.05
X1 = np.array([[-1.0], [1.0]])
DEEP = fw.MLP.critical((2, *[32] * 11, 1), "tanh")


def prediction(net: fw.MLP, samples: int = 4) -> fw.records.Prediction:
    def at(order: int, mean: np.ndarray, leading=None) -> fw.records.Prediction:
        factors = ((np.eye(1), (1.0 + 0.1 * order) * np.eye(samples)),)
        return fw.records.Prediction(net, fw.GradientFlow(), order, mean, factors, 1.0, 0.0, leading=leading)

    mean = np.linspace(-1, 1, samples)[:, None]
    return at(1, mean + 0.5 / net.widths[-2], at(0, mean))


def ensemble(net: fw.MLP, samples: int = 4, records: int = 1, *, ntk: bool = False) -> Ensemble:
    def estimate(*shape: int) -> fw.Estimate:
        return fw.Estimate(1.0 + RNG.random(shape), np.full(shape, STDERR))

    points = tuple(range(records))
    X_test, dimension, total = np.linspace(-2, 2, samples)[:, None], net.widths[0], samples + 2
    two = np.array([[2.0, 0.5], [0.5, 1.0]])[None, :, None, :]  # (output, sample, output, sample)
    kernel = fw.Estimate(np.stack([two] * records), np.full((records, *two.shape), STDERR))
    return Ensemble(
        net, fw.GradientFlow(1.0), fw.MSE(), 10, 0, 0, points,
        np.repeat(X1, dimension, 1), X1, np.repeat(X_test, dimension, 1),
        estimate(records, total, 1), estimate(records, total, 1, total, 1), estimate(records), estimate(),
        kernel if ntk else None, estimate(records) if ntk else None, None, None, None, {},
    )  # fmt: skip


def sampled(net: fw.MLP, layer: int, count: int = 1) -> fw.records.SampledStatistics:
    shapes = {"G": (count,) * 2, "H": (count,) * 2} | {name: (count,) * 4 for name in "VAB"}
    estimates = {name: fw.Estimate(np.ones(s), np.full(s, STDERR)) for name, s in shapes.items()}
    return fw.records.SampledStatistics(net, layer, 100, estimates)


def kernels_over_depth() -> Figure:
    nets = [DEEP, *(fw.MLP.critical((2, *[32] * 11, 1), name) for name in ("relu", "gelu"))]
    return fw.plots.kernels_over_depth([fw.solve(n, [[1.0, -1.0]]) for n in nets], [sampled(DEEP, 3)])


def fluctuations() -> Figure:
    return fw.plots.fluctuations(fw.solve(DEEP, [[1.0, -1.0]]), [sampled(DEEP, 3), sampled(DEEP, 6)])


def trained_outputs() -> Figure:
    net = fw.MLP((1, 16, 1), "tanh")
    return fw.plots.trained_outputs(prediction(net), ensemble(net), RNG.random((3, 4)))


def residuals() -> Figure:
    nets = [fw.MLP((1, width, 1), "tanh") for width in (16, 32)]
    return fw.plots.residuals([prediction(n) for n in nets], [ensemble(n) for n in nets])


def ntk_ellipses() -> Figure:
    many = [ensemble(fw.MLP((1, width, 1), "tanh"), records=3, ntk=True) for width in (16, 32)]
    theory = fw.solve(fw.MLP((1, 16, 1), "tanh", C_b=0.1), X1, order=0)
    return fw.plots.ntk_ellipses(many, many, theory)


def starpolation() -> Figure:
    nets = [fw.MLP.critical((2, 1, 1), name) for name in ("linear", "relu")]
    line = np.linspace(-1, 2, 7)
    return fw.plots.starpolation(
        [fw.textbook.starpolate(net, [1.0, 0.0], [0.0, 1.0], [1.0], [0.0], line) for net in nets]
    )


def phase_diagrams() -> Figure:
    return fw.plots.phase_diagrams(
        fw.critical.phase_diagram("tanh", np.linspace(0, 0.3, 8), np.linspace(0.5, 2, 8))
    )


def spectrum() -> Figure:
    return fw.plots.spectrum(fw.textbook.spectrum(fw.MLP((2, 1, 1), "relu", C_W=2.0), RNG.random((4, 2))))


def inductive_bias() -> Figure:
    ratios = {
        "two-step": np.zeros((3, 3)),
        "gradient flow": RNG.random((3, 3)),
        "descent": -RNG.random((3, 3)),
    }
    return fw.plots.inductive_bias(fw.records.InductiveBias(np.arange(1, 4.0), ratios, {}))


def expected_loss() -> Figure:
    one, two = RNG.random(3), RNG.random((3, 2))
    depths, widths = np.arange(2, 5.0), np.array([32.0, 64.0])
    return fw.plots.expected_loss(
        fw.records.ExpectedLoss(depths, widths, two, two, one, one, one, one, 0 * two, one)
    )


def memory() -> Figure:
    block = fw.Residual("gelu", fw.Dense(8), gamma=0.8)
    net = fw.Network(1, fw.Dense(8), block, "gelu", fw.Dense(1))
    laws = [fw.solve(net, [[1.0]], method=fw.Tensors(remember=memory)) for memory in (True, False)]
    values = {
        name: fw.Estimate(1.1 * getattr(laws[0].output, name), np.full(1, 0.05)) for name in ("V", "G1")
    }
    return fw.plots.memory(*laws, [values], ["gelu, three layers"])


def depth_and_skips() -> Figure:
    over = [
        [fw.critical.aspect(name, width=20, gamma=gamma) for gamma in (0.0, 0.9)]
        for name in ("relu", "linear")
    ]
    curves = [fw.critical.aspect("linear", depth=20, gamma=gamma) for gamma in (0.0, 0.9)]
    point = (10, fw.Estimate(np.array(0.2), np.array(STDERR)))
    return fw.plots.depth_and_skips(curves, over, {0.9: [point]}, width=32)


def posterior_and_training() -> Figure:
    net, x, y = fw.MLP((1, 16, 1), "tanh", C_b=0.1), X1, X1**2
    tests = np.linspace(-2, 2, 4)[:, None]
    posterior = fw.bayes.posterior(net, x, y, tests, noise=0.5, order=1)
    trained = prediction(net)
    estimates = [
        fw.Estimate(np.ones(s), np.full(s, STDERR)) for s in ((4, 1), (4, 1, 4, 1), (), (4, 1), (4, 1))
    ]
    weighted = fw.records.SampledPosterior(net, 100, 50.0, *estimates, {})
    return fw.plots.posterior_and_training(posterior, trained, trained, tests, (x, y), weighted)


def evidence_of_networks() -> Figure:
    nets = [fw.MLP((1, width, 1), "tanh", C_b=0.1) for width in (2, 16)]
    return fw.plots.evidence_of_networks(fw.bayes.rank(nets, X1, 3 * X1, noise=0.1))


def learning_curve() -> Figure:
    x = np.linspace(-1, 1, 8)[:, None]
    curve = fw.learning_curve(fw.MLP((1, 8, 1), "relu", C_b=0.1), x, x**2, (2, 5), noise=0.1, subsets=3)
    return fw.plots.learning_curve(curve, [(2, fw.Estimate(np.asarray(0.1), np.asarray(STDERR)))])


SAMPLED = (kernels_over_depth, fluctuations, trained_outputs, residuals, ntk_ellipses)
SAMPLED += (memory, depth_and_skips, posterior_and_training)
FIGURES = (
    *SAMPLED,
    starpolation,
    phase_diagrams,
    spectrum,
    inductive_bias,
    expected_loss,
    evidence_of_networks,
    learning_curve,
)


def by_name(draw) -> str:
    return draw.__name__


def test_every_figure_is_tested():
    assert {by_name(draw) for draw in FIGURES} | {"save"} == set(fw.plots.__all__)


@pytest.fixture(scope="module", params=FIGURES, ids=by_name)
def figure(request) -> Figure:
    drawn = request.param()
    drawn.draw_without_rendering()  # so that the layout is made
    return drawn


def panels(figure: Figure) -> list:
    return [axes for axes in figure.axes if axes.get_visible() and axes.get_label() != "<colorbar>"]


def test_every_panel_says_in_words_what_it_shows(figure):
    word = re.compile(r"[a-z]{3,}")
    assert word.search(figure.get_suptitle())
    for axes in panels(figure):
        assert word.search(axes.get_title(loc="left"))
    bottom = [axes for axes in panels(figure) if axes.get_subplotspec().is_last_row()]
    assert all(axes.get_xlabel() for axes in bottom)


def test_colours_are_those_of_the_table(figure):
    used = set()
    for axes in panels(figure):
        used |= {to_hex(line.get_color()) for line in axes.lines}
        for collection in axes.collections:
            if collection.get_array() is None:  # others are heat maps
                used |= {to_hex(c) for c in (*collection.get_facecolor(), *collection.get_edgecolor())}
        if axes.images:
            ends = [to_hex(axes.images[0].get_cmap()(end)) for end in (0.0, 1.0)]
            used |= set(ends)
    assert used <= TABLE


def test_legends_stand_outside_of_the_data(figure):
    legends = [*figure.legends, *(axes.get_legend() for axes in panels(figure) if axes.get_legend())]
    canvas = figure.bbox
    for legend in legends:
        box = legend.get_window_extent()
        assert box.x0 >= canvas.x0 and box.x1 <= canvas.x1 and box.y0 >= canvas.y0
        assert not any(box.overlaps(axes.get_window_extent()) for axes in panels(figure))


@pytest.mark.parametrize("draw", SAMPLED, ids=by_name)
def test_what_was_sampled_has_its_standard_error(draw):
    bars = [
        container
        for axes in panels(draw())
        for container in axes.containers
        if isinstance(container, ErrorbarContainer)
    ]
    assert bars
    for container in bars:
        (line,) = container[2]
        assert to_hex(line.get_color()[0]) == look.ROLES["sampled networks"]["color"].lower()
        segments = np.array(line.get_segments())
        assert (segments[:, 1, 1] > segments[:, 0, 1]).all()


def test_an_error_bar_reaches_one_standard_error_to_each_side():
    axes = next(
        axes for axes in panels(trained_outputs()) if axes.get_title(loc="left").startswith("variance")
    )
    (segments,) = (np.array(part.get_segments()) for part in axes.containers[0][2])
    np.testing.assert_allclose(segments[:, 1, 1] - segments[:, 0, 1], 2 * STDERR)


def test_layers_are_counted_in_whole_numbers():
    for axes in panels(kernels_over_depth()):
        assert [tick for tick in axes.get_xticks() if tick != int(tick)] == []


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_same_figure_is_written_with_the_same_bytes(tmp_path, suffix):
    for name in ("a", "b"):
        fw.plots.save(residuals_of_nothing_random(), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def residuals_of_nothing_random() -> Figure:
    return fw.plots.fluctuations(fw.solve(DEEP, [[1.0, -1.0]]), [sampled(DEEP, 3)], tensors=("V",))


def test_drawing_leaves_the_style_of_the_user_alone():
    before = dict(matplotlib.rcParams)
    fluctuations()
    assert dict(matplotlib.rcParams) == before


def test_what_is_no_record_is_refused(tmp_path):
    with refused("theories must be a result of fw.solve, or several of them in a list, got 3"):
        fw.plots.kernels_over_depth(3)
    with refused("diagrams must be a result of fw.critical.phase_diagram, got str"):
        fw.plots.phase_diagrams(["tanh"])
    with refused("modes must be a result of fw.textbook.spectrum, got int"):
        fw.plots.spectrum(3)
    with refused("tensors must be among V, .*, got 'W'"):
        fw.plots.fluctuations(fw.solve(DEEP, [[1.0, -1.0]]), tensors=("W",))
    with refused("for which there is no theory; solve that network"):
        fw.plots.fluctuations(fw.solve(DEEP, [[1.0, -1.0]]), [sampled(fw.MLP((2, 3, 1), "tanh"), 2)])
    with refused("curves must be a result of fw.critical.aspect"):
        fw.plots.depth_and_skips([3], [], width=10)
    with refused("theories, without, sampled and titles must be equally many, got 1, 1, 0 and 1"):
        fw.plots.memory(*[fw.solve(DEEP, [[1.0, -1.0]])] * 2, [], ["one"])
    with refused("path must end in .svg, .png or .pdf, got .*; rename it"):
        fw.plots.save(Figure(), tmp_path / "figure.gif")
    with refused("cannot be written"):
        fw.plots.save(Figure(), tmp_path / "nowhere" / "figure.svg")


def test_a_posterior_is_drawn_from_blocks_of_inputs_with_sampled_networks_at_some():
    net, x = fw.MLP((1, 16, 1), "tanh", C_b=0.1), np.linspace(-2, 2, 4)[:, None]
    blocks = [fw.bayes.posterior(net, X1, X1**2, part, noise=0.5, order=1) for part in (x[:2], x[2:])]
    trained, data = [prediction(net, 2)] * 2, (X1, X1**2)
    estimates = [
        fw.Estimate(np.ones(s), np.full(s, STDERR)) for s in ((2, 1), (2, 1, 2, 1), (), (2, 1), (2, 1))
    ]
    weighted = fw.records.SampledPosterior(net, 100, 50.0, *estimates, {})
    figure = fw.plots.posterior_and_training(blocks, trained, trained, x, data, weighted, x[::2])
    whole = fw.bayes.posterior(net, X1, X1**2, x, noise=0.5, order=1)
    drawn = [line.get_ydata() for line in figure.axes[0].lines]
    assert any(len(y) == 4 and np.allclose(y, whole.mean[:, 0], atol=1e-7) for y in drawn)
    with refused("sampled_x must be inputs among x"):
        fw.plots.posterior_and_training(blocks, trained, trained, x, data, weighted, x[::2] + 0.1)
    with refused("posterior must have the 4 test inputs x, got 2"):
        fw.plots.posterior_and_training(blocks[:1], trained, trained, x, data)


@pytest.fixture(scope="module")
def meaningless() -> fw.records.Prediction:
    """Too narrow for its targets; some variances through order 1/n are below zero."""
    X, Y = [[1.0, 0.5], [-0.5, 1.5], [0.5, -1.0], [-1.0, -0.5]], [[3.0], [-3.0], [1.5], [-1.5]]
    places = [[0.8, 0.0], [-0.2, 0.9], [0.0, -1.2], [2.0, 2.0], [1.0, -2.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
        net = fw.MLP.critical((2, 4, 4, 1), "tanh")
        prediction = fw.predict(net, X, Y, places, algorithm=fw.GradientDescent(0.1, 300))
    assert prediction.verdict == "meaningless" and 0 < prediction.below_zero.sum() < 5
    return prediction


def bars(axes) -> dict[str, np.ndarray]:
    """Lengths of the error bars, by the colour of their series."""
    value = [(to_hex(one[0].get_color()), one[2][0].get_segments()) for one in axes.containers]
    return {colour: np.array([np.ptp(s[:, 1]) for s in segments if len(s)]) for colour, segments in value}


BLUE = look.ROLES["finite width"]["color"].lower()


def test_a_prediction_draws_itself_at_both_orders_with_its_errors():
    record = prediction(fw.MLP((2, 16, 1), "tanh"))
    record = dataclasses.replace(
        record,
        truncation=Truncation(np.full((4, 1), 0.3), np.full((4, 1), 0.1)),
        sampling=Sampling(8, 0.1, np.full((4, 1), 0.4), np.zeros(4), {}),
    )
    named = {axes.get_title(loc="left"): axes for axes in record.plot().axes}
    upper, lower = (next(named[t] for t in named if part in t) for part in ("test inputs", "of the mean"))
    assert upper.get_legend_handles_labels()[1] == ["infinite width", "order 1/n"]
    assert "order 1/n is trusted" in upper.get_title(loc="left")
    np.testing.assert_allclose(bars(upper)[BLUE], 2 * record.std[:, 0])
    np.testing.assert_allclose(bars(lower)[BLUE], 2 * np.hypot(0.3, 0.4))
    assert len(record.infinite_width.plot().axes) == 1


def test_what_is_meaningless_has_no_bars_and_is_said_in_the_figure(meaningless):
    figure = meaningless.plot()
    for axes in figure.axes:
        assert not np.isfinite(bars(axes)[BLUE]).any()
    words = " ".join(axes.get_title(loc="left") for axes in figure.axes)
    below = f"below zero at {meaningless.below_zero.sum()} of 5 outputs"
    assert "order 1/n is meaningless" in words and below in words


def test_no_line_is_drawn_through_variances_below_zero():
    net = fw.MLP((1, 16, 1), "tanh")
    record = prediction(net)
    below = ((np.eye(1), np.diag([1.0, -0.5, 1.0, 1.0])),)
    figure = fw.plots.trained_outputs(dataclasses.replace(record, factors=below), ensemble(net))
    axes = next(one for one in figure.axes if one.get_title(loc="left").startswith("variance"))
    line = next(line for line in axes.lines if to_hex(line.get_color()) == BLUE)
    assert np.isnan(line.get_ydata()).tolist() == [False, True, False, False]


def test_records_that_do_not_belong_together_are_refused():
    flat, plane = fw.MLP((1, 16, 1), "tanh"), fw.MLP((2, 16, 1), "tanh")
    with refused("inputs of dimension 2, and this figure draws functions of one input"):
        fw.plots.trained_outputs(prediction(plane), ensemble(plane))
    with refused("test outputs but the ensemble .* use the same X_test"):
        fw.plots.trained_outputs(prediction(flat, 3), ensemble(flat))
    with refused("prediction is at infinite width only"):
        fw.plots.trained_outputs(prediction(flat).infinite_width, ensemble(flat))
    with refused("one each for two or more widths, got 1 and 1"):
        fw.plots.residuals([prediction(flat)], [ensemble(flat)])
    with refused("must be of the same networks and test inputs"):
        fw.plots.residuals([prediction(flat)] * 2, [ensemble(flat), ensemble(plane)])
    with refused("an NTK recorded on two training inputs, got 2 of them and no NTK"):
        fw.plots.ntk_ellipses([ensemble(flat)])
