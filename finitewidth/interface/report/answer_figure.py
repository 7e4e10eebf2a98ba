"""The figure of `finitewidth solve`: answers of trained networks, predicted at both orders and measured."""

from dataclasses import fields
from pathlib import Path

import numpy as np

from finitewidth.interface.figures.answers import Answers, draw_answers, judged
from finitewidth.interface.figures.saving import house_style, write_figure
from finitewidth.interface.runs.answers import Row, rows
from finitewidth.interface.runs.main_job import SolvedRun

_NAMES = ("test", "output", "label")  # what names a row; its other fields are numbers


def save_answers(solved: SolvedRun, *paths: Path) -> None:
    """Draw mean and spread at every test input and the change at finite width, as the types of `paths`."""
    with house_style():
        figure = draw_answers(_answers(solved))
        for path in paths:
            write_figure(figure, path)


def _answers(solved: SolvedRun) -> Answers:
    shown = rows(solved)
    columns = {one.name: _column(shown, one.name) for one in fields(Row) if one.name not in _NAMES}
    several = any(row.output > 1 for row in shown)
    names = [f"{row.test}, {row.output}" if several else str(row.test) for row in shown]
    axis = "test input, output" if several else "test input"
    if any(row.label for row in shown):
        names = [f"{name}\n({row.label})" for name, row in zip(names, shown, strict=True)]
        axis = f"{axis} (digit)"
    return Answers(columns, names, axis, *judged(solved.prediction))


def _column(shown: list[Row], name: str) -> np.ndarray:
    """The numbers of one column; NaN, which is not drawn, for a missing number."""
    return np.array([np.nan if getattr(row, name) is None else getattr(row, name) for row in shown])
