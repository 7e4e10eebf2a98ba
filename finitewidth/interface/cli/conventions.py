"""Conventions of all commands: options, messages and exit statuses. Only typer is imported here."""

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

DEFECT = 1
BAD_INPUT = 2

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Output = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Directory of the results; the default is results/<name of the run>."),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, tables or notes; errors are still shown.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error arose.")]


@contextlib.contextmanager
def plain_errors(debug: bool) -> Iterator[None]:
    """Turn errors into one sentence and a status, 2 for bad input and 1 for a defect, unless `debug`."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except OSError as error:
        if debug:
            raise
        refuse(f"cannot read or write {error.filename or 'the output'}: {error.strerror or error}.")
    except ValueError as error:
        if debug:
            raise
        refuse(str(error))
    except Exception as error:
        if debug:
            raise
        raise typer.Exit(complain_of_defect(error)) from None


def complain_of_defect(error: Exception) -> int:
    """Print one sentence about an unforeseen error, and return its status."""
    complain(
        f"this is a defect of finitewidth ({type(error).__name__}: {error}); "
        "run the same command with --debug and report the traceback."
    )
    return DEFECT


def refuse(message: str) -> NoReturn:
    """Print one sentence on stderr and exit with the status of bad input."""
    complain(message)
    raise typer.Exit(BAD_INPUT)


def complain(message: str) -> None:
    """Print one line on stderr."""
    print(f"finitewidth: {' '.join(message.split())}", file=sys.stderr)


def print_json(document: dict[str, Any]) -> None:
    """Print one document on stdout."""
    print(json.dumps(document, indent=2, allow_nan=False))


@contextlib.contextmanager
def noted_warnings(note: Callable[[str], object]) -> Iterator[None]:
    """Pass the text of warnings that are meant for the user to `note`."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: note(str(message))
        warnings.simplefilter("always", UserWarning)
        yield
