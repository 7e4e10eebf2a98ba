"""Unrolled tensors made whole, and the groups of source layers that are sampled together."""

from collections.abc import Sequence

import numpy as np

from finitewidth.gaussian.four_legs.averages import four_legs
from finitewidth.theory.feature_products import FourLegs
from finitewidth.theory.feature_products import source as source_block
from finitewidth.theory.sources import Source
from finitewidth.theory.streams import BARE, Streams, pair_averages
from finitewidth.theory.tensors import Shape
from finitewidth.theory.unrolled.sampled import Group, Member


def whole(sources: Sequence[Source], shape: Shape, count: int, tolerance: float) -> np.ndarray:
    """The tensor with its slots in printed order."""
    total = np.zeros((count,) * 4)
    for source in sources:
        families = tuple({product.family for product in source.products(shape)})
        if not families:  # orthogonal weights take nothing from tensors that are created beside them
            continue
        averages = FourLegs.of(four_legs(source.activation, source.K, families, tolerance=tolerance))
        block = source_block(shape, source.features, source.moments, source.Theta, averages.values)
        total += source.weight * block
    return np.einsum(f"abcd->{shape.printed}", total)


def whole_with_skips(streams: Streams, layer: int, shape: Shape, count: int, tolerance: float) -> np.ndarray:
    """The tensor with its slots in printed order."""
    total = np.zeros((count,) * 4)
    for pair in streams.pairs:
        families = streams.families(layer, pair, shape)
        averages = FourLegs.of(pair_averages(streams.legs(pair), families, tolerance))
        total += streams.block(layer, pair, shape, averages.values)
    for block in streams.bare_blocks(layer, shape):
        total += block
    return np.einsum(f"abcd->{shape.printed}", total)


def stream_groups(streams: Streams, layer: int) -> list[Group]:
    """The source layers below a layer, those of one stream together."""
    ladder, left, groups = streams.ladder, list(range(1, layer)), []
    while left:
        stream = [one for one in left if ladder.relation(left[0], one) is not None]
        left = [one for one in left if one not in stream]
        groups.append(_group(streams, layer, stream))
    return groups


def _group(streams: Streams, layer: int, stream: list[int]) -> Group:
    sources = [streams.seen[layer][one - 1] for one in stream]
    members = [Member(source.activation, source.features) for source in sources]
    if streams.ladder.relation(stream[0], layer) is not None:
        stream, members = [*stream, layer], [*members, Member(None, BARE)]
    crossed = {
        (i, j): streams.crossed(one, other) for i, one in enumerate(stream) for j, other in enumerate(stream)
    }
    size = range(len(stream))
    K = np.block([[crossed[i, j][0] for j in size] for i in size])
    return Group(sources[0].weight, tuple(members), K, {key: Theta for key, (_, Theta) in crossed.items()})
