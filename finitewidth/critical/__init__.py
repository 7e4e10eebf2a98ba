"""Criticality: susceptibilities, phases and the laws of deep networks (`fw.critical`).

- initialization.py, explanation.py: the critical C_b and C_W of every layer, also of different
  activations in one network, and the same in words; the one definition of "critical"
- tuning.py: the critical network with its learning rates
- ntk_shares.py: what biases and weights of each layer add to the NTK
- fitted_exponents.py, asymptotic_laws.py: critical exponents, stated and fitted; the laws that K and
  Theta approach
- one_input.py: one input through thousands of layers, from tables
- audit.py, findings.py: the verdict on a network
- stream_audit.py: the same for networks beyond dense layers: exponentials told from powers of the depth
- aspect_ratio.py: width, depth and gamma of critical networks, two of which give the third
- phases.py: fixed points over a grid of initializations
- mutual_information.py: entropy and mutual information of outputs, and the aspect ratio where they stop
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
