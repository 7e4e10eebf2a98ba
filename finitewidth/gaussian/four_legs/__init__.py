"""Averages of four legs, of one layer or of two layers of a stream.

`averages.py` is the question, as `two_legs/averages.py` is for two. Smooth activations are conditioned on
a pair of legs (`conditioning.py`, `plans.py`). A task is such a pair with entries, each of two further
legs; tasks are done in batches by compiled loops (`tasks/`), and each entry takes as many Hermite terms
as its own correlation asks for. Two legs in each of two layers are the same tasks (`two_layers.py`): the
pair belongs to the layer whose samples are more similar, which leaves the shorter series, and the entries
to the other one. Entries of almost parallel legs are conditioned on a leg of each layer, one by one
(`contraction.py`). Kinked ones of one or of two layers are treated sample set by sample set (`kinked.py`)
on panels that end at the kinks (`panels.py`), sine and polynomials have closed forms.
"""
