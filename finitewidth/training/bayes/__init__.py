"""Bayes' rule through order 1/n (PDLT section 6.4), from K, G1 and V.

- bayesian_problem.py, conditioned_prior.py: checks and merged inputs; the Gaussian prior conditioned on
  data, equal inputs added up
- posterior_corrections.py: the only statement of the corrections to mean, covariance, cumulants and
  evidence
- posterior.py, evidence.py, hidden_layers.py: the records and public functions; layers given data
- ranking.py, fitted_posterior.py: networks ranked by evidence; one data set asked about many test inputs
"""
