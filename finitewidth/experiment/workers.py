"""Who works on the batches: one device, several devices of this process, or a Dask cluster.

A batch is the unit of work and is computed by one program on one device whoever does it, so on machines of
one kind the results have the same bits. Only a window of batches is in work at a time, which bounds memory.
"""

import itertools
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

import jax

Work = Callable[[int], Any]


def in_any_order(work: Work, batches: list[int], client: Any = None) -> Iterator[tuple[int, Any]]:
    """(batch, work(batch)) for every batch, as they are finished."""
    if client is not None:
        yield from _on_cluster(work, batches, client)
    elif len(jax.local_devices()) > 1:
        yield from _on_devices(work, batches, jax.local_devices())
    else:
        for batch in batches:
            yield batch, work(batch)


def in_order(results: Iterator[tuple[int, Any]], batches: list[int]) -> Iterator[tuple[int, Any]]:
    """The same results in the order of `batches`; those that come early wait."""
    early: dict[int, Any] = {}
    expected = iter(batches)
    wanted = next(expected, None)
    for batch, result in results:
        early[batch] = result
        while wanted is not None and wanted in early:
            yield wanted, early.pop(wanted)
            wanted = next(expected, None)


def _on_devices(work: Work, batches: list[int], devices: list) -> Iterator[tuple[int, Any]]:
    free: queue.SimpleQueue = queue.SimpleQueue()
    for device in devices:
        free.put(device)

    def on_a_device(batch):
        device = free.get()
        try:
            with jax.default_device(device):
                return batch, work(batch)
        finally:
            free.put(device)

    with ThreadPoolExecutor(len(devices)) as threads:
        waiting, running = iter(batches), set()
        try:
            while True:
                for batch in waiting:
                    running.add(threads.submit(on_a_device, batch))
                    if len(running) >= 2 * len(devices):
                        break
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            for future in running:
                future.cancel()


def _on_cluster(work: Work, batches: list[int], client: Any) -> Iterator[tuple[int, Any]]:
    from dask.distributed import as_completed

    slots = sum(client.nthreads().values())
    if not slots:
        raise ValueError(
            "client has no workers; start some, or wait for them with client.wait_for_workers(1)."
        )

    def submit(batch):
        return client.submit(_numbered, work, batch, pure=False, retries=3)

    waiting = iter(batches)
    first = [submit(batch) for batch in itertools.islice(waiting, 2 * slots)]
    running = as_completed(first, with_results=True)
    try:
        for future, result in running:  # type: ignore[misc]
            future.release()
            following = next(waiting, None)
            if following is not None:
                running.add(submit(following))
            yield result
    finally:
        client.cancel(list(running.futures), force=True)


def _numbered(work: Work, batch: int) -> tuple[int, Any]:
    return batch, work(batch)
