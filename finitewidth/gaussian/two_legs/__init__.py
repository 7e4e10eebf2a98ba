"""Averages of two legs: <σσ>, <σ'σ'> and their derivatives, for a pair of samples."""
