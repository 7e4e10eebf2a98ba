r"""Hidden layers given data: at order 1/n Bayesian networks learn representations.

With $g^{(l)} = d \log p_0(y) / d K^{(l)}$, backpropagated from $g^{(L)} = \Psi/2$,

$$\mathrm{E}[\hat G^{(l)}_{12}|y] = K + \tfrac{1}{n_{l-1}} [G^{\{1\}} + V_{(12)(34)} g_{34}], \qquad
  \mathrm{E}[z_{j1} z_{j2}|y] = \mathrm{E}[\hat G^{(l)}_{12}|y] + \tfrac{2}{n_l} (K g K)_{12},$$
$$\mathrm{E}[z_{j1}|y] = \tfrac{2 C_W^{(l+1)}}{n_l} \sum_{34} K_{13}\, g^{(l+1)}_{34}
  \langle\sigma'_3 \sigma_4\rangle.$$

The kernel climbs the gradient of the log evidence, with V as its metric; at infinite width it stays.
Orthogonal weights keep $\hat G$ as it is, and V then lacks what it has of the covariance of $\hat G$
(`theory/layers/isometry.py`): $2\rho\, k g k$ belongs to the first line, and not to the second.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from finitewidth.core.display.records import over_samples, shown
from finitewidth.gaussian.two_legs.averages import relative_two_legs
from finitewidth.theory.checks import check_layer
from finitewidth.theory.layers.isometry import Isometry
from finitewidth.theory.steps import Step, first_layer
from finitewidth.theory.vertex.fields import Fields
from finitewidth.training.bayes.conditioned_prior import ConditionedPrior


@shown(
    "index",
    "movement",
    "shift",
    "mean",
    dimensions=over_samples(("infinite_width", "prior", "shift", "kernel", "second_moment"), ()),
)
@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """One layer given the data, through order 1/n; samples are training inputs and then test inputs.

    `layer` of an `fw.records.Posterior` makes it.

    ```python
    hidden = fw.bayes.posterior(net, X, Y, X_test, noise=0.1, order=1).layer(1)
    hidden.second_moment, hidden.shift
    ```
    """

    index: int  # l, from 1
    infinite_width: Float[np.ndarray, "N N"] = field(repr=False)  # K, which data do not move
    prior: Float[np.ndarray, "N N"] = field(repr=False)  # K + G1/n, the mean kernel before data
    shift: Float[np.ndarray, "N N"] = field(repr=False)  # what the data add to the mean kernel
    second_moment: Float[np.ndarray, "N N"] | None = field(repr=False)  # E[z_j1 z_j2 | y]; None for outputs
    mean: Float[np.ndarray, " N"] | None = field(repr=False)  # E[z_j1 | y]; None for outputs

    @property
    def kernel(self) -> Float[np.ndarray, "N N"]:
        """The mean of the empirical kernel, the average over the neurons below, given the data."""
        return self.prior + self.shift

    @property
    def movement(self) -> float:
        """The shift of the kernel relative to it, both in the Frobenius norm."""
        return float(np.linalg.norm(self.shift) / np.linalg.norm(self.infinite_width))


def hidden_layer(fields: Fields, given: ConditionedPrior, index: int) -> HiddenLayer:
    """Layer `index` given the data."""
    net = fields.net
    check_layer(index, net.depth)
    if net.ladder.has_skips:
        raise ValueError(
            "hidden layers given data are not known for networks with skip connections; use a network of "
            "dense layers and activations."
        )
    gradients = kernel_gradients(fields.steps, given.Psi / 2)
    g, widths, K = gradients[index - 1], net.ladder.widths, fields.K[index - 1]
    empty = np.zeros((0, *K.shape))
    contracted = fields.vertex(index).contract(g[None], empty)
    prior, moved = K + contracted.G1 / widths[index - 1], contracted.straight[0] / widths[index - 1]
    shift, isometry = moved, _isometry(fields, index)
    if isometry is not None:
        shift = moved + 2 * isometry.share * isometry.k @ g @ isometry.k / widths[index - 1]
    second_moment = mean = None
    if index < net.depth:
        second_moment = prior + moved + 2 * K @ g @ K / widths[index]
        mean = _mean(fields.steps[index - 1], gradients[index]) / widths[index]
    samples = given.train if np.array_equal(given.train, given.tests) else np.append(given.train, given.tests)
    pairs = np.ix_(samples, samples)
    return HiddenLayer(
        index,
        K[pairs],
        prior[pairs],
        shift[pairs],
        None if second_moment is None else second_moment[pairs],
        None if mean is None else mean[samples],
    )


def _isometry(fields: Fields, index: int) -> Isometry | None:
    """That of the weights that end in layer `index`."""
    if index > 1:
        return Isometry.behind(fields.steps[index - 2])
    return Isometry.first(fields.net.ladder, first_layer(fields.net, fields.X))


def kernel_gradients(steps: Sequence[Step], by_kernel: np.ndarray) -> list[Float[np.ndarray, "N N"]]:
    """The derivative of log p_0(y) by the kernels of layers 1 ... L, from that by the last."""
    gradients = [by_kernel]
    for step in reversed(steps):
        slope = step.moments.sigma.gradient
        assert slope is not None and slope.first is not None and slope.both is not None
        g = step.C_W * slope.both * gradients[0]
        diagonal = 2 * step.C_W * (slope.first * gradients[0]).sum(axis=1)  # both legs are alike
        gradients.insert(0, g + np.diag(diagonal))
    return gradients


def _mean(step: Step, above: np.ndarray) -> np.ndarray:
    """n_l E[z_j | y] for the layer below a step; `above` is the gradient by the kernel above it."""
    averages, _ = relative_two_legs(step.activation, step.K, ((1, 0),))
    return 2 * step.C_W * step.K @ (above * averages[1, 0]).sum(axis=1)
