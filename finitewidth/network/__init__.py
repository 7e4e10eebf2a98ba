"""The object of study, as values: activations, layers, networks, algorithms and losses."""
