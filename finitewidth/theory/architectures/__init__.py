"""Order 1/n beyond dense layers: norms, convolutions, pools, and residual blocks that begin with a norm.

Labels are sites, that is pairs of a sample and a position; channels are the width. A `Signal` holds what the
layers so far have made: K, Theta, their corrections and the blocks of V, D, A, F, B between pairs of sites.
Each kind of layer takes a signal to a signal, by the sources, maps and recipes of dense layers
(`theory/features.py`, `theory/recursion.py`).
"""
