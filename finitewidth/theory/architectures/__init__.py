"""Order 1/n beyond dense layers: norms, convolutions, pools, and residual blocks that begin with a norm.

Labels are sites, that is pairs of a sample and a position; channels are the width. A `Signal` holds what the
layers so far have made: K, Theta, their corrections and the blocks of V, D, A, F, B between pairs of sites.
Each kind of layer takes a signal to a signal, by the sources, maps and recipes of dense layers
(`theory/features.py`, `theory/recursion.py`).

- signal.py: the signal, and what a row of pairs of sites goes through
- norms.py: layer norm and RMS norm, maps of signals
- weights.py: an activation and the weights behind it; what a subtracted mean takes away
- gains.py: gains of norms that learn
- positions.py: filters, pools and flattening as sparse matrices on pairs of sites
- residual.py: blocks that read their stream linearly
- walk.py: the way of a signal through a network
"""
