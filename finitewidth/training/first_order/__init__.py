"""Training through order 1/n (PDLT section inf.2), in eigenmodes of the training NTK.

- learning_problem.py: the learning problem: the one place where inputs are checked and equal ones merged,
  and where the expansion refuses
- prepared.py: `prepare` and `Prepared`: statistics once, any algorithm, time, width and targets
- chosen_method.py, standard_errors.py: which method computes order 1/n, and how accurately; what a
  prediction says of its samples
- tensor_forms.py: the tensors as a prediction meets them: stored whole, contracted leg by leg, or sampled
- mean_terms.py: the mean term by term: the only statement of it, read forwards for stored tensors and
  backwards for streamed ones
- mean_and_covariance.py, leg_by_leg.py, pairs_with_skips.py: the mean and the whole covariance from
  stored tensors; the mean at the end of training, leg by leg; G1 and H1 of pairs where there are skips
- eigenmodes.py, expansion.py, truncation.py: rotation to modes; how large the corrections are; what they
  neglect
- one_network.py: one network's trained outputs and NTK from its own derivatives
- inductive_bias.py, depth_and_width.py: how algorithms weigh modes; expected loss over depth and width
"""
