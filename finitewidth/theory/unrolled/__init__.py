"""The tensors of order 1/n as sums over the layers that created them.

- pair_corrections.py: G1 and H1 of all pairs, by recursions closed on two labels; V is that of
  `vertex/corners.py`
"""
