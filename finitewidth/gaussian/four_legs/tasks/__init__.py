"""Four-leg averages as tasks: a pair of legs to condition on, with entries of two further legs each."""
