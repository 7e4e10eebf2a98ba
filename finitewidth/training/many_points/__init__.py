"""Mean and variance for hundreds of training points, in samples of neurons.

Samples are in single precision up to l_max T = 1e5, and their sums in double precision: for the same key,
double precision changes a task by 1e-6 to 1e-5 of its value and takes 1.5 times as long.
"""
