"""The run of `finitewidth solve` and its figure: one order of 1/width is the difference.

    python examples/main_job.py          # about half a minute on two cores; writes main_job.png

Networks learn handwritten ones and sevens. Theory says what they answer on other images, at infinite width
and with the correction of order 1/n; thousands of real networks, trained beside it, say who is right.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from finitewidth.interface.report import answer_figure, tables
from finitewidth.interface.runs import answers, embedded, main_job


def solve(members: int) -> main_job.SolvedRun:
    """The run of the command, with as many networks as asked for."""
    run = embedded.embedded(members)
    prediction = main_job.predict_run(run)
    with tempfile.TemporaryDirectory() as scratch:
        ensemble = main_job.train_run(run, Path(scratch) / "ensemble.zarr")
    return main_job.compared_run(run, prediction, ensemble, [])


def markdown(solved: main_job.SolvedRun) -> str:
    """The table of pulls, as the README shows it."""
    heads, lines = tables.prediction_table(answers.rows(solved))
    words = [head.replace("\n", " ") for head in heads]
    rule = ["---:"] * len(heads)
    return "\n".join("| " + " | ".join(line) + " |" for line in (words, rule, *lines))


def main(members: int, path: Path) -> main_job.SolvedRun:
    """Solve, print and draw."""
    solved = solve(members)
    tables.print_solved(solved, Console())
    print(f"\n{markdown(solved)}\n")
    answer_figure.save_answers(solved, path)
    return solved


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--members", type=int, default=embedded.MEMBERS)
    parser.add_argument("--output", type=Path, default=Path("main_job.png"))
    options = parser.parse_args()
    main(options.members, options.output)
