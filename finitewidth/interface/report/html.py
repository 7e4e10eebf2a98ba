"""The report of a run as one HTML file, which fetches nothing and executes nothing."""

import functools
import re

import jinja2

import finitewidth
from finitewidth.interface.report.network_line import describe
from finitewidth.interface.report.tables import (
    ORDERS,
    agreement_table,
    data_words,
    ensemble_words,
    method_words,
    number,
    prediction_table,
)
from finitewidth.interface.runs.answers import agreements, conclusion, rows
from finitewidth.interface.runs.main_job import SolvedRun

_DRAWN = "Mean and spread of trained networks on test inputs, and how finite width changes them"


def html_report(solved: SolvedRun, drawing: str | None) -> str:
    """The whole page; `drawing` is the figure as SVG, or None."""
    agreement = agreements(solved)
    return _template().render(
        name=solved.run.name,
        version=finitewidth.__version__,
        lead=_lead(solved),
        facts=_facts(solved),
        notes=solved.notes,
        drawing=None if drawing is None else _inline(drawing),
        predictions=prediction_table(rows(solved)),
        agreement=agreement_table(agreement) if agreement else None,
        conclusion=conclusion(solved),
    )


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("finitewidth.interface.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html")


def _lead(solved: SolvedRun) -> str:
    agreement = agreements(solved)
    if not agreement:
        return "The predictions of theory for trained networks; no networks were trained beside it."
    pulls = [f"{ORDERS[name]} {number(size.mean_rms, '.1f')}" for name, size in agreement.items()]
    return f"Theory against real networks: root mean square pull of the mean, {', '.join(pulls)}."


def _facts(solved: SolvedRun) -> dict[str, str]:
    orders = "infinite width" if solved.prediction.order == 0 else "infinite width and order 1/n"
    facts = {
        "network": describe(solved.run.network),
        "data": data_words(solved.run),
        "training": repr(solved.run.algorithm),
        "theory": orders,
    }
    if solved.prediction.order == 1:
        facts["order 1/n"] = f"{method_words(solved.prediction)}; {solved.prediction.verdict}"
    return facts if solved.ensemble is None else {**facts, "ensemble": ensemble_words(solved.ensemble)}


def _inline(drawing: str) -> str:
    """The svg element alone: no prologue, no metadata with addresses, no size of its own."""
    start = drawing.index("<svg")
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing[start:], flags=re.S)
    opening, rest = drawing.split(">", 1)
    opening = re.sub(r'\s(?:width|height)="[^"]*"', "", opening)
    return f'{opening} role="img" aria-label="{_DRAWN}">{rest}'.strip()
