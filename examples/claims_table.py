"""Write the table of docs/claims.md: every claim with its measured numbers, the date and the commit.

python examples/claims_table.py           # the quick claims
python examples/claims_table.py --all     # the long ones too

Finished claims are kept in results/claims until the source changes; remove that folder to measure again.
"""

import datetime
import subprocess
import sys
from pathlib import Path

import finitewidth as fw
from finitewidth.interface.report.claims import markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"
BEGIN, END = "<!-- table: examples/claims_table.py -->", "<!-- end of table -->"


def commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def measured(everything: bool) -> str:
    store = ROOT / "results" / "claims" / f"{fw.__version__}.json"
    outcomes = []
    for outcome in fw.claims(long=everything, store=store):
        print(outcome.verdict, outcome.claim.id, f"{outcome.seconds:.1f} s", flush=True)
        outcomes.append(outcome)
    held, seconds = sum(one.passed for one in outcomes), sum(one.seconds for one in outcomes)
    summary = (
        f"{datetime.date.today()}, commit {commit()}, version {fw.__version__}: {held} of {len(outcomes)} "
        f"claims hold; {seconds / 60:.1f} minutes."
    )
    return f"{summary}\n\n{markdown(outcomes)}"


def main() -> None:
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    table = measured("--all" in sys.argv)
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
