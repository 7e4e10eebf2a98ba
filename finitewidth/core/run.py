"""Where a computation runs: its store, its cluster and its progress, as one value for every function."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from finitewidth import __version__
from finitewidth.core.checkpoint import opened
from finitewidth.core.display.progress import Progress
from finitewidth.core.inputs import as_count, as_number
from finitewidth.core.tasks import Runner

NETWORKS = ("batch_size", "memory")  # what acts where real networks are drawn, and nowhere else


@dataclass(frozen=True)
class Run:
    """Where and in which portions long work runs.

    Long work is a list of independent tasks: source layers, batches of networks, panels of a kernel. Results
    do not depend on where tasks run, to the last bit.

    Args:
        store: A path that ends in .zarr, which keeps finished tasks: a run that was killed continues there.
        client: A Dask client, on whose cluster the tasks run.
        progress: True or False for a bar (by default on a terminal), or a function of two numbers, the
            finished tasks and all of them.
        batch_size: Real networks of one task; as many as `memory` holds by default.
        memory: Bytes that a batch of real networks may take, 1e9 by default.

    ```python
    fw.solve(net, X, run=fw.Run(progress=False))
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

    @property
    def given(self) -> dict[str, Any]:
        """What was asked for; no bar is what there is where nothing shows one."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        asked = {name: value for name, value in values.items() if value is not None}
        return {name: value for name, value in asked.items() if (name, value) != ("progress", False)}


QUIET = Run(progress=False)  # in this process, without a bar


def as_run(run: Any) -> Run:
    """A run as a user gave it; None is this process, without a store."""
    if run is None:
        return Run()
    if not isinstance(run, Run):
        raise ValueError(f"run must be an fw.Run(store=, client=, progress=, ...) or None, got {run!r}.")
    return run


def only(run: Run | None, acting: Collection[str], where: str, remedy: str = "leave it out") -> Run:
    """The run, of which nothing but the named parts acts `where` it is asked for; others are refused."""
    run = as_run(run)
    for name, value in run.given.items():
        if name not in acting:
            raise ValueError(f"run has {name}={value!r}, which does nothing {where}; {remedy}.")
    return run


@contextlib.contextmanager
def runner(
    run: Run | None, *, kind: str, configuration: Callable[[], dict], networks: bool = False
) -> Iterator[Runner]:
    """A runner of tasks; a store keeps their results as a run of this kind and configuration.

    `networks` says whether tasks are batches of real networks, whose size the run may choose.
    """
    everywhere = ("store", "client", "progress")
    run = only(run, everywhere + NETWORKS * networks, "where no real networks are drawn")
    if run.store is None:
        yield Runner(run.client, None, run.progress)
        return
    with opened(run.store, {"version": __version__, **configuration()}, kind=kind) as place:
        yield Runner(run.client, place, run.progress)
