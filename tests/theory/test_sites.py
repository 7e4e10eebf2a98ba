"""Convolutions, pools, flattening and blocks that begin with a norm, at order 1/n."""

import numpy as np
import pytest
from helpers.close import assert_close
from helpers.problems import also_long, refused
from helpers.widths import pulls_at_infinity

import finitewidth as fw
from finitewidth.core.run import QUIET, runner
from finitewidth.theory.architectures.requests import Request
from finitewidth.theory.architectures.solution import solved
from finitewidth.theory.architectures.walk import Walk
from finitewidth.theory.architectures.weights import Detail

FLUCTUATIONS = ("V", "D", "A", "F", "B")
NAMES = ("K", "Theta", "G1", "H1", *FLUCTUATIONS)
SCALES = {"C_b": 0.1, "C_W": 1.7, "lambda_b": 0.3, "lambda_W": 0.8}
rng = np.random.default_rng(7)
SEQUENCES = rng.standard_normal((2, 3, 2)) * np.array([1.4, 0.8])[:, None, None]


def dense(width: int, **changes) -> fw.Dense:
    return fw.Dense(width, **SCALES | changes)


def conv(width: int, filter=3, **changes) -> fw.Conv:
    return fw.Conv(width, filter, **SCALES | changes)


# --- positions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [fw.Flatten(), fw.GlobalAveragePool()], ids=["flatten", "pool"])
def test_filters_of_one_position_are_dense_networks_on_all_sites(end):
    """The readout averages the tensors of a perceptron that has all sites as its inputs."""
    net = fw.Network((3, 2), conv(6, 1), "gelu", conv(5, 1), "gelu", end, dense(2, lambda_b=0.0, C_b=0.0))
    sites = fw.Network(2, dense(6), "gelu", dense(5), "gelu", dense(2, lambda_b=0.0, C_b=0.0))
    by_sites = fw.solve(sites, SEQUENCES.reshape(6, 2), tensors=FLUCTUATIONS).output
    theory = fw.solve(net, SEQUENCES).output
    average = np.full((3, 3), 1 / 9) if isinstance(end, fw.GlobalAveragePool) else np.eye(3) / 3
    for name in NAMES:
        values = getattr(by_sites, name)
        values = values.reshape((2, 3) * values.ndim)
        expected = (
            np.einsum("apbq,pq->ab", values, average)
            if values.ndim == 4
            else np.einsum("apbqcrds,pq,rs->abcd", values, average, average)
        )
        assert_close(getattr(theory, name), expected, 1e-7)


def test_a_filter_over_all_positions_is_a_dense_layer_on_the_flattened_ones():
    whole = fw.Network((3, 2), conv(6), "tanh", conv(5, 3, padding="valid"), "tanh", fw.Flatten(), dense(2))
    flat = fw.Network((3, 2), conv(6), "tanh", fw.Flatten(), dense(5), "tanh", dense(2))
    one, other = (fw.solve(net, SEQUENCES).output for net in (whole, flat))
    assert one.n == other.n == 5
    for name in NAMES:
        assert_close(getattr(one, name), getattr(other, name), 1e-12)


IMAGES = rng.standard_normal((2, 4, 3, 1))
GRIDS = [
    (conv(4, 3, stride=2), "relu", fw.Flatten()),
    (conv(4, 2, padding=1), "relu", fw.AveragePool(2, stride=2, padding=1), fw.Flatten()),
    (
        conv(4, (3, 2), padding="circular"),
        fw.AveragePool(2, 1, "same", False),
        "tanh",
        fw.GlobalAveragePool(),
    ),
    (conv(4), fw.LayerNorm(lambda_gain=0.3), "tanh", conv(3, 2, stride=2, padding="valid"), fw.Flatten()),
    (
        fw.AveragePool(2),
        conv(4, 1),
        fw.Residual(fw.RMSNorm(), conv(4), "tanh", conv(4), gamma=0.7),
        fw.Flatten(),
    ),
]


@pytest.mark.parametrize("layers", GRIDS, ids=range(len(GRIDS)))
def test_kernels_on_grids_are_those_of_infinite_width_in_every_layer(layers):
    """Strides, padding and pools come from another code there, of pairs by displacement."""
    net, means = fw.Network((4, 3, 1), *layers, dense(2)), {}
    Walk(net, IMAGES, 1e-12, detail=Detail(), keep=means.__setitem__).run()
    wide = fw.solve(net, IMAGES, order=0)
    assert len(means) == net.depth
    for index, state in means.items():
        assert_close(state.K, wide.layer(index).K, 1e-12)
        assert_close(state.Theta, wide.layer(index).Theta, 1e-12)


def test_too_many_sites_are_refused_before_they_are_tried():
    net = fw.Network((32, 32, 1), conv(8), "relu", fw.Flatten(), dense(2))
    with refused("order 1/n of 2 inputs with 2048 sites needs .* GB"):
        fw.solve(net, np.ones((2, 32, 32, 1)) * np.array([1.0, 2.0])[:, None, None, None])


# --- residual blocks that begin with a norm -----------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        (dense(7), "gelu", dense(5)),
        *also_long(((dense(7), fw.Residual(dense(4), "gelu", dense(7), gamma=0.6), dense(5)),)),
    ],
    ids=["one", "nested"],
)
def test_streams_that_are_read_linearly_need_no_memory(body):
    """Pairs alone say what sums over all pairs of layers say."""
    net = fw.Network(2, dense(5), fw.Residual(*body, gamma=0.8), "gelu", dense(2))
    X = SEQUENCES[:, 0]
    request = Request({net.depth}, FLUCTUATIONS, 1e-12, 1e-8, True)
    with runner(QUIET, kind="solution", configuration=dict) as running:
        by_pairs = solved(net, X, request, running, "").layers[net.depth]
    theory = fw.solve(net, X).output
    for name in NAMES:
        assert_close(by_pairs[name], getattr(theory, name), 1e-6)


def test_a_block_that_multiplies_its_stream_by_zero_is_its_body():
    block = fw.Residual(fw.LayerNorm(), dense(7), "gelu", dense(5), gamma=0.0)
    rest = (fw.LayerNorm(), "gelu", dense(2))
    one = fw.solve(fw.Network(2, dense(5), block, *rest), SEQUENCES[:, 0]).output
    other = fw.solve(fw.Network(2, dense(5), *block.layers, *rest), SEQUENCES[:, 0]).output
    for name in NAMES:
        assert_close(getattr(one, name), getattr(other, name), 1e-12)


# --- real networks ----------------------------------------------------------------------------------------


def strided(n):
    net = conv(n, 2, padding="valid"), "gelu", conv(n, (3, 2), stride=(2, 1)), "gelu", fw.Flatten(), dense(2)
    return fw.Network((4, 3, 1), *net)


def pooled(n):
    return fw.Network(
        (3, 2), conv(n), fw.LayerNorm(0.05), "relu", conv(n), "relu", fw.GlobalAveragePool(), dense(2)
    )


def prenorm(n):
    block = fw.Residual(fw.LayerNorm(0.05), dense(2 * n), "gelu", dense(n))
    return fw.Network(2, dense(n), block, block, fw.RMSNorm(0.05), "gelu", dense(2))


REAL = {"strided": (strided, IMAGES), "pooled": (pooled, SEQUENCES), "prenorm": (prenorm, SEQUENCES[:, 0])}


@pytest.mark.long
@pytest.mark.parametrize("name", REAL)
def test_statistics_of_real_networks(name):
    """Widths 24 to 96, terms to 1/n^2, fixed beforehand: 7 statistics, no pull above 4."""
    make, X = REAL[name]
    found = pulls_at_infinity(make, X, (24, 36, 56, 96), 4000, ("G", "H", *FLUCTUATIONS))
    assert max(found.values()) < 4, found
