"""Networks compared on a data set by the evidence of the data for them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from finitewidth.core.display.records import shown
from finitewidth.core.inputs import ArrayLike
from finitewidth.core.methods import Tensors
from finitewidth.core.run import Run, as_run
from finitewidth.network.network import Network
from finitewidth.training.bayes.evidence import evidence
from finitewidth.training.first_order.expansion import ExpansionWarning
from finitewidth.training.infinite.bayes import Evidence


@shown("name", "evidence")
@dataclass(frozen=True)
class RankedNetwork:
    """One network of a comparison."""

    name: str
    evidence: Evidence

    @property
    def is_meaningful(self) -> bool:
        return self.evidence.verdict != "meaningless"


@shown("best", "noise", "order", figure="evidence_of_networks")
@dataclass(frozen=True)
class Ranking:
    """Networks by the evidence of one data set: those with a meaningful value first, the best at the top.

    `fw.bayes.rank` makes it, and `plot` draws it.

    ```python
    networks = {"mine": net, "larger weights": net.replace(C_W=2.0)}
    ranking = fw.bayes.rank(networks, X, Y, noise=0.01, order=0)
    ranking.best.name, ranking["mine"].evidence.value
    ```
    """

    rows: tuple[RankedNetwork, ...]  # name, network and evidence of each
    noise: float  # variance of the observations
    order: int  # 0 or 1

    @property
    def best(self) -> RankedNetwork | None:
        """The network that the data prefer; None if no evidence is within the range of the expansion."""
        return self.rows[0] if self.rows and self.rows[0].is_meaningful else None

    def __getitem__(self, name: str) -> RankedNetwork:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(
            f"no network is called {name!r}; there are {', '.join(row.name for row in self.rows)}."
        )

    def __str__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        head = (
            f"{'network':{width}s} {'log evidence':>13s} {'infinite width':>15s} {'correction':>11s}  verdict"
        )
        lines = [
            f"{row.name:{width}s} {row.evidence.value:13.4f} {row.evidence.infinite_width.value:15.4f} "
            f"{row.evidence.correction:11.4f}  {row.evidence.verdict}"
            for row in self.rows
        ]
        return "\n".join([head, *lines])


def rank(
    networks: Sequence[Network] | Mapping[str, Network],
    X: ArrayLike,
    Y: ArrayLike,
    *,
    noise: float = 0.0,
    order: int = 1,
    method: Tensors | None = None,
    run: Run | None = None,
) -> Ranking:
    """Compare depths, widths, activations and hyperparameters by the evidence of one data set.

    The difference of two log evidences is the logarithm of a Bayes factor. Nothing warns here: networks whose
    correction is of the size of one are marked as meaningless and stand at the end.

    Args:
        networks: A dictionary of networks by name, or a sequence of networks, which are then called by their
            widths and activation.
        X: Inputs (N, n_0).
        Y: Observed targets (N, n_L).
        noise: The variance of the observations.
        order: 0 is infinite width, 1 is through order 1/n.
        method: The accuracy of four-leg averages at order 1, an `fw.Tensors`.
        run: Cluster, progress and store of order 1, an `fw.Run`; the store is a folder with one store for
            each network.

    Returns:
        The networks in order, the best first.

    ```python
    fw.bayes.rank({"mine": net, "larger weights": net.replace(C_W=2.0)}, X, Y, noise=0.01, order=0)
    ```
    """
    named = networks if isinstance(networks, Mapping) else {_name(net): net for net in networks}
    if not named or len(named) < len(networks):
        raise ValueError(
            f"networks must be one network or more with different names, got {len(networks)}; pass a "
            "dictionary of names and networks."
        )
    run = as_run(run)

    def judged(number: int, net: Network) -> Evidence:
        store = None if run.store is None else Path(run.store) / f"network_{number}.zarr"
        own = replace(run, store=store)
        return evidence(net, X, Y, noise=noise, order=order, gradient=False, method=method, run=own)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExpansionWarning)
        rows = [RankedNetwork(name, judged(i, net)) for i, (name, net) in enumerate(named.items())]
    rows.sort(key=lambda row: (not row.is_meaningful, -row.evidence.value))
    return Ranking(tuple(rows), float(noise), order)


def _name(net: Network) -> str:
    if net.unknown_layer is not None:
        return f"{type(net).__name__} of {net.depth} layers"
    hidden = net.ladder.widths[1:-1]
    width = f"width {hidden[0]}" if len(set(hidden)) == 1 else f"widths {', '.join(map(str, hidden))}"
    return f"{net.activation_name}, {net.depth} layers, {width}"
