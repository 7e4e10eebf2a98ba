"""The run of `finitewidth solve` and its figure: one order of 1/width is the difference.

    python examples/main_job.py          # about half a minute on two cores; writes main_job.png

Networks learn handwritten ones and sevens. Theory says what they answer on other images, at infinite width
and with the correction of order 1/n; thousands of real networks, trained beside it, say who is right.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from finitewidth.interface.figures import main_figure
from finitewidth.interface.report import tables as report
from finitewidth.interface.runs import embedded, main_job


def solve(members: int) -> main_job.Outcome:
    """What the command does, with as many networks as asked for."""
    run = embedded.embedded(members)
    prediction = main_job.predict_run(run)
    with tempfile.TemporaryDirectory() as scratch:
        ensemble = main_job.train_run(run, Path(scratch) / "ensemble.zarr")
    return main_job.outcome_of(run, prediction, ensemble, [])


def markdown(outcome: main_job.Outcome) -> str:
    """The table of pulls, as the README shows it."""
    heads, lines = report.prediction_table(main_job.rows(outcome))
    words = [head.replace("\n", " ") for head in heads]
    rule = ["---:"] * len(heads)
    return "\n".join("| " + " | ".join(line) + " |" for line in (words, rule, *lines))


def main(members: int, path: Path) -> main_job.Outcome:
    """Solve, print and draw."""
    outcome = solve(members)
    report.print_outcome(outcome, Console())
    print(f"\n{markdown(outcome)}\n")
    main_figure.save_main_figure(main_job.rows(outcome), path)
    return outcome


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--members", type=int, default=embedded.MEMBERS)
    parser.add_argument("--output", type=Path, default=Path("main_job.png"))
    options = parser.parse_args()
    main(options.members, options.output)
