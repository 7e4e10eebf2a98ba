"""Training with kinked activations: the order n^(-1/2), from neurons that cross their kink."""
