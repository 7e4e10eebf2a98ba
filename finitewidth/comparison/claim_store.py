"""Finished claims in a JSON file, so that a long run can be stopped and resumed."""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

from finitewidth.comparison.claim import Claim, Outcome
from finitewidth.comparison.evidence import Comparison
from finitewidth.core.storage.files import seal

_PACKAGE = Path(__file__).parents[1]
_KIND = "finitewidth claims"


def source_digest() -> str:
    """A digest of all source files that compute; outcomes of other code do not count."""
    digest = hashlib.sha256()
    files = (file for file in _PACKAGE.rglob("*.py") if "interface" not in file.relative_to(_PACKAGE).parts)
    for file in sorted(files):
        digest.update(str(file.relative_to(_PACKAGE)).encode() + file.read_bytes())
    return digest.hexdigest()


class ClaimStore:
    """Outcomes of claims that passed, by id; the file is written whole after each."""

    def __init__(self, path: str | Path, *, fresh: bool = False):
        self.path, self.digest = Path(path), source_digest()
        self.outcomes: dict[str, dict] = {} if fresh else self._read()

    def _read(self) -> dict[str, dict]:
        if not self.path.exists():
            return {}
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            if document["kind"] != _KIND or document["seal"] != seal({}, document["outcomes"]):
                raise KeyError
            return dict(document["outcomes"]) if document["source"] == self.digest else {}
        except (ValueError, KeyError, TypeError):
            raise ValueError(
                f"{str(self.path)!r} is not a store of claims, or is damaged; remove it, or name another."
            ) from None

    def get(self, claim: Claim) -> Outcome | None:
        """The outcome of an earlier run, or None; a claim that failed is measured again."""
        kept = self.outcomes.get(claim.id)
        if kept is None:
            return None
        comparisons = tuple(Comparison(**one) for one in kept["comparisons"])
        return Outcome(claim, comparisons, kept["seconds"])

    def put(self, outcome: Outcome) -> None:
        """Keep an outcome that passed, and write the file."""
        if outcome.passed:
            comparisons = [asdict(one) for one in outcome.comparisons]
            self.outcomes[outcome.claim.id] = {"comparisons": comparisons, "seconds": outcome.seconds}
        document = {
            "kind": _KIND,
            "source": self.digest,
            "seal": seal({}, self.outcomes),
            "outcomes": self.outcomes,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            draft.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)
