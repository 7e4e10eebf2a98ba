"""Every quantitative statement of the sources as a check that anybody can run.

A claim is a function that returns comparisons of numbers found independently of each other: theory against
sampled or trained networks, a recursion at depth against a printed asymptote, a closed form against brute
force. It holds if all of them do; the one that uses most of its allowance is what is shown.
"""

import functools
import importlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from finitewidth.comparison.evidence import Comparison

# files of statements, in the order in which their claims are run and shown
FILES = (
    "sparsity_lecture",
    "ntk_talk",
    "effective_theory_talk",
    "leaps",
    "generalization",
    "depth",
    "starpolation",
    "linear_models",
    "differentials",
    "one_network",
    "projectors",
    "ensembles",
)

_REGISTERED: dict[str, "Claim"] = {}


@dataclass(frozen=True)
class Claim:
    """A statement of a source, and the function that measures it."""

    id: str  # an equation, a range such as 10.40-10.41, or a talk and a topic
    source: str
    statement: str
    how: str  # closed form, recursion, sampled networks or trained networks, and how many
    measure: Callable[[], Iterable[Comparison]] = field(repr=False, compare=False)
    corrected: str | None = None  # the right formula, where the source misprints it
    long: bool = False

    def covers(self, asked: str) -> bool:
        """Whether `asked` is this claim, or an equation within its range."""
        return asked == self.id or asked in equations(self.id)


@dataclass(frozen=True)
class Outcome:
    """What came of a claim."""

    claim: Claim
    comparisons: tuple[Comparison, ...]
    seconds: float
    message: str | None = None  # of the error that the claim raised

    @property
    def passed(self) -> bool:
        return self.message is None and bool(self.comparisons) and all(c.holds for c in self.comparisons)

    @property
    def verdict(self) -> str:
        return "pass" if self.passed else "fail"

    @property
    def tightest(self) -> Comparison | None:
        """The comparison that fails, or comes nearest to it."""
        return max(self.comparisons, key=lambda c: (not c.holds, c.strain), default=None)

    def to_dict(self) -> dict:
        """As `finitewidth claims --json` prints it."""
        shown = self.tightest
        stated, measured, error = (shown.stated, shown.measured, shown.error) if shown else (None, None, None)
        return {
            "id": self.claim.id,
            "source": self.claim.source,
            "statement": f"{self.claim.statement} [{self.claim.how}]",
            "stated": stated,
            "measured": measured,
            "error": error if self.message is None else self.message,
            "verdict": self.verdict,
            "corrected": self.claim.corrected,
        }


def claim(
    id: str, source: str, statement: str, how: str, *, corrected: str | None = None, long: bool = False
):
    """Register the function below as the measure of a claim."""

    def register(measure: Callable[[], Iterable[Comparison]]):
        if id in _REGISTERED:
            raise ValueError(f"two claims are called {id!r}; rename one.")
        _REGISTERED[id] = Claim(id, source, statement, how, measure, corrected, long)
        return measure

    return register


@functools.cache
def registry() -> tuple[Claim, ...]:
    """All claims, in the order of their sources."""
    for name in FILES:
        importlib.import_module(f"finitewidth.comparison.statements.{name}")
    return tuple(_REGISTERED.values())


def equations(id: str) -> set[str]:
    """Every equation that an id names: 10.40-10.42 is 10.40, 10.41 and 10.42."""
    found = re.fullmatch(r"(10|inf)\.(\d+)(?:-(?:\1\.)?(\d+))?(?:\.[a-z-]+)?", id)
    if found is None:
        return set()
    chapter, first, last = found.groups()
    return {f"{chapter}.{number}" for number in range(int(first), int(last or first) + 1)}


def chosen(only: Sequence[str] = (), *, long: bool = False) -> list[Claim]:
    """The claims to run: the quick ones, all of them, or those that `only` names, by id or by equation.

    An equation stands for the quick claims about it, and for the long ones if there are no others.
    """
    if not only:
        return [one for one in registry() if long or not one.long]
    wanted: set[str] = set()
    for asked in (text.strip("() ").replace("∞", "inf") for text in only):
        about = [one for one in registry() if one.covers(asked)]
        quick = [one for one in about if long or not one.long or one.id == asked]
        if not about:
            raise ValueError(
                f"no claim is called {asked!r}; name one that finitewidth claims --list shows, or an "
                "equation such as 10.93 or inf.162."
            )
        wanted |= {one.id for one in quick or about}
    return [one for one in registry() if one.id in wanted]


def run(one: Claim) -> Outcome:
    """Measure a claim; an error that it raises is a failure with its message."""
    start = time.perf_counter()
    try:
        comparisons, message = tuple(one.measure()), None
    except Exception as error:  # noqa: BLE001  (whatever stops a claim, the others are still to be heard)
        comparisons, message = (), f"{type(error).__name__}: {error}"
    return Outcome(one, comparisons, time.perf_counter() - start, message)


def claims(
    only: Sequence[str] = (), *, long: bool = False, store: str | Path | None = None, fresh: bool = False
) -> Iterator[Outcome]:
    """Outcomes one after another. With a `store` (a JSON file) finished ones are kept, and not run again.

    What a store keeps counts only as long as the package's source is the same; `fresh` runs all anew.
    """
    from finitewidth.comparison.claim_store import ClaimStore
    from finitewidth.core.checkpoint import locked

    if store is None:
        yield from map(run, chosen(only, long=long))
        return
    wanted = chosen(only, long=long)
    Path(store).parent.mkdir(parents=True, exist_ok=True)
    with locked(Path(store)):
        kept = ClaimStore(store, fresh=fresh)
        for one in wanted:
            found = kept.get(one)
            if found is None:
                found = run(one)
                kept.put(found)
            yield found
