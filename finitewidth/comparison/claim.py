"""A claim (a statement of a source and the function that measures it) and its outcome (the numbers).

Files of statements register their claims here; `claims` collects and runs them.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from finitewidth.comparison.evidence import Comparison
from finitewidth.core.display.records import shown

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
        """Whether `asked` is the id of this claim, or an equation in its range."""
        return asked == self.id or asked in equations(self.id)


@shown("claim", "tightest", "seconds", "message")
@dataclass(frozen=True)
class Outcome:
    """The result of measuring one claim: its comparisons, or the error that stopped it."""

    claim: Claim
    comparisons: tuple[Comparison, ...]
    seconds: float
    message: str | None = None  # of the error that the claim raised

    @property
    def passed(self) -> bool:
        """Whether there are comparisons and all of them hold."""
        return self.message is None and bool(self.comparisons) and all(c.holds for c in self.comparisons)

    @property
    def verdict(self) -> str:
        """The word "pass" or "fail"."""
        return "pass" if self.passed else "fail"

    @property
    def tightest(self) -> Comparison | None:
        """The comparison that fails, or the one that comes nearest to failing."""
        return max(self.comparisons, key=lambda c: (not c.holds, c.strain), default=None)

    def to_dict(self) -> dict:
        """The entry that `finitewidth claims --json` prints."""
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
    """Register the decorated function as the measure of a claim."""

    def register(measure: Callable[[], Iterable[Comparison]]):
        if id in _REGISTERED:
            raise ValueError(f"two claims have the id {id!r}; rename one.")
        _REGISTERED[id] = Claim(id, source, statement, how, measure, corrected, long)
        return measure

    return register


def registered() -> tuple[Claim, ...]:
    """The claims of all files of statements that have been imported, in that order."""
    return tuple(_REGISTERED.values())


def equations(id: str) -> set[str]:
    """Every equation that an id names: 10.40-10.42 stands for 10.40, 10.41 and 10.42."""
    parts = re.fullmatch(r"(10|inf)\.(\d+)(?:-(?:\1\.)?(\d+))?(?:\.[a-z-]+)?", id)
    if parts is None:
        return set()
    chapter, first, last = parts.groups()
    return {f"{chapter}.{number}" for number in range(int(first), int(last or first) + 1)}
