"""Does every claim detect errors in its subject? Wrong coefficients, and the claims that must fail with them.

    python -m benchmarks.robustness.claims_faults             everything, about half an hour on two cores
    python -m benchmarks.robustness.claims_faults "source of V" "projector Z_A"

The table is printed; a full run also writes it to benchmarks/robustness/results/claims_faults.md.
"""

import sys
import time
from pathlib import Path

from helpers.claim_faults import FACTOR, FAULTS, Fault

from benchmarks.provenance import stamp
from finitewidth.comparison import claims


def row(fault: Fault) -> tuple[str, bool]:
    by_id = {one.id: one for one in claims.registry()}
    cells, all_seen = [], True
    with fault.inject():
        for id in fault.claims:
            outcome = claims.run(by_id[id])
            shown = outcome.tightest
            seen = not outcome.passed and outcome.message is None  # an error does not count as a failure
            all_seen &= seen
            how = outcome.message or (
                f"{shown.what}: {shown.strain:.3g} times the allowance" if shown else ""
            )
            verdict = "fails" if seen else "**RAISES AN ERROR**" if outcome.message else "**DOES NOT FAIL**"
            cells.append(f"`{id}` {verdict} ({how})")
    return f"| {fault.name} | {'<br>'.join(cells)} |", all_seen


def main() -> None:
    asked = sys.argv[1:]
    rows, missed, start = [], [], time.perf_counter()
    for name in asked or FAULTS:
        text, seen = row(FAULTS[name])
        rows.append(text)
        if not seen:
            missed.append(name)
        print(text, flush=True)
    page = [
        "# Claims against a theory that is wrong on purpose",
        f"Written by `python -m benchmarks.robustness.claims_faults` on {stamp()}, in "
        f"{(time.perf_counter() - start) / 60:.0f} minutes. Coefficients are {FACTOR:g} times their right "
        f"values, or have the opposite sign where the table says so; {len(rows)} faults, of which "
        f"{len(rows) - len(missed)} make every claim about them fail.",
        "\n".join(["| fault | claims about it |", "|---|---|", *rows]),
    ]
    if not asked:
        (Path(__file__).parent / "results" / "claims_faults.md").write_text(
            "\n\n".join(page) + "\n", encoding="utf-8"
        )
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
