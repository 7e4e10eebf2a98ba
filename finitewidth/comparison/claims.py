"""Quantitative statements of the sources as checks that anybody can run.

A claim is a function that returns comparisons of independent numbers: theory against sampled or trained
networks, a recursion at depth against a printed asymptote, a closed form against brute force. A claim holds
if all its comparisons hold; reports show the comparison that uses the largest part of its allowance.
"""

import functools
import importlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from finitewidth.comparison.claim import Claim, Outcome, registered
from finitewidth.comparison.claim_store import ClaimStore
from finitewidth.core.storage.lock import locked

# files of statements, in the order in which their claims are run and shown
FILES = (
    "talks.sparsity_lecture",
    "talks.ntk_talk",
    "talks.effective_theory_talk",
    "earlier_chapters",
    "mixed_activations",
    "inference.infinite_width",
    "inference.bayes",
    "leaps",
    "generalization",
    "depth",
    "starpolation",
    "linear_models",
    "differentials",
    "one_network",
    "projectors",
    "ensembles",
    "residual",
)


@functools.cache
def registry() -> tuple[Claim, ...]:
    """All claims, in the order of their sources."""
    for name in FILES:
        importlib.import_module(f"finitewidth.comparison.statements.{name}")
    return registered()


def chosen(only: Sequence[str] = (), *, long: bool = False) -> list[Claim]:
    """The claims to run: those that `only` names by id or equation, else the quick ones, or all with `long`.

    An equation stands for the quick claims about it, or for the long ones where there are no quick ones.
    """
    if not only:
        return [one for one in registry() if long or not one.long]
    wanted: set[str] = set()
    for asked in (text.strip("() ").replace("∞", "inf") for text in only):
        about = [one for one in registry() if one.covers(asked)]
        quick = [one for one in about if long or not one.long or one.id == asked]
        if not about:
            raise ValueError(
                f"no claim is called {asked!r}; choose one from finitewidth claims --list, or an equation "
                "such as 10.93 or inf.162."
            )
        wanted |= {one.id for one in quick or about}
    return [one for one in registry() if one.id in wanted]


def run(one: Claim) -> Outcome:
    """Measure a claim; an error counts as a failure, with its message."""
    start = time.perf_counter()
    try:
        comparisons, message = tuple(one.measure()), None
    except Exception as error:  # noqa: BLE001  (an error in one claim must not stop the others)
        comparisons, message = (), f"{type(error).__name__}: {error}"
    return Outcome(one, comparisons, time.perf_counter() - start, message)


def claims(
    only: Sequence[str] = (), *, long: bool = False, store: str | Path | None = None, fresh: bool = False
) -> Iterator[Outcome]:
    """Run claims, the quantitative statements of the sources, and yield their outcomes one after another.

    Args:
        only: Claims by id or by equation; all of them by default.
        long: Whether to include those that take minutes.
        store: A JSON file that keeps the claims that passed. They are not run again while the source code of
            the package stays the same.
        fresh: Run all of them again, whatever the store has.

    Returns:
        An iterator over outcomes, each with its claim, the numbers found and whether it `passed`.

    ```python
    [outcome.passed for outcome in fw.claims(["ntk-talk.kernel-regression"])]
    ```
    """
    wanted = chosen(only, long=long)
    if store is None:
        yield from map(run, wanted)
        return
    Path(store).parent.mkdir(parents=True, exist_ok=True)
    with locked(Path(store)):
        kept = ClaimStore(store, fresh=fresh)
        for one in wanted:
            outcome = kept.get(one)
            if outcome is None:
                outcome = run(one)
                kept.put(outcome)
            yield outcome
