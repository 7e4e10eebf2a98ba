"""Training through order 1/n (PDLT section inf.2), in eigenmodes of the training NTK."""
