"""Where a computation runs: its store, its cluster and its progress, as one value for every function."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finitewidth import __version__
from finitewidth.core.checkpoint import opened
from finitewidth.core.display.progress import Progress
from finitewidth.core.tasks import Runner


@dataclass(frozen=True)
class Run:
    """Where long work runs; what it computes does not depend on it, to the last bit.

    Long work is a list of independent tasks: source layers, batches of networks, panels of a kernel.

    Args:
        store: A path that ends in .zarr, which keeps finished tasks: a run that was killed continues there.
        client: A Dask client, on whose cluster the tasks run.
        progress: True or False for a bar (by default on a terminal), or a function of two numbers, the
            finished tasks and all of them.

    ```python
    fw.solve(net, X, run=fw.Run(store="theory.zarr", progress=False))
    ```
    """

    store: str | Path | None = None
    client: Any = None
    progress: Progress = None

    def __post_init__(self):
        if self.client is not None and not hasattr(self.client, "nthreads"):
            raise ValueError(f"client must be a dask.distributed.Client, got {self.client!r}; make one.")
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise ValueError(
                f"progress must be True, False, None or a function of two numbers, got {self.progress!r}."
            )


def as_run(run: Run | None) -> Run:
    """A run as a user gave it; None is this process, without a store."""
    if run is None:
        return Run()
    if not isinstance(run, Run):
        raise ValueError(f"run must be an fw.Run(store=, client=, progress=) or None, got {run!r}.")
    return run


@contextlib.contextmanager
def runner(run: Run | None, *, kind: str, configuration: Callable[[], dict]) -> Iterator[Runner]:
    """A runner of tasks; a store keeps their results as a run of this kind and configuration."""
    run = as_run(run)
    if run.store is None:
        yield Runner(run.client, None, run.progress)
        return
    with opened(run.store, {"version": __version__, **configuration()}, kind=kind) as place:
        yield Runner(run.client, place, run.progress)
