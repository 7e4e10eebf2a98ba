"""Claims about Bayesian inference."""
