"""A network within blocks of pairs of samples: kernels and NTKs at infinite width."""
