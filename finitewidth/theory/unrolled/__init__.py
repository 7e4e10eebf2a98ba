"""The tensors of order 1/n as sums over the layers that created them."""
