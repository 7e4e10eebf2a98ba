"""The command line. Only typer is imported before a command runs, so that --help answers at once."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from finitewidth import __version__
from finitewidth.interface.cli.advice import audit, criticality
from finitewidth.interface.cli.claims import claims
from finitewidth.interface.cli.conventions import BAD_INPUT, complain, complain_of_defect
from finitewidth.interface.cli.ensemble import ensemble
from finitewidth.interface.cli.interrupts import INTERRUPTED, NOTHING
from finitewidth.interface.cli.page import page
from finitewidth.interface.cli.solve import solve

app = typer.Typer(
    name="finitewidth",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"finitewidth {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """The effective theory of deep neural networks, made computable."""


def _any_case(option: str) -> str:
    """Options are read in any case: `--c_w` is `--C_W`."""
    return option.casefold()


# --help shows the commands in this order
for _command in (solve, criticality, audit, ensemble, claims, page):
    app.command(context_settings={"token_normalize_func": _any_case})(_command)


def _with_plain_help(command: Any) -> Any:
    """The command with help that fits any terminal, and shows no type beside flags, which take no value."""
    for one in (command, *getattr(command, "commands", {}).values()):
        one.help = "\n\n".join(_flowing(part) for part in (one.help or "").split("\n\n"))
        for option in (*one.params, one.get_help_option(typer.Context(one))):
            if getattr(option, "is_flag", False):
                option.metavar = ""
    return command


def _flowing(paragraph: str) -> str:
    """A paragraph in one line, which a terminal breaks as it needs; lines of a file stay."""
    return paragraph if "\\[" in paragraph else " ".join(paragraph.split())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # messages of the compiler are not meant for users
    given = sys.argv[1:] if arguments is None else list(arguments)
    command = _with_plain_help(typer.main.get_command(app))
    try:
        status = command.main(args=given or ["--help"], prog_name="finitewidth", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception as error:
        if "--debug" in given:
            raise
        if hasattr(error, "format_message"):  # typer raises such errors for wrong options and arguments
            complain(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
            status = BAD_INPUT
        else:
            status = complain_of_defect(error)
    if status == INTERRUPTED:  # typer turns an interrupt into this status
        complain(f"interrupted; {NOTHING}")
    sys.exit(status or 0)
