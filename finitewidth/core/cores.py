"""Independent tasks on all cores, each core with its own single-threaded matrix products.

A threaded BLAS does not make products of many small matrices faster: they wait for its threads. Whole tasks
are the better unit of work. Results come in the order of the tasks, so nothing depends on timing.
"""

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from finitewidth.core.precision import keep_double_precision

T = TypeVar("T")
R = TypeVar("R")

_lock = threading.Lock()
_users = 0
_limit = None


@functools.cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  (SciPy has a BLAS of its own, found only once it is loaded)

    return ThreadpoolController()


def _take_control() -> None:
    """Let this thread set the number of threads of a BLAS.

    From version 3.8 on threadpoolctl silently ignores all threads but the first that ever set it: tasks in
    other threads would have products in several threads each, which wait for one another.
    """
    for library in _controller().lib_controllers:
        release = getattr(library, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)


class SingleThreadedProducts:
    """A context in which matrix products of NumPy use one thread each; several threads may be in it."""

    def __enter__(self):
        global _users, _limit
        with _lock:
            if _users == 0:
                _take_control()
                _limit = _controller().limit(limits=1, user_api="blas")
            _users += 1

    def __exit__(self, *_):
        global _users, _limit
        with _lock:
            _users -= 1
            if _users == 0 and _limit is not None:
                _take_control()
                _limit.restore_original_limits()
                _limit = None


def available() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def on_all_cores(work: Callable[[T], R], tasks: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Yield (task, work(task)) for every task in order, computing a few tasks ahead of the consumer.

    Threads are kept from call to call, since starting them takes longer than many a task. A task that asks
    for all cores itself has the core that it runs on.
    """
    cores = available()
    if cores == 1 or _is_worker() or (isinstance(tasks, Sized) and len(tasks) < 2):
        with SingleThreadedProducts():
            yield from ((task, work(task)) for task in tasks)
        return
    waiting: deque[tuple[T, Future[R]]] = deque()
    with SingleThreadedProducts():
        try:
            for task in tasks:
                waiting.append((task, _pool(cores).submit(work, task)))
                if len(waiting) > 4 * cores:
                    done, result = waiting.popleft()
                    yield done, result.result()
            while waiting:
                done, result = waiting.popleft()
                yield done, result.result()
        finally:  # after an error, or a consumer that has enough, nothing goes on
            begun = [result for _, result in waiting if not result.cancel()]
            wait(begun)


_NAME = "finitewidth-core"


@functools.cache
def _pool(cores: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores, thread_name_prefix=_NAME, initializer=keep_double_precision)


def _is_worker() -> bool:
    return threading.current_thread().name.startswith(_NAME)


if hasattr(os, "register_at_fork"):  # threads do not live on in a copy of the process
    os.register_at_fork(after_in_child=_pool.cache_clear)


def in_pieces(work: Callable[[int, int], None], count: int, size: int) -> None:
    """Call work(start, stop) for pieces of `count` numbers of at least `size` each, on all cores."""
    if count <= size:
        work(0, count)
        return
    starts = range(0, count, max(size, -(-count // (4 * available()))))
    list(on_all_cores(lambda start: work(start, min(start + starts.step, count)), starts))
