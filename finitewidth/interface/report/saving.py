"""Results of `finitewidth solve` on disk: arrays, documents, figures, and a run file that repeats the run."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from finitewidth.interface.report import answer_figure, kernel_figure
from finitewidth.interface.report.dataset import data_arrays, save_dataset
from finitewidth.interface.report.documents import initialization_document, solve_document
from finitewidth.interface.report.html import html_report
from finitewidth.interface.runs.layer_summary import Summary
from finitewidth.interface.runs.main_job import SolvedRun
from finitewidth.interface.runs.output_directory import replaced_directory


def save_statistics(summary: Summary, theory, target: Path, *, figure: bool) -> list[str]:
    """Write statistics at initialization into the directory `target`, and return the names of the files."""
    # the inputs are kept as well, so that the run file beside them repeats the run anywhere
    again = {"network": summary.run.network.to_dict(), "data": {"path": "inputs.npy"}}
    with replaced_directory(target) as draft:
        np.save(draft / "inputs.npy", theory.X, allow_pickle=False)
        theory.save(draft / "theory.zarr")
        _write_texts(draft, again, initialization_document(summary))
        if figure:
            kernel_figure.save_kernels(summary, draft)
        return _names(draft)


def save_solved(solved: SolvedRun, target: Path, *, figure: bool) -> list[str]:
    """Write prediction, ensemble and pulls into the directory `target`, and return the names of the files."""
    arrays = data_arrays(solved.run)
    again = {
        "network": solved.run.network.to_dict(),
        "data": {name: f"data.npz:{name}" for name in arrays},
        **solved.run.tables,
    }
    with replaced_directory(target) as draft:
        np.savez(draft / "data.npz", allow_pickle=False, **arrays)
        save_dataset(solved, draft / "results.zarr")
        _write_texts(draft, again, solve_document(solved))
        drawing = None
        if figure:
            svg = draft / "figure.svg"
            answer_figure.save_answers(solved, svg, draft / "figure.png")
            drawing = svg.read_text(encoding="utf-8")
        (draft / "report.html").write_text(html_report(solved, drawing), encoding="utf-8")
        return _names(draft)


def _write_texts(draft: Path, again: dict[str, Any], document: dict[str, Any]) -> None:
    (draft / "run.toml").write_text(tomli_w.dumps(again), encoding="utf-8")
    text = json.dumps(document, indent=2, allow_nan=False)
    (draft / "summary.json").write_text(text + "\n", encoding="utf-8")


def _names(draft: Path) -> list[str]:
    return sorted(path.name for path in draft.iterdir())
