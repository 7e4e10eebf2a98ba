"""Higher orders in 1/n, fitted to narrow networks."""

import numpy as np
import pytest
import zarr

import finitewidth as fw
from finitewidth.comparison.extrapolation import checked_members, checked_widths
from finitewidth.comparison.remainders import falls_of_remainders
from finitewidth.comparison.widths import MOST, START, too_narrow, wide_enough, wider_width
from finitewidth.experiment.scaling import fall_with_width

X = np.array([[1.2, -0.4, 0.3], [-0.5, 1.1, 0.8], [0.2, 0.7, -1.3], [0.6, 0.5, 0.4]])
Y = np.array([[1.0], [-0.8], [0.5]])
DESCENT = fw.GradientDescent(0.15, 10)


def network(n: int = 128) -> fw.MLP:
    return fw.MLP((3, n, n, 1), "tanh", C_b=0.1, C_W=1.2, lambda_b=0.5)


def test_a_sum_of_powers_is_recovered_with_its_errors():
    widths, powers = (8, 16, 32, 64), (2, 3)
    exact = np.array([[3.0, -40.0], [-1.0, 7.0]])  # entries, orders
    rng, pulls, chi = np.random.default_rng(0), [], []
    for _ in range(200):
        stderr = [np.array([0.01, 0.02]) / n for n in widths]
        noise = [s * rng.standard_normal(2) for s in stderr]
        values = [exact @ [float(n) ** -k for k in powers] + e for n, e in zip(widths, noise, strict=True)]
        fall = fall_with_width(widths, list(map(fw.Estimate, values, stderr)), powers)
        pulls.append((fall.coefficients.T - exact) / np.sqrt(np.einsum("kk...->...k", fall.errors)))
        chi.append(fall.chi_square)
    assert np.mean(np.square(pulls)) == pytest.approx(1.0, abs=0.2)
    assert np.mean(chi) == pytest.approx(fall.freedom, abs=0.4)


def series(rng: np.random.Generator, growth: float, orders: int) -> np.ndarray:
    """Coefficients of 1/n, 1/n^2, ... that grow as a geometric series, (orders, entries)."""
    return rng.standard_normal((orders, 5)) * growth ** np.arange(orders)[:, None]


def powers_of(n: float, orders: int) -> np.ndarray:
    return float(n) ** -np.arange(1.0, orders + 1)


def test_orders_of_expected_size_widen_errors_by_what_they_are():
    widths, growth, rng, squares = (24, 32, 48), 12.0, np.random.default_rng(1), []
    for _ in range(200):
        exact = series(rng, growth, 6)
        exact[0] = 0.0
        stderr = np.full(5, 1e-4)
        values = [powers_of(n, 6) @ exact + stderr * rng.standard_normal(5) for n in widths]
        estimates = [fw.Estimate(value, stderr) for value in values]
        expected = {k: np.full(5, growth ** (k - 1)) for k in (4, 5, 6)}
        left = fall_with_width(widths, estimates, (2, 3), expected).at(256)
        squares.append(((left.value - powers_of(256, 6) @ exact) / left.stderr) ** 2)
    assert np.mean(squares) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("growth", [4.0, 12.0, 20.0])
@pytest.mark.parametrize("noise", [1e-6, 1e-3])
def test_neglected_orders_are_in_the_error_of_an_extrapolation(growth, noise):
    """Nine orders of a series whose ratio is not given; most pulls are below one, nearly all below three."""
    widths, rng, pulls = (24, 32, 48), np.random.default_rng(2), []
    for _ in range(100):
        exact = series(rng, growth, 9)
        stderr = np.full(5, noise)
        left = [powers_of(n, 9)[1:] @ exact[1:] + stderr * rng.standard_normal(5) for n in widths]
        estimates = {"mean": [fw.Estimate(value, stderr) for value in left]}
        fall = falls_of_remainders(widths, estimates, {"mean": exact[0]})["mean"]
        for n in (64, 256):
            there = fall.at(n)
            pulls.append((there.value - powers_of(n, 9)[1:] @ exact[1:]) / there.stderr)
    assert np.mean(np.abs(pulls) < 1) > 0.6 and np.mean(np.abs(pulls) < 3) > 0.97


class Series:
    """Two synthetic series, and networks of any width that see them with noise."""

    def __init__(self, rng: np.random.Generator, growth: float, noise: float, hidden: float = 1.0):
        self.rng, self.noise = rng, noise
        self.exact = {name: series(rng, growth, 9) for name in ("mean", "variance")}
        self.exact["variance"][0] *= hidden
        self.first = {name: exact[0] for name, exact in self.exact.items()}
        self.widths = list(START)
        self.left = {name: [self.seen(name, n) for n in START] for name in self.exact}

    def seen(self, name: str, n: int) -> fw.Estimate:
        stderr = np.full(5, self.noise * (48 / n) ** 0.5)
        return fw.Estimate(self.beyond(name, n) + stderr * self.rng.standard_normal(5), stderr)

    def beyond(self, name: str, n: int) -> np.ndarray:
        return powers_of(n, 9)[1:] @ self.exact[name][1:]

    def wider(self, n: int) -> int | None:
        return wider_width(falls_of_remainders, self.widths, self.left, self.first, n, lambda m: m * m)

    def widen(self, n: int) -> None:
        while (m := self.wider(n)) is not None:
            self.widths.append(m)
            for name, left in self.left.items():
                left.append(self.seen(name, m))

    def there(self, name: str, n: int) -> fw.Estimate:
        return falls_of_remainders(self.widths, self.left, self.first)[name].at(n)


@pytest.mark.parametrize("hidden", [1.0, 0.02], ids=["", "one order vanishes"])
@pytest.mark.parametrize(
    "growth, noise", [(2.0, 1e-3), (16.0, 1e-4), (16.0, 1e-2), (24.0, 1e-3), (30.0, 1e-3)]
)
def test_errors_of_chosen_widths_are_what_they_say(growth, noise, hidden):
    rng, pulls = np.random.default_rng(4), []
    for _ in range(50):
        case = Series(rng, growth, noise, hidden)
        case.widen(256)
        assert len(case.widths) <= MOST and case.widths == sorted(set(case.widths))
        for name in case.exact:
            there = case.there(name, 256)
            pulls.append((there.value - case.beyond(name, 256)) / there.stderr)
    assert np.mean(np.abs(pulls) < 1) > 0.6 and np.mean(np.abs(pulls) < 3) > 0.97


def test_wider_networks_are_chosen_where_orders_behind_the_fit_are_the_error():
    rng = np.random.default_rng(5)
    steep = [Series(rng, 20.0, 1e-4) for _ in range(10)]
    flat = [Series(rng, 2.0, 1e-3) for _ in range(10)]
    assert all((case.wider(256) or 0) > START[-1] for case in steep)
    assert sum(case.wider(256) is None for case in flat) >= 8
    assert all(case.wider(100) is None for case in steep)  # narrow ones are at most half as wide


def narrow(widths: tuple[int, ...] | None, members: int, **options) -> fw.records.Extrapolation:
    return fw.extrapolate(
        network(), X[:3], Y, X[3:], algorithm=DESCENT, widths=widths, members=members, **options
    )


@pytest.mark.long
def test_every_width_has_networks_and_a_store_of_its_own(tmp_path):
    counts: list[tuple[int, int]] = []
    first = narrow(
        (4, 6, 8), 40, run=fw.Run(store=tmp_path, progress=lambda done, total: counts.append((done, total)))
    )
    keys = {tuple(zarr.open_group(store, mode="r").attrs["key"]) for store in tmp_path.iterdir()}
    assert len(keys) == 3 and counts.count((40, 40)) == 3
    again = narrow((4, 6, 8), 40, run=fw.Run(store=tmp_path))
    for name in ("mean", "variance"):
        assert getattr(first, name).value.tobytes() == getattr(again, name).value.tobytes()


@pytest.mark.long
def test_widths_are_chosen_by_default_and_again_by_the_same_key():
    wide, again = (narrow(None, 40) for _ in range(2))
    assert wide.widths[: len(START)] == START and wide.widths == again.widths
    assert wide.mean.value.tobytes() == again.mean.value.tobytes()
    given = narrow(wide.widths, 40)
    assert given.variance.value.tobytes() == wide.variance.value.tobytes()


@pytest.mark.long
def test_outputs_that_never_vary_have_no_error():
    still = fw.MLP((3, 8, 8, 1), "tanh", C_b=0.0, C_W=1.2, lambda_b=0.0)
    options = {"algorithm": DESCENT, "widths": (4, 6, 8), "members": 40}
    there = fw.extrapolate(still, X[:3], Y, np.zeros((1, 3)), **options)
    for estimate in (there.mean, there.variance):
        assert abs(estimate.value[0, 0]) < 1e-12 and 0 <= estimate.stderr[0, 0] < 1e-12


@pytest.mark.long
def test_nothing_of_the_ensembles_is_left_in_the_limit():
    wide = narrow((4, 6, 8), 40)
    assert wide.n == 128 and wide.freedom == 1 and "128" in repr(wide)
    limit = fw.predict(network(10**6), X[:3], Y, X[3:], algorithm=DESCENT)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(wide.at(10**6), name).value, getattr(limit, name), atol=1e-7)


@pytest.mark.long
def test_orders_behind_the_first_come_from_narrow_networks():
    there, net = narrow((6, 8, 12, 16), 4000).at(20), network(20)
    control = fw.control_variate(net, X[:3], Y, X[3:], DESCENT)
    options = {"algorithm": DESCENT, "members": 8000, "key": 5, "control": control}
    seen = fw.train_ensemble(net, X[:3], Y, X[3:], **options).controlled
    assert seen is not None
    error = np.hypot(there.mean.stderr, seen.mean.stderr)
    assert np.max(np.abs(there.mean.value - seen.mean.value) / error) < 4


@pytest.mark.parametrize(
    "options, message",
    [
        ({"widths": (8, 16)}, "widths=.* has 2 different widths"),
        ({"widths": (8, 8)}, "widths=.* has 1 different width,"),
        ({"widths": (8, 1, 2)}, "widths"),
        ({"members": 1}, "members must be a whole number of at least 16, .* got 1; use 4000"),
        ({"members": 2}, "members must be .* got 2;"),
    ],
)
def test_too_few_widths_or_networks_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fw.extrapolate(network(), X[:3], Y, X[3:], algorithm=DESCENT, **options)


@pytest.mark.parametrize("members", ["x", None, 15, 20.5, True])
def test_what_is_no_number_of_networks_is_refused(members):
    with pytest.raises(
        ValueError, match=f"members must be a whole number of at least 16.* got {members!r}; use"
    ):
        checked_members(members)


@pytest.mark.parametrize("widths", [24, "24"])
def test_what_are_no_widths_is_refused(widths):
    with pytest.raises(ValueError, match=rf"several widths, got {widths!r}; use widths=\(24, 32, 48\)"):
        checked_widths(network(), widths)


def test_hidden_layers_of_different_widths_are_refused():
    with pytest.raises(ValueError, match="hidden layers of one width"):
        fw.extrapolate(fw.MLP((3, 8, 9, 1), "tanh"), X[:3], Y, X[3:], algorithm=DESCENT)


STEEP = {
    "X_train": np.array([[-1.5], [-0.3], [1.2]]),
    "Y_train": np.array([[-1.0], [1.2], [-0.6]]),
    "X_test": np.array([[-2.5], [0.5]]),
    "algorithm": fw.GradientDescent(0.1, 40),
}  # order 1/n is meaningless up to width 16
SEEN = {  # 192 000 networks of width 128, "one input" of benchmarks/extrapolation/results/widths.json
    "mean": fw.Estimate(np.array([[-1.183876], [0.083602]]), np.array([[2.2e-4], [1.9e-4]])),
    "variance": fw.Estimate(np.array([[0.0191166], [0.0367946]]), np.array([[6.1e-5], [7.3e-5]])),
}


def steep(widths: tuple[int, ...], n: int = 128, **options) -> fw.records.Extrapolation:
    net = fw.MLP((1, n, n, 1), "tanh", C_b=0.3, C_W=1.5)
    return fw.extrapolate(net, **STEEP, widths=widths, members=100, **options)


@pytest.mark.long
def test_networks_that_are_too_narrow_are_not_surer_than_theory():
    with pytest.warns(
        fw.warnings.ExpansionWarning, match=r"meaningless at widths 2, 3, 4: .* widths=\(24, 32, 48\)"
    ):
        there = steep((2, 3, 4))
    theory = there.prediction
    assert there.too_narrow == (2, 3, 4)
    for name, neglected in (("mean", theory.uncertainty), ("variance", theory.variance_uncertainty)):
        estimate = getattr(there, name)
        assert np.all(estimate.stderr > 0.9 * neglected)
        stderr = np.hypot(estimate.stderr, SEEN[name].stderr)
        assert np.max(np.abs(estimate.value - SEEN[name].value) / stderr) < 4
        inside = getattr(there.at(4), name).stderr  # networks were trained there
        assert inside.tobytes() == there.falls[name].at(4).stderr.tobytes()


def test_a_series_is_learned_only_where_order_one_is_not_meaningless():
    for widest, widths, useless in [
        (16, (2, 3, 4), (2, 3, 4)),
        (16, (8, 24, 32, 48), (8,)),
        (16, (24, 32, 48), ()),
        (4, (6, 8, 12), ()),
        (32, (24, 32, 48), ()),  # as benchmarks judge
        (48, (24, 32, 48), (24, 32, 48)),
    ]:
        assert too_narrow(widths, lambda n, widest=widest: n <= widest) == useless
    assert wide_enough(lambda n: n <= 16) == START and wide_enough(lambda n: n <= 100) == (64, 96, 128)
    assert wide_enough(lambda n: True) is None


@pytest.fixture(scope="module")
def fitted() -> fw.records.Extrapolation:
    """A made-up series of two outputs at widths 24, 32 and 48; one variance is below zero at width 10."""
    prepared = fw.prepare(network(), X[:2], Y[:2], X[2:], covariance=True)
    first = {name: np.full((2, 1), 1.0) for name in ("mean", "variance")}
    size = {"mean": 1.0, "variance": -20.0}
    left = {
        name: [fw.Estimate(np.full((2, 1), a / n**2), np.full((2, 1), 1e-3 / n)) for n in START]
        for name, a in size.items()
    }
    falls = falls_of_remainders(START, left, first)
    return fw.records.Extrapolation(128, START, 100, prepared, DESCENT, falls, left)


def test_an_extrapolation_has_arrays_with_names(fitted):
    arrays = fitted.to_xarray()
    for name in ("mean", "variance"):
        assert arrays[name].dims == arrays[f"{name}_stderr"].dims == ("sample", "output")
        np.testing.assert_array_equal(arrays[name], getattr(fitted, name).value)


def test_widths_below_the_trained_ones_and_variances_below_zero_are_said(fitted):
    message = (
        r"width 10 is below the trained widths 24, 32, 48, .* are below zero .*\(1 of 2\); use width 24 "
    )
    with pytest.warns(fw.warnings.ExpansionWarning, match=message):
        below = fitted.at(10)
    for part in below.std:
        np.testing.assert_array_equal(np.isnan(part), below.below_zero)
    assert "variances below zero" in repr(below)
    for n in (24, 1000):  # no warning, which would be an error
        there = fitted.at(n)
        np.testing.assert_allclose(there.std.value**2, there.variance.value, rtol=1e-12)
        assert not there.below_zero.any() and "zero" not in repr(there)


@pytest.mark.long
def test_other_losses_and_momentum_are_extrapolated():
    """Networks at width 64 against the extrapolation from widths 8 to 16, with cross-entropy and momentum."""
    labels, entropy = fw.losses.one_hot([0, 1, 1], 2), fw.CrossEntropy()
    net, momentum = fw.MLP((3, 64, 64, 2), "tanh", C_b=0.1, C_W=1.2), fw.GradientDescent(0.1, 4, momentum=0.5)
    data = net, X[:3], labels, X[3:]
    options = dict(algorithm=momentum, loss=entropy)
    wide = fw.extrapolate(*data, widths=(8, 12, 16), members=2000, **options)
    control = fw.control_variate(*data, momentum, entropy)
    seen = fw.train_ensemble(*data, members=2000, key=1, control=control, **options).best_mean
    assert np.abs((wide.mean.value - seen.value) / np.hypot(wide.mean.stderr, seen.stderr)).max() < 4
    assert (wide.std.value > 0).all()
