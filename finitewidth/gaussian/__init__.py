r"""Averages of activations over Gaussian preactivations; knows no network.

Each rule returns values with an error, in units of
$\sqrt{\langle(\sigma^{(a)}_1)^2\rangle\langle(\sigma^{(b)}_2)^2\rangle}$ (`two_legs/scales.py`), the scale
that the average lives on. The tolerance is 1e-12 of it; `theory.error` is the largest error of a whole solve.

Compiled loops. Kernels of many pairs are a few dozen operations for each pair and layer, so that passes
over memory and calls cost more than arithmetic. What every pair meets is therefore written as plain loops
that Numba compiles (`core/compiled.py`): `two_legs/pair_loops.py`, `two_legs/series_loops.py` and, for
weights, filters, pools and skips, `core/loops.py`, which also makes the tensors of order 1/n, row pair by
row pair. Four-leg averages, of one layer and of two, have theirs in `four_legs/loops/`, one call for a
batch of tasks: sums over points take eight at a time, by name (`core/compiled.py`), and
`four_legs/tasks/placement.py` packs those of four different samples before it fills arrays, whose places
are far from each other. Loops run on vector units and without the interpreter's lock, two to three
nanoseconds a pair, layer and core where XLA took five to nine. Sums and products are rounded once
(`fma`), so that their bits do not depend on the machine or on the shape of a block. Numba is imported and
loops are compiled at their first use (2.5 s of processor time for kernels and about 12 s for four-leg
averages, once; later processes find them in a cache and take 0.7 s); where no cache can be written, each
process compiles its own. New memory costs as much as arithmetic on it, so tables of legs are pieces of a
few large arrays, and four-leg averages of one layer use the memory of those of the layer before
(`gaussian/array_pool.py`). Programs of XLA that train ensembles are kept in the user's cache in the same way
(`core/programs.py`; `FINITEWIDTH_PROGRAMS` names another folder, or is `off`).
"""
