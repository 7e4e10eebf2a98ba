"""Mean and variance for hundreds of training points, in samples of neurons.

Samples are in single precision up to l_max T = 1e5, and their sums in double precision: for the same key,
double precision changes a task by 1e-6 to 1e-5 of its value and takes 1.5 times as long.

- time_bins.py, time_integrals.py: times drawn without bias; flow and descent as integrals over them of
  one factor per mode, coincident steps included
- source_layer.py, sampled_training.py: the pair matrices of a source layer; modes, targets and kernels of
  a problem, in working precision
- neuron_batch.py, hadamard.py: neurons of one source layer, and the products that all contractions are
  made of
- feature_means.py: means of features over neurons, which control variates subtract and add again
- ntk_fluctuation.py, symmetric_terms.py, ordered_terms.py, second_ddntk.py: the contractions: A, B; P, Q,
  R in the symmetric symbols; P, Q, R in the time-ordered ones; S, T, U
- output_correlation.py: what the variance has beside derivatives of the mean: D, F, P, Q with the initial
  output
- observables.py: the mean, or the variance, as contractions of one task
- sampling_tasks.py: tasks: a source layer, a kind and a bin of time, with a few batches
- allocation.py, estimation.py: pilot and rounds, planned by variances and never by a clock; budget and
  standard errors
"""
