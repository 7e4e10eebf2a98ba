"""What the theory knows of each kind of layer, a file for each kind, and the steps through them.

- sites.py: pairs of sites ordered by displacement: a convolution never mixes differences of positions, so
  each displacement is an image of its own. Displacements are cyclic: one image has as many entries as
  there are positions
- interface.py: the interface of a step, and `Chain`, the loop over depth: it asks backwards which
  displacements the readout needs, and runs steps forwards
- mixing.py: strides, pools and flattening as sparse matrices between pairs of sites
- random_attention.py: averages over random scores, the only ones that are drawn: functions of a pair of
  samples, and a standard error beside `error`
- blocks.py: recipes of blocks: sources, ties and moved blocks, all of a layer made in one pass over
  memory
"""
