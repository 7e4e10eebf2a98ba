"""`finitewidth claims`: checks the statements of the sources one by one."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from finitewidth import __version__
from finitewidth.interface.cli.conventions import AsJson, Debug, Quiet, plain_errors, print_json
from finitewidth.interface.cli.interrupts import NOTHING, keeping

if TYPE_CHECKING:
    from finitewidth.comparison.claim import Claim, Outcome

FAILED = 1

All = Annotated[
    bool,
    typer.Option("--all", help="Also check the long claims (up to an hour); a stopped run resumes."),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ID", help="An id, or an equation such as 10.93; may be repeated."),
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the table of the documentation.")]
Listed = Annotated[bool, typer.Option("--list", help="Print the claims without checking them.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Ignore the outcomes of an earlier run with --all.")]
Output = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Directory of the claims that --all has finished.")
]


def claims(
    all_claims: All = False,
    only: Only = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    listed: Listed = False,
    fresh: Fresh = False,
    output: Output = Path("results/claims"),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Check the quantitative statements of the sources against this library and real networks.

    Without options, the quick claims are checked, in less than five minutes. A claim that fails prints FAIL,
    and the command then ends with status 1.

    Example: finitewidth claims --only 10.93 --only inf.162
    """
    with plain_errors(debug):
        from rich.console import Console

        from finitewidth.comparison.claims import chosen
        from finitewidth.core.json_values import json_value
        from finitewidth.interface.report import claims as report

        names = tuple(only or ())
        wanted = chosen(names, long=all_claims)
        if listed and as_json:
            print_json({"claims": [report.entry(claim) for claim in wanted]})
            return
        if listed:
            report.print_list(wanted, Console())
            return
        outcomes = _checked(names, all_claims, output, fresh, wanted, quiet)
        if as_json:
            print_json(json_value({"claims": [outcome.to_dict() for outcome in outcomes]}))
        elif as_markdown:
            print(report.markdown(outcomes))
        else:
            shown = [outcome for outcome in outcomes if not (quiet and outcome.passed)]
            report.print_outcomes(shown, Console(quiet=not shown))
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(FAILED)


def _checked(
    only: Sequence[str], long: bool, output: Path, fresh: bool, wanted: "Sequence[Claim]", quiet: bool
) -> "list[Outcome]":
    """The outcomes of the wanted claims, with a bar on a terminal, or else a line for each finished claim."""
    from finitewidth.comparison import claims as checks
    from finitewidth.core.display.progress import progress

    store = output / f"{__version__}.json" if long else None
    following = [*(claim.id for claim in wanted[1:]), "done"]
    outcomes = []
    with (
        keeping(lambda: _kept_outcomes(store)),
        progress(wanted[0].id, len(wanted), shown=False if quiet else None) as advance,
    ):
        for outcome, next_claim in zip(
            checks.claims(only, long=long, store=store, fresh=fresh), following, strict=True
        ):
            outcomes.append(outcome)
            advance(1, next_claim)
            if not quiet and not sys.stderr.isatty():
                finished = f"{outcome.verdict} {outcome.claim.id} ({outcome.seconds:.1f} s)"
                print(finished, file=sys.stderr, flush=True)
    return outcomes


def _kept_outcomes(store: Path | None) -> str:
    if store is None or not store.exists():
        return NOTHING
    return f"claims that passed are kept in {str(store)!r}; the same command continues behind them."
