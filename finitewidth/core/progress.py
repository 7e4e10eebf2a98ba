"""A progress bar with rate and time left, on a terminal and nowhere else, or a function of one's own."""

import contextlib
import sys
from collections.abc import Callable, Iterator

# shown or not (None: on a terminal), or a function that is told how much is done, and of how much
Progress = bool | Callable[[int, int], None] | None


@contextlib.contextmanager
def progress(what: str, total: int, *, done: int = 0, shown: Progress = None) -> Iterator[Callable]:
    """A function to call with how many more are finished; shown on a terminal, or as asked."""
    if callable(shown):
        yield _told(shown, done, total)
        return
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda more: None
        return
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

        def advance(more: int) -> None:
            bar.advance(task, more)
            speed = bar.tasks[0].speed
            bar.update(task, rate=f"{speed:.3g}/s" if speed else "")

        yield advance


def _told(listener: Callable[[int, int], None], done: int, total: int) -> Callable[[int], None]:
    def advance(more: int) -> None:
        nonlocal done
        done += more
        listener(done, total)

    return advance
