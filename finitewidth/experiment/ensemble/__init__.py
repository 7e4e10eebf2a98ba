"""Ensembles of trained networks, batch by batch.

Training. `train_ensemble` makes a hashable `Plan` (`experiment/ensemble/plan.py`), of which only the
pattern is compiled: another learning rate compiles nothing. A batch (`experiment/ensemble/batch.py`)
draws its members, trains them (`descent.py`, `flow.py` by diffrax, `newton.py`) and reduces the records
to moments about the batch's mean (`experiment/streaming.py`), up to the fourth, which the standard error
of a covariance needs. Memory does not depend on the number of members. Batches with fewer members than
outputs stay rows of outputs, which take less room than their moments, until enough of them are together.

Control variates. A linear control, such as the prediction of infinite width, is subtracted from trained
outputs, and its products from theirs. What is added again is exact: its mean is zero, and over the last
layer alone the average of a product has a closed form for the hidden layers as drawn (`batch.py`).

Batches are a fixed partition (`experiment/partition.py`) that depends on the request alone; they are
tasks like all others, two at a time on a CPU, and are merged in order. The result therefore has the same
bits on any number of workers; another batch size agrees to rounding. An ensemble's store
(`experiment/ensemble/checkpoint.py`) holds the moments of the batches, if asked for the outputs of the
members, and in the end the results, which xarray opens.
"""
