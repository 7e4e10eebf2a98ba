"""The report of a run as one HTML file: nothing is fetched, nothing is executed, all text is escaped."""

import re
from collections.abc import Sequence
from html import escape

import finitewidth
from finitewidth.interface.cli.advice_report import describe
from finitewidth.interface.report.tables import ORDERS, agreement_table, number, prediction_table
from finitewidth.interface.runs.main_job import Outcome, agreements, conclusion, rows

_STYLE = """
body { font: 16px/1.5 "DejaVu Sans", system-ui, sans-serif; color: #1a1a1a; background: #ffffff;
  max-width: 54rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 0.3rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 0.5rem; }
p { margin: 0.5rem 0; }
dl { display: grid; grid-template-columns: minmax(5.5rem, max-content) minmax(0, 1fr);
  gap: 0.15rem 1rem; margin: 1rem 0; }
dt { color: #555555; }
dd { margin: 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 0.5rem 0; }
.wide svg { display: block; width: 100%; min-width: 34rem; height: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.7rem; text-align: right; white-space: nowrap; }
td, tbody th { border-bottom: 1px solid #e6e6e6; font-weight: normal; }
thead th { border-bottom: 2px solid #1a1a1a; vertical-align: bottom; white-space: normal; }
.lead { font-size: 1.05rem; }
.note { border-left: 4px solid #D55E00; padding-left: 0.8rem; }
@media (max-width: 32rem) { th, td { padding: 0.3rem 0.35rem; } }
footer { margin-top: 2.5rem; color: #555555; font-size: 0.85rem; }
"""


def html_report(outcome: Outcome, drawing: str | None) -> str:
    """The whole page; `drawing` is the figure as SVG, or None."""
    parts = [
        f"<h1>Trained networks: {escape(outcome.run.name)}</h1>",
        f'<p class="lead">{escape(_lead(outcome))}</p>',
        _facts(outcome),
        *(f'<p class="note">{escape(note)}</p>' for note in outcome.notes),
    ]
    if drawing is not None:
        parts += ["<h2>Figure</h2>", f'<div class="wide">{_inline(drawing)}</div>']
    parts += ["<h2>Mean output on test inputs</h2>", _table(*prediction_table(rows(outcome)))]
    parts += _agreement(outcome)
    parts += ["<h2>What is left out</h2>", f"<p>{escape(conclusion(outcome))}</p>"]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8" />\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1" />\n'
        f"<title>finitewidth: {escape(outcome.run.name)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"{body}\n<footer>finitewidth {escape(finitewidth.__version__)}. Pulls are (theory - ensemble) / "
        "standard error. run.toml beside this file repeats the run; results.zarr has every number."
        "</footer>\n</body>\n</html>\n"
    )


def _lead(outcome: Outcome) -> str:
    found = agreements(outcome)
    if not found:
        return "What theory says of networks after training; no networks were trained beside it."
    said = [f"{ORDERS[name]} {number(size.mean_rms, '.1f')}" for name, size in found.items()]
    return f"Theory against real networks: root mean square pull of the mean, {', '.join(said)}."


def _facts(outcome: Outcome) -> str:
    run, ensemble = outcome.run, outcome.ensemble
    facts = {
        "network": describe(run.network),
        "data": f"{len(run.X_train)} training and {len(run.X_test)} test inputs: {run.source}",
        "training": repr(run.algorithm),
        "theory": "infinite width" if outcome.prediction.order == 0 else "infinite width and order 1/n",
    }
    if ensemble is not None:
        left_out = f", {ensemble.diverged} diverged and left out" if ensemble.diverged else ""
        facts["ensemble"] = f"{ensemble.members} trained networks{left_out}"
    lines = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    return f"<dl>{lines}</dl>"


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """The first cell of a line names it."""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>\n"
        for first, *rest in lines
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'


def _agreement(outcome: Outcome) -> list[str]:
    found = agreements(outcome)
    if not found:
        return []
    return [
        "<h2>Pulls</h2>",
        _table(*agreement_table(found)),
        "<p>If theory were exact, pulls would have a root mean square of about one.</p>",
    ]


def _inline(drawing: str) -> str:
    """The svg element alone: no prologue, no metadata with addresses, no size of its own."""
    start = drawing.index("<svg")
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing[start:], flags=re.S)
    opening, rest = drawing.split(">", 1)
    opening = re.sub(r'\s(?:width|height)="[^"]*"', "", opening)
    words = "Mean and spread of trained networks on test inputs, and how finite width changes them"
    return f'{opening} role="img" aria-label="{words}">{rest}'.strip()
