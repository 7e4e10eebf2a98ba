"""Training at infinite width, where the NTK is frozen.

- solver.py: F applied to vectors: a Cholesky factor in place at the end of training, else the eigenbasis,
  else a schedule of updates
- iterative.py: the same for a kernel on disk, by preconditioned conjugate gradients
- conditioning.py: why a kernel cannot be inverted, in words
- fitting.py: `fit` and `Fitted`: train once, ask about test inputs many times, in blocks
- gaussian.py, sampled.py: the two kinds of ensemble: `Prediction` (mean and covariance in factors),
  `SampledPrediction` (members)
- dynamics.py: many times from one eigendecomposition; early stopping
- function_space.py: training on other losses in function space
- bayes.py, ridge.py, spectrum.py: posterior, evidence and its gradient; cross-validation in closed form;
  eigenvalues and time scales
"""
