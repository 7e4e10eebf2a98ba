"""Models of other libraries, read as networks.

A model becomes a graph of values
(`torch_trace.py` by torch.fx, `jax_read.py` from the jaxpr), in which known operations are layers and all
others are light. `graph.py` finds the sequence of layers from dominators, for both: light nodes between
two layers are an activation, recognized by the values that it computes (`recognition.py`), and a sum of
two ways with weights is a residual block. `reading.py` is the one place where the argument `net` of a
public function is read.
"""
