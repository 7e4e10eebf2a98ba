"""`finitewidth claims`: the statements of the sources, checked one by one."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from finitewidth import __version__
from finitewidth.interface.cli.commands import AsJson, Debug, plain_errors, print_json

if TYPE_CHECKING:
    from finitewidth.comparison.claim import Claim, Outcome

FAILED = 1

All = Annotated[
    bool, typer.Option("--all", help="Also the long ones (up to an hour); resumes where it stopped.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="ID", help="An id or an equation such as 10.93; repeatable."),
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the table of the documentation.")]
Listed = Annotated[bool, typer.Option("--list", help="Print the claims without running them.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Forget what an earlier run with --all found.")]
Output = Annotated[Path, typer.Option("--output", metavar="DIR", help="Where --all keeps finished claims.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("claims")(command)


def command(
    all_claims: All = False,
    only: Only = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    listed: Listed = False,
    fresh: Fresh = False,
    output: Output = Path("results/claims"),
    debug: Debug = False,
) -> None:
    """Check the quantitative statements of the sources against what this library and real networks say.

    Without options the quick ones, in less than five minutes. A claim that fails prints FAIL, and the command
    ends with status 1.

    Example: finitewidth claims --only 10.93 --only inf.162
    """
    with plain_errors(debug):
        passed = _claims(all_claims, tuple(only or ()), as_json, as_markdown, listed, fresh, output)
    if not passed:
        raise typer.Exit(FAILED)


def _claims(
    all_claims: bool,
    only: Sequence[str],
    as_json: bool,
    as_markdown: bool,
    listed: bool,
    fresh: bool,
    output: Path,
) -> bool:
    from rich.console import Console

    from finitewidth.comparison.claims import chosen, claims
    from finitewidth.interface.cli import claims_report

    picked = chosen(only, long=all_claims)
    if listed:
        claims_report.print_list(picked, Console())
        return True
    store = output / f"{__version__}.json" if all_claims else None
    outcomes = []
    with _progress(picked) as advance:
        for outcome in claims(only, long=all_claims, store=store, fresh=fresh):
            outcomes.append(outcome)
            advance(outcome)
    if as_json:
        document = {"claims": [outcome.to_dict() for outcome in outcomes]}
        print_json(claims_report.finite(document))
    elif as_markdown:
        print(claims_report.markdown(outcomes))
    else:
        claims_report.print_outcomes(outcomes, Console())
    return all(outcome.passed for outcome in outcomes)


@contextmanager
def _progress(picked: "Sequence[Claim]") -> Iterator:
    """A bar on a terminal, else one line for each finished claim; both on stderr."""
    if not sys.stderr.isatty():

        def tell(outcome: "Outcome") -> None:
            print(
                f"{outcome.verdict} {outcome.claim.id} ({outcome.seconds:.1f} s)", file=sys.stderr, flush=True
            )

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        names = [claim.id for claim in picked]
        task = bar.add_task(names[0], total=len(names))

        def advance(_: "Outcome") -> None:
            bar.advance(task)
            done = int(bar.tasks[0].completed)
            bar.update(task, description=names[done] if done < len(names) else "done")

        yield advance
