"""Symmetries of the tensors of order 1/n in their four samples."""

import numpy as np

# permutations of the slots a b c d that leave a tensor as it is (statistics section 2)
SYMMETRIES = {
    "V": "abcd bacd abdc badc cdab dcab cdba dcba",
    "A": "abcd bacd abdc badc cdab dcab cdba dcba",
    "D": "abcd bacd abdc badc",
    "F": "abcd cdab",
    "B": "abcd badc cdab dcba",
    "P": "abcd acbd",
    "Q": "abcd",
    "R": "abcd abdc",
    "S": "abcd badc",
    "T": "abcd dcba",
    "U": "abcd cdab",
}


def permuted(tensor, slots):
    return np.einsum(f"abcd->{slots}", tensor)
