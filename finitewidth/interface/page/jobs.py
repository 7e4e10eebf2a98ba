"""Trainings of real networks, one at a time from a bounded queue, with cancellation and a time limit."""

import contextlib
import math
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from finitewidth.interface.page import ensembles, extrapolation
from finitewidth.interface.page.children import Child, Ended
from finitewidth.interface.page.values import BadValues, Values

MOST_WAITING = 4
MOST_KEPT = 50  # finished trainings whose results are kept
FORGOTTEN = 30.0  # seconds without a request for its status after which a training is cancelled
_SWEEP = 1.0


@dataclass
class Job:
    """One training, its state and its latest result."""

    values: Values
    state: str = "waiting"  # later "running", then "finished", "cancelled" or "failed"
    result: dict | None = None
    message: str = ""
    progress: float = 0.0  # the part of the work that is done
    seen: float = field(default_factory=time.monotonic)
    is_preparation: bool = False  # nobody waits for it, but the next training finds its program compiled

    @property
    def is_over(self) -> bool:
        return self.state not in ("waiting", "running")


def _kind(values: Values) -> str:
    return "extrapolation" if values.tab == "extrapolation" else "train"


def _check(values: Values) -> None:
    """Refuse trainings beyond the limits of the page."""
    if _kind(values) == "extrapolation":
        extrapolation.check(values)
    else:
        ensembles.check(values)


class Jobs:
    """The queue of trainings. One thread works on it; other threads add, query and cancel."""

    def __init__(self, child: Child, time_limit: float = ensembles.TIME_LIMIT, forgotten: float = FORGOTTEN):
        self._child = child
        self._time_limit = time_limit
        self._forgotten = forgotten
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._changed = threading.Condition()
        self._closed = False
        for work in (self._train_all, self._sweep):
            threading.Thread(target=work, daemon=True).start()

    def add(self, values: Values) -> str:
        """Add a training and return its name; refuse it if too many are waiting."""
        _check(values)
        with self._changed:
            waiting = sum(job.state == "waiting" and not job.is_preparation for job in self._jobs.values())
            if waiting >= MOST_WAITING:
                raise BadValues(
                    {"train": f"{waiting} trainings are waiting, the limit is {MOST_WAITING}; try later."}
                )
            name = secrets.token_urlsafe(9)
            self._jobs[name] = Job(values)
            self._drop_old()
            self._changed.notify_all()
            return name

    def prepare(self, values: Values) -> None:
        """Compile the program that trains these networks, when no training is waiting; the newest counts."""
        with contextlib.suppress(BadValues), self._changed:
            _check(values)
            for name in [n for n, job in self._jobs.items() if job.is_preparation and job.state != "running"]:
                del self._jobs[name]
            few = replace(values, members=ensembles.BATCH)
            self._jobs[secrets.token_urlsafe(9)] = Job(few, seen=math.inf, is_preparation=True)
            self._changed.notify_all()

    def status(self, name: str) -> dict | None:
        """State and latest result of a training; None if no training has that name."""
        with self._changed:
            job = self._jobs.get(name)
            if job is None:
                return None
            job.seen = time.monotonic()
            before = 0
            if job.state == "waiting":
                # a preparation is of this visitor's own state: nobody else is waited for
                names = [n for n, j in self._jobs.items() if not (j.is_over or j.is_preparation)]
                before = names.index(name)
            shown = {"state": job.state, "result": job.result, "message": job.message}
            return {**shown, "before": before, "progress": job.progress}

    def cancel(self, name: str) -> bool:
        """End a training, and tell whether there is one of that name."""
        with self._changed:
            job = self._jobs.get(name)
            if job is not None and not job.is_over:
                self._end(job, "cancelled", "")
            return job is not None

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._child.close()

    def _end(self, job: Job, state: str, message: str) -> None:
        running = job.state == "running"
        job.state, job.message = state, message
        if running:
            self._child.end()

    def _drop_old(self) -> None:
        over = [name for name, job in self._jobs.items() if job.is_over]
        for name in over[: max(0, len(self._jobs) - MOST_KEPT)]:
            del self._jobs[name]

    def _sweep(self) -> None:
        while not self._closed:
            time.sleep(min(_SWEEP, self._forgotten))
            with self._changed:
                for job in self._jobs.values():
                    if not job.is_over and time.monotonic() - job.seen > self._forgotten:
                        self._end(job, "cancelled", "the page that started it was closed")

    def _train_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                job = self._next()
                if self._closed or job is None:
                    return
                job.state = "running"
            self._train(job)

    def _next(self) -> Job | None:
        waiting = [job for job in self._jobs.values() if job.state == "waiting"]
        return min(waiting, key=lambda job: job.is_preparation, default=None)

    def _train(self, job: Job) -> None:
        state, message = "finished", ""
        try:
            order = {"do": _kind(job.values), "values": job.values.to_dict()}
            for line in self._child.ask(order, self._time_limit):
                job.result = line.get("result", job.result)
                job.progress = line.get("progress", job.progress)
                if "errors" in line:
                    state, message = "failed", " ".join(line["errors"].values())
        except Ended as reason:
            state, message = "failed", self._why_ended(reason, job)
            with contextlib.suppress(Ended):
                self._child.start()  # a fresh process is loaded when the next training comes
        with self._changed:
            if job.state == "running":  # not cancelled in the meantime
                job.state, job.message = state, message

    def _why_ended(self, reason: Ended, job: Job) -> str:
        if not reason.is_time:
            return "the training process ended on its own; try again, or train fewer or smaller networks."
        kept = f"; {job.result['members']} networks are shown" if job.result else ""
        return (
            f"training took longer than the limit of {self._time_limit:g} s{kept}; choose fewer "
            "networks, fewer layers, a smaller width or an earlier end."
        )
