"""The criticality of skips, norms, convolutions and attention.

- initialization.py, tuning.py: critical C_b and C_W of skips, norms, convolutions and attention, and
  learning rates of any network
- one_signal.py: one signal forwards and its gradient backwards, from tables; positions alike
- two_inputs.py: generic inputs through any network, by the kernels of the theory
- leak.py: the share of a kernel that zero padding leaves
"""
