"""Claims and their outcomes as tables for the terminal and in Markdown; nothing is computed here."""

from collections.abc import Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from finitewidth.comparison.claim import Claim, Outcome

_CHAPTERS = {
    "10.": "PDLT chapter 10",
    "inf": "PDLT chapter infinity",
    "bay": "PDLT chapter 6 and appendix A, Bayesian inference",
}


def entry(claim: Claim) -> dict:
    """What `--list --json` prints of a claim."""
    names = ("id", "source", "statement", "how", "corrected", "long")
    return {name: getattr(claim, name) for name in names}


def print_list(claims: Sequence[Claim], console: Console) -> None:
    """The claims with their statements, before any is checked: an id, and below it what it says."""
    for claim in claims:
        long = " (long)" if claim.long else ""
        console.print(f"[bold]{claim.id}[/bold]", highlight=False)
        about = f"{escape(claim.statement)} [dim]{escape(claim.how)}{long}[/dim]"
        console.print(Padding(about, (0, 0, 0, 4)), highlight=False)


def print_outcomes(outcomes: Sequence[Outcome], console: Console) -> None:
    """One row for each claim; below the table, every failed comparison of the claims that failed."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("id", no_wrap=True)
    table.add_column("statement")
    table.add_column("stated", justify="right", no_wrap=True)
    table.add_column("measured ± error", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for outcome in outcomes:
        claim, (stated, measured) = outcome.claim, numbers(outcome)
        statement = f"{escape(claim.statement)} [dim]{escape(claim.how)}[/dim]"
        if claim.corrected:
            statement += f" [italic]Corrected: {escape(claim.corrected)}.[/italic]"
        verdict = "[green]pass[/green]" if outcome.passed else "[bold red]FAIL[/bold red]"
        table.add_row(claim.id, statement, stated, measured, verdict)
    console.print(table)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        _print_failure(outcome, console)
    seconds = sum(outcome.seconds for outcome in outcomes)
    console.print(
        f"{len(outcomes) - len(failed)} of {len(outcomes)} claims hold ({seconds:.0f} s). Each row shows the "
        "comparison that comes closest to failing. Its error is a standard error if networks were sampled "
        "(a difference of four is allowed), and the accuracy stated beforehand otherwise.",
        highlight=False,
    )


def _print_failure(outcome: Outcome, console: Console) -> None:
    console.print(f"[bold red]FAIL[/bold red] {outcome.claim.id}", highlight=False)
    if outcome.message is not None:
        console.print(f"  {escape(outcome.message)}", highlight=False)
    for one in outcome.comparisons:
        if not one.holds:
            relation = "should differ from" if one.different else "stated"
            measured = f"measured {one.measured:.6g} ± {one.error:.2g}"
            text = f"  {one.what}: {measured}, {relation} {one.stated:.6g}"
            console.print(escape(text), highlight=False)


def numbers(outcome: Outcome) -> tuple[str, str]:
    """The stated number, and the measured one with its error."""
    shown = outcome.tightest
    if shown is None:
        return "", "raised an error"
    stated = f"{'not ' if shown.different else ''}{shown.stated:.6g}"
    return stated, f"{shown.measured:.6g} ± {shown.error:.2g}"


def markdown(outcomes: Sequence[Outcome]) -> str:
    """One table in Markdown for each source."""
    parts = []
    for title, group in groupby(outcomes, key=_title):
        rows = [_row(outcome) for outcome in group]
        head = "| claim | statement and how it is measured | stated | measured ± error | verdict |"
        parts.append(f"### {title}\n\n" + "\n".join([head, "|---" * 5 + "|", *rows]))
    return "\n\n".join(parts)


def _title(outcome: Outcome) -> str:
    return _CHAPTERS.get(outcome.claim.id[:3], outcome.claim.source)


def _row(outcome: Outcome) -> str:
    claim, (stated, measured) = outcome.claim, numbers(outcome)
    shown = outcome.tightest
    statement = f"{claim.statement} *{claim.how[0].upper()}{claim.how[1:]}.*"
    if claim.corrected:
        statement += f" **Corrected:** {claim.corrected}."
    if shown is not None:
        statement += f" Shown: {shown.what}."
    verdict = "pass" if outcome.passed else "**FAIL**"
    cells = [f"`{claim.id}`", statement, stated, measured, verdict]
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(cell: str) -> str:
    """Text of a cell: angle brackets around averages are not tags, and bars do not separate columns."""
    return cell.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")
