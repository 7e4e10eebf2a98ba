"""The effect of learning on the statistics of a network."""
