"""Averages of two legs: <σσ>, <σ'σ'> and their derivatives, for a pair of samples.

- pair_loops.py, closed_forms.py, closed_averages.py: exact formulas of the kernel's entries: <σσ> and
  <σ'σ'> in compiled loops, other derivatives and sin by XLA (the activation has them)
- series.py, series_loops.py, hermite_tables.py, series_legs.py: the Hermite (Mehler) series in the
  correlation: one table of coefficients for each input, shared by all pairs and all derivative orders
  (everything else; converges geometrically for smooth activations. One compiled pass over the rows of a
  block takes correlations, lengths and both averages)
- quadrature.py: a graded product rule, cut at the kinks (pairs for which the series would be too long)
- one_leg.py, leg_table.py: averages of one preactivation, also tabulated over twenty decades of its
  variance (criticality)
- two_samples.py: four legs on two samples, by the Hermite series of their products (G1 and H1 of all
  pairs)
- kernel_derivatives.py: derivatives by the kernel, where kinks make the separate averages diverge (order
  1/n with kinks)
"""
