"""Order 1/n for any training: infinitely wide networks replayed step by step, with two corrections."""
