"""A small problem whose order 1/n is taken in samples of neurons."""

import numpy as np

import finitewidth as fw

INPUTS = np.random.default_rng(17).standard_normal((9, 3))
TARGETS = np.random.default_rng(18).standard_normal((6, 2))
NET = fw.MLP((3, 48, 40, 2), "tanh", C_b=0.1, C_W=1.2)


def sampled(
    algorithm, net: fw.MLP = NET, *, covariance: bool | None = None, run: fw.Run | None = None, **options
) -> fw.records.Prediction:
    method = fw.Sampling(**{"samples": 20_000, **options})
    given = {"algorithm": algorithm, "covariance": covariance, "method": method, "run": run}
    return fw.predict(net, INPUTS[:6], TARGETS, INPUTS[6:], **given)
