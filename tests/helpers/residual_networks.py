"""Residual networks of dense layers, and kernels of two of their layers."""

import functools

import numpy as np

import finitewidth as fw

RATES = dict(lambda_b=0.5, lambda_W=0.8)


def chain(gammas, activations, n=20, inputs=3, C_W=0.9, C_b=0.1, **rates):
    """A dense first layer, then a layer for each gamma, with a skip if it is not None."""
    layer = functools.partial(fw.Dense, n, C_b, C_W, **(rates or RATES))
    layers = [layer()]
    for gamma, activation in zip(gammas, activations, strict=True):
        layers += [activation, layer()] if gamma is None else [fw.Residual(activation, layer(), gamma=gamma)]
    return fw.Network(inputs, *layers)


def joint_kernel(X, gamma=0.8, C_b=0.1):
    """A layer and a residual layer behind it, with another kernel for its weights."""
    K = C_b + X @ X.T / X.shape[1]
    added = 0.2 + 0.5 * K * np.abs(K) + 0.4 * np.eye(len(X)) * np.diag(K)
    return np.block([[K, gamma * K], [gamma * K, gamma**2 * K + added]])
