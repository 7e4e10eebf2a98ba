"""A network within blocks of pairs of samples: kernels and NTKs at infinite width.

- samples.py: a first pass that meets each sample with itself: variances, and attention, which other
  layers need to know
- propagation.py: the whole network within a block of pairs of samples; displacements come in chunks that
  stay in cache. Memory is that of the result
- sizes.py: how large blocks are
- closed_chain.py: dense networks whose activations have closed forms: all layers of a block in one
  compiled call, with the bits of layers one by one
- panels.py: a kernel matrix in panels, which are tasks for a cluster and stay on disk if memory cannot
  hold them
"""
