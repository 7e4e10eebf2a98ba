"""Progress of long work: a bar with rate and time left on a terminal, or calls of a function."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

# True or False: show a bar or not; None: show it on a terminal; a function: called with (done, total)
Progress = bool | Callable[[int, int], None] | None


@runtime_checkable
class Advance(Protocol):
    """Takes the number of units finished since the last call, and the name of the work that follows."""

    def __call__(self, more: int, following: str | None = None) -> None: ...


@contextlib.contextmanager
def progress(what: str, total: int, *, done: int = 0, shown: Progress = None) -> Iterator[Advance]:
    """A function that reports progress of the work called `what`; `done` of `total` units are finished."""
    if callable(shown):
        yield _told(shown, done, total)
    elif sys.stderr.isatty() if shown is None else shown:
        with _bar(what, done, total) as advance:
            yield advance
    else:
        yield lambda more, following=None: None


def _told(listener: Callable[[int, int], None], done: int, total: int) -> Advance:
    def advance(more: int, following: str | None = None) -> None:
        nonlocal done
        done += more
        listener(done, total)

    return advance


@contextlib.contextmanager
def _bar(what: str, done: int, total: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done, rate="")

        def advance(more: int, following: str | None = None) -> None:
            bar.advance(task, more)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:.3g}/s" if speed else "", description=following)

        yield advance
