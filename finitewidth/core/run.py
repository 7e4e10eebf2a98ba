"""Where a computation runs: its store, its cluster, its progress and its memory, as one value everywhere."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finitewidth import __version__
from finitewidth.core.checkpoint import opened
from finitewidth.core.display.progress import Progress
from finitewidth.core.inputs import as_count, as_number
from finitewidth.core.tasks import Runner


@dataclass(frozen=True)
class Run:
    """Where long work runs; what the theory gives does not depend on it, to the last bit.

    Long work is a list of independent tasks: source layers, batches of networks, panels of a kernel.

    Args:
        store: A path that ends in .zarr, which keeps finished tasks: a run that was killed continues there.
        client: A Dask client, on whose cluster the tasks run.
        progress: True or False for a bar (by default on a terminal), or a function of two numbers, the
            finished tasks and all of them.
        batch_size: Real networks that are trained or sampled at once; chosen from `memory` by default.
        memory: A bound on the memory of a batch of real networks, in bytes.

    ```python
    fw.sample_statistics(net, X, 40, key=0, run=fw.Run(batch_size=20, progress=False))
    ```
    """

    store: str | Path | None = None
    client: Any = None
    progress: Progress = None
    batch_size: int | None = None
    memory: float | None = None

    def __post_init__(self):
        if self.client is not None and not hasattr(self.client, "nthreads"):
            raise ValueError(f"client must be a dask.distributed.Client, got {self.client!r}; make one.")
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise ValueError(
                f"progress must be True, False, None or a function of two numbers, got {self.progress!r}."
            )
        if self.batch_size is not None:
            as_count("batch_size", self.batch_size, lowest=1)
        if self.memory is not None and not as_number(self.memory) > 0:
            raise ValueError(
                f"memory must be a positive number of bytes, got {self.memory!r}; use memory=1e9."
            )
        if self.batch_size is not None and self.memory is not None:
            raise ValueError(
                f"give batch_size={self.batch_size!r} or memory={self.memory!r}, not both; one sets the "
                "other."
            )


QUIET = Run(progress=False)  # in this process, without a bar


def as_run(run: Any, *, batches: bool = False, tasks: bool = True) -> Run:
    """A run as a user gave it; None is this process, without a store.

    What cannot act is refused: `batches` says whether real networks are drawn in batches, `tasks` whether
    there is long work at all.
    """
    if run is None:
        return Run()
    if not isinstance(run, Run):
        raise ValueError(f"run must be an fw.Run(store=, client=, progress=) or None, got {run!r}.")
    if not batches:
        reason = "is for batches of real networks, and none are drawn here"
        _refuse(run, ("batch_size", "memory"), reason)
    if not tasks:
        _refuse(run, ("store", "client", "progress"), "is for long work in tasks, and there is none here")
    return run


def _refuse(run: Run, names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if getattr(run, name) not in (None, False):  # no bar is what there is anyway
            raise ValueError(f"{name} of fw.Run {reason}; remove it.")


@contextlib.contextmanager
def runner(
    run: Run | None, *, kind: str, configuration: Callable[[], dict], batches: bool = False
) -> Iterator[Runner]:
    """A runner of tasks; a store keeps their results as a run of this kind and configuration."""
    run = as_run(run, batches=batches)
    if run.store is None:
        yield Runner(run.client, None, run.progress)
        return
    with opened(run.store, {"version": __version__, **configuration()}, kind=kind) as place:
        yield Runner(run.client, place, run.progress)
