"""The figure of `finitewidth solve`: answers of trained networks, predicted at both orders and measured."""

from pathlib import Path

import numpy as np

from finitewidth.interface.figures.answers import Answers, draw_answers, judged
from finitewidth.interface.figures.saving import house_style, write_figure
from finitewidth.interface.runs.answers import columns, rows
from finitewidth.interface.runs.main_job import SolvedRun


def save_answers(solved: SolvedRun, *paths: Path) -> None:
    """Draw mean and spread at every test input and the change at finite width, as the types of `paths`."""
    with house_style():
        figure = draw_answers(_answers(solved))
        for path in paths:
            write_figure(figure, path)


def _answers(solved: SolvedRun) -> Answers:
    shown = rows(solved)
    finite = {name: np.where(np.isfinite(one), one, np.nan) for name, one in columns(solved).items()}
    numbers = {name: column.ravel() for name, column in finite.items()}  # what is infinite is not drawn
    several = any(row.output > 1 for row in shown)
    names = [f"{row.test}, {row.output}" if several else str(row.test) for row in shown]
    axis = "test input, output" if several else "test input"
    if any(row.label for row in shown):
        names = [f"{name}\n({row.label})" for name, row in zip(names, shown, strict=True)]
        axis = f"{axis} (digit)"
    return Answers(numbers, names, axis, *judged(solved.prediction))
