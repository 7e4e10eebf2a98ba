"""Lists of independent tasks: the workers that compute them, their progress, and their results on disk.

A task is known by its number. Every worker computes it with the same program on one device and with
single-threaded matrix products, so machines of one kind give the same bits. Results are handed on in order.
Only a few tasks are in progress at a time, which bounds memory.
"""

import contextlib
import itertools
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from finitewidth import __version__
from finitewidth.core.checkpoint import Store, finished_tasks, opened, read_task, write_task
from finitewidth.core.cores import SingleThreadedProducts
from finitewidth.core.display.progress import Progress, progress
from finitewidth.core.precision import keep_double_precision

Work = Callable[[int], Any]
Arrays = dict[str, np.ndarray]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Runner:
    """Runs lists of tasks in this process or on a Dask `client`, and keeps their results in a `store`."""

    client: Any = None
    store: Store | None = None
    progress: Progress = None
    prefix: str = ""  # of the names of lists of tasks, where one run has several lists of a kind

    def __post_init__(self):
        if self.client is not None and not hasattr(self.client, "nthreads"):
            raise ValueError(f"client must be a dask.distributed.Client, got {self.client!r}; make one.")
        if not (self.progress is None or isinstance(self.progress, bool) or callable(self.progress)):
            raise ValueError(
                f"progress must be True, False, None or a function of two numbers, got {self.progress!r}."
            )

    def results(
        self,
        work: Callable[[int], Result],
        count: int,
        *,
        name: str,
        what: str,
        at_once: int = 1,
        size: Callable[[int], int] = lambda task: 1,
        to_arrays: Callable[[Result], Arrays] = lambda result: result,  # type: ignore[assignment]
        from_arrays: Callable[[Arrays], Result] = lambda arrays: arrays,  # type: ignore[assignment]
        aside: Callable[[Store, int, Result], None] = lambda store, task, result: None,
        seen: Callable[[int, Result], None] = lambda task, result: None,
    ) -> Iterator[Result]:
        """Yield work(0), work(1), ... in order; tasks that the store has under `name` are not computed again.

        The progress bar shows `what` and counts `size(task)` for every finished task. This process works on
        `at_once` tasks at a time. A store holds a result as the named arrays of `to_arrays`, from which
        `from_arrays` makes it again. `aside` may take parts out of a result and store them elsewhere.
        `seen` is told of each task that was computed now, and ends the work by an exception.
        """
        name = self.prefix + name
        done = finished_tasks(self.store, name) if self.store is not None else set()
        missing = [task for task in range(count) if task not in done]
        total, before = sum(map(size, range(count))), sum(map(size, done))
        with progress(what, total, done=before, shown=self.progress) as advance:

            def kept() -> Iterator[tuple[int, Any]]:
                for task, result in in_any_order(work, missing, self.client, at_once=at_once):
                    if self.store is not None:
                        aside(self.store, task, result)
                        write_task(self.store, name, task, count, to_arrays(result))
                    seen(task, result)
                    if self.store is not None:
                        result = None  # read again when its turn comes: memory does not grow with the tasks
                    advance(size(task))
                    yield task, result
                    del result  # memory of a task is free before the next one is computed

            if self.store is None:
                for _, result in in_order(kept(), missing):
                    yield result
                    del result
            else:
                for _ in kept():
                    pass
                yield from (from_arrays(read_task(self.store, name, task)) for task in range(count))


HERE = Runner(progress=False)  # one task after the other in this process, without a progress bar


@contextlib.contextmanager
def runner(
    client: Any,
    store: str | Path | None,
    progress: Progress,
    *,
    kind: str,
    configuration: Callable[[], dict],
) -> Iterator[Runner]:
    """A runner; with a path `store`, its results are kept there as a run of this kind and configuration."""
    if store is None:
        yield Runner(client, None, progress)
        return
    with opened(store, {"version": __version__, **configuration()}, kind=kind) as place:
        yield Runner(client, place, progress)


# --- workers ------------------------------------------------------------------------------------------


def in_any_order(
    work: Work, tasks: Sequence[int], client: Any = None, *, at_once: int = 1
) -> Iterator[tuple[int, Any]]:
    """Yield (task, work(task)) for every task as it is finished.

    Without a client, each of several JAX devices works on one task, and a CPU works on `at_once` tasks. Use 1
    for tasks that need all the memory or all the cores of the machine.
    """
    devices = jax.local_devices()
    if client is not None:
        yield from _on_cluster(work, tasks, client)
    elif at_once == 1 or (len(devices) == 1 and devices[0].platform != "cpu"):
        yield from (_numbered(work, task) for task in tasks)
    elif len(devices) > 1:
        yield from _on_devices(work, tasks, devices)
    else:
        yield from _on_devices(work, tasks[:1], devices)  # the first one compiles, for the others as well
        yield from _on_devices(work, tasks[1:], devices * at_once)


def in_order(results: Iterator[tuple[int, Any]], tasks: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """The same results in the order of `tasks`; results that come early are held back."""
    early: dict[int, Any] = {}
    expected = iter(tasks)
    wanted = next(expected, None)
    for task, result in results:
        early[task] = result
        del result
        while wanted is not None and wanted in early:
            yield wanted, early.pop(wanted)
            wanted = next(expected, None)


def _numbered(work: Work, task: int) -> tuple[int, Any]:
    with SingleThreadedProducts():
        return task, work(task)


def _on_devices(work: Work, tasks: Sequence[int], devices: list) -> Iterator[tuple[int, Any]]:
    free: queue.SimpleQueue = queue.SimpleQueue()
    for device in devices:
        free.put(device)

    def on_a_device(task):
        device = free.get()
        try:
            with jax.default_device(device):
                return _numbered(work, task)
        finally:
            free.put(device)

    with ThreadPoolExecutor(len(devices), initializer=keep_double_precision) as threads:
        waiting, running = iter(tasks), set()
        try:
            while True:
                for task in waiting:
                    running.add(threads.submit(on_a_device, task))
                    if len(running) >= 2 * len(devices):
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            for future in running:
                future.cancel()


# --- on a cluster -------------------------------------------------------------------------------------


def _on_cluster(work: Work, tasks: Sequence[int], client: Any) -> Iterator[tuple[int, Any]]:
    if not tasks:
        return
    slots = _slots(client)
    from dask.distributed import as_completed

    shared = _shared(work, client)

    def submit(task):
        return client.submit(_numbered_or_refused, shared, task, pure=False, retries=3)

    waiting = iter(tasks)
    first = [submit(task) for task in itertools.islice(waiting, 2 * slots)]
    running = as_completed(first, with_results=True)
    try:
        for future, result in running:  # type: ignore[misc]
            future.release()
            following = next(waiting, None)
            if following is not None:
                running.add(submit(following))
            if isinstance(result, ValueError):
                raise result
            yield result
            del result
    finally:
        client.cancel([*running.futures, shared], force=True)


def _slots(client: Any) -> int:
    slots = sum(client.nthreads().values())
    if not slots:
        raise ValueError(
            "client has no workers; start some, or wait for them with client.wait_for_workers(1)."
        )
    return slots


def _shared(work: Work, client: Any) -> Any:
    """The work function on every worker, sent once, so that each worker compiles it once.

    It is sent as the result of a task, so the scheduler can recreate it if all workers that hold it die.
    """
    import dask.config
    from dask.distributed import wait

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "100GB"}):  # it is sent once
        shared = client.submit(_as_it_is, work, pure=False, retries=3)
    wait(shared)
    client.replicate([shared])
    return shared


def _as_it_is(work: Work) -> Work:
    return work


def _numbered_or_refused(work: Work, task: int) -> Any:
    """Return a ValueError instead of raising it: a raised error would be retried, which would not help."""
    try:
        return _numbered(work, task)
    except ValueError as error:
        return error
