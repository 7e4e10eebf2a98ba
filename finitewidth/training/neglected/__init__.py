"""What lies behind order 1/n: one standard deviation of what a result neglects."""
