"""Training algorithms, as values."""
