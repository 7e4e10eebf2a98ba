r"""Source layers: what each layer creates of the 1/n tensors, as the layer asked for sees it.

Unrolling the recursions over depth, every tensor is

$$\sum_{\text{source layers}} w \times \text{ties of } \Theta \times \langle \text{row feature} \times
  \text{column feature} \rangle,$$

where a feature of a pair (a b) is a short sum of pair matrices times two legs of the source layer. Only the
pair matrices travel through depth, moved by the same maps as the blocks of the recursion. A skip that ends in
a layer adds gamma^2 times the features as the layer sees them where the skip starts. Orthogonal weights
are a source of linear neurons and negative weight (`theory/layers/isometry.py`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from finitewidth.gaussian.two_legs.averages import ACCURACY
from finitewidth.network.ladder import Ladder
from finitewidth.network.layers.activation import Activation, as_activation
from finitewidth.theory.feature_products import Product, mean, products
from finitewidth.theory.features import created, feature_maps
from finitewidth.theory.layers.activation import Moments, moments
from finitewidth.theory.layers.dense import Means
from finitewidth.theory.layers.isometry import Isometry
from finitewidth.theory.layers.pair_map import Feature, add_to
from finitewidth.theory.steps import Step
from finitewidth.theory.tensors import SHAPES, Shape

FEATURES = tuple({name: None for shape in SHAPES.values() for name in (shape.row, shape.column)})


@dataclass(frozen=True)
class Source:
    """One source layer: its activation, kernel and NTK, and the features it sends to the layer asked for."""

    activation: Activation
    K: np.ndarray
    Theta: np.ndarray
    moments: Moments
    weight: float  # product of width ratios on the way
    features: dict[str, Feature]

    @classmethod
    def at(cls, step: Step) -> "Source":
        """The source as the next layer sees it."""
        features: dict[str, Feature] = {
            name: {legs: np.broadcast_to(c, step.K.shape) for legs, c in feature.items()}
            for name, feature in created(step).items()
        }
        return cls(step.activation, step.K, step.Theta, step.moments, 1.0, features)

    @classmethod
    def of_isometry(cls, isometry: Isometry, features: Iterable[str]) -> "Source":
        """What orthogonal weights take from the layer that they end in, with the names of its features."""
        linear, k, one = as_activation("linear"), isometry.k, np.ones_like(isometry.k)
        carried = {"v": (0, 0), "f": (1, 0), "b": (1, 1)}  # derivatives on the two legs
        legs: dict[str, Feature] = {
            name: {((0, a), (1, b)): one} for name, (a, b) in carried.items() if name in features
        }
        empty: dict[str, Feature] = {name: {} for name in features}
        return cls(linear, k, isometry.t, moments(linear, k, ACCURACY), -isometry.share, empty | legs)

    def lifted(self, step: Step, skipped: "Source | None" = None, gamma: float = 0.0) -> "Source":
        """The same source seen from one layer further up, where a skip may add what `skipped` shows."""
        features = moved(self.features, step)
        below = {} if skipped is None else skipped.features
        for name in features.keys() & below.keys():  # kinks on the way end some features
            for legs, coefficient in below[name].items():
                add_to(features[name], legs, gamma**2 * coefficient)
        weight = self.weight * step.width_ratio
        return Source(self.activation, self.K, self.Theta, self.moments, weight, features)

    def products(self, shape: Shape) -> Iterable[Product]:
        """The terms of a tensor's row feature times its column feature that do not vanish."""
        terms = products(self.features[shape.row], self.features[shape.column])
        return (term for term in terms if np.any(term.row) and np.any(term.column))

    def mean(self, feature: str) -> np.ndarray:
        """<feature> over pairs (N, N)."""
        return mean(self.features[feature], self.moments)


def moved(features: Mapping[str, Feature], step: Step) -> dict[str, Feature]:
    """Features of layer l as they answer in layer l + 1 to its weights."""
    result: dict[str, Feature] = {}
    for maps in feature_maps(step):
        for new, sources in maps.items():
            result[new] = {}
            for old, pair_map in sources.items():
                for legs, coefficient in pair_map.of_feature(features.get(old, {})).items():
                    add_to(result[new], legs, coefficient)
    return result


def source_layers(
    ladder: Ladder, steps: Iterable[Step], at: Callable[[Step], Source] = Source.at
) -> Iterator[tuple[Source, ...]]:
    """The sources 1 ... l - 1 as layer l sees them, for l = 2, 3, ...; `at` makes that of the last step."""
    starts = {skip.source for skip in ladder.skips if skip is not None}
    kept: dict[int, tuple[Source, ...]] = {1: ()}  # as the layers see them where skips start
    seen: tuple[Source, ...] = ()
    for layer, step in enumerate(steps, start=1):
        if layer == 1:
            seen = _isometric(Isometry.first(ladder, step.below))
        skip = ladder.skips[layer]
        skipped, gamma = (kept[skip.source], skip.gamma) if skip else ((), 0.0)
        below = (*skipped, *[None] * (len(seen) - len(skipped)))
        lifted = (one.lifted(step, part, gamma) for one, part in zip(seen, below, strict=True))
        seen = (*lifted, at(step), *_isometric(Isometry.behind(step), created(step)))
        if layer + 1 in starts:
            kept[layer + 1] = seen
        yield seen


def sources_of_last(ladder: Ladder, first: Means, steps: Iterable[Step]) -> tuple[Source, ...]:
    """The sources as the layer behind the last step sees them; without steps, those of layer 1."""
    seen = _isometric(Isometry.first(ladder, first))
    for seen in source_layers(ladder, steps):  # noqa: B007  # the last one
        pass
    return seen


def _isometric(isometry: Isometry | None, features: Iterable[str] = FEATURES) -> tuple[Source, ...]:
    return () if isometry is None else (Source.of_isometry(isometry, features),)
