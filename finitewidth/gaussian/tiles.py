"""Square tiles of a matrix of pairs: bounded memory, few compiled shapes, work for several threads."""

SIDE = 256  # a tile of doubles is half a megabyte: a few of them fit a core's cache


def tile_side(count: int) -> int:
    """The side of square tiles over `count` samples: a power of two, so that few shapes are compiled."""
    return min(SIDE, 1 << max(count - 1, 0).bit_length())
