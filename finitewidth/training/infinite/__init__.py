"""Training at infinite width, where the NTK is frozen."""
