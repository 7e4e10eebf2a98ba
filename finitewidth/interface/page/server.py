"""The server of the page: a few addresses that answer from the library, each within limits."""

import asyncio
import contextlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import finitewidth
from finitewidth.core.programs import keep_programs
from finitewidth.interface.figures.look import ROLES, ROLES_ON_DARK
from finitewidth.interface.page import answers, ensembles, jobs, problem, residual, symbols
from finitewidth.interface.page.children import LOADING, Child, Ended, first_result
from finitewidth.interface.page.python_code import python_code
from finitewidth.interface.page.safety import MOST_BODY, SafetyHeaders, bounded_body, is_from_the_page
from finitewidth.interface.page.values import (
    ACTIVATIONS,
    DEEPEST,
    BadValues,
    Values,
    described,
    presets,
    read,
)

STATIC = Path(__file__).parent / "static"
LOOPBACK = ("127.0.0.1", "localhost")
TIME_LIMIT = 30.0  # seconds that an answer may take
KEPT_ANSWERS = 512
_LANES = min(4, os.cpu_count() or 1)  # children that compute order 1/n
_LOOK_FOR_DISCONNECTION = 0.05  # seconds
_IDLE = 1.0  # seconds without a request after which programs are compiled ahead of their use
_FIRST = ("gelu", "relu", "swish")  # the activations that people ask for first, after the default


class Answers:
    """A cache of the newest answers, by request."""

    def __init__(self, most: int = KEPT_ANSWERS):
        self._most = most
        self._kept: OrderedDict = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key) -> dict | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key, answer: dict) -> None:
        with self._lock:
            self._kept[key] = answer
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)


class Desk:
    """The workers of the page: two threads for quick answers, children for order 1/n, one for training."""

    def __init__(
        self,
        theory: Callable[[Values], dict] = answers.theory,
        time_limit: float = TIME_LIMIT,
        quiet: bool = True,
    ):
        self._theory = theory
        self.time_limit = time_limit
        self._kept = Answers()
        self._quick = ThreadPoolExecutor(2)
        self._lanes = [(Child(quiet), ThreadPoolExecutor(1)) for _ in range(_LANES)]
        self.jobs = jobs.Jobs(Child(quiet))

    def start(self) -> None:
        keep_programs(answers.LEAST_COMPILATION)
        for child, _ in self._lanes:
            child.start()

    def close(self) -> None:
        self.jobs.close()
        for child, threads in self._lanes:
            child.close()
            threads.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=False, cancel_futures=True)

    def theory(self, values: Values) -> "Future[dict]":
        key = ("theory", values.used_by("theory"))
        return self._quick.submit(self._remembered, key, lambda: self._theory(values))

    def in_child(self, kind: str, values: Values, **more: int) -> "Future[dict]":
        """An answer that takes seconds: "finite" (with its part), "bayes" or "residual"."""
        # each activation belongs to one child, which compiles it once and keeps statistics for other widths
        child, threads = self._lanes[ACTIVATIONS.index(values.activation) % len(self._lanes)]
        order = {"do": kind, "values": values.to_dict(), **more}
        key = (kind, values.used_by(kind), *more.values())
        return threads.submit(self._remembered, key, lambda: first_result(child, order, self.time_limit))

    def _remembered(self, key, compute: Callable[[], dict]) -> dict:
        answer = self._kept.get(key)
        if answer is None:
            answer = compute()
            self._kept.put(key, answer)
        return answer


class Page:
    """The addresses of one server."""

    def __init__(self, desk: Desk, warm: bool = True):
        self.desk = desk
        self._warm = warm
        self._last_request = 0.0
        self._last_values: Values | None = None
        self._has_answered = False

    @contextlib.asynccontextmanager
    async def lifespan(self, _app) -> AsyncIterator[None]:
        self.desk.start()
        ahead = (self._compile_ahead, self._prepare_trainings) if self._warm else ()
        tasks = [asyncio.create_task(work()) for work in ahead]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            self.desk.close()

    async def _compile_ahead(self) -> None:
        """The default state at once, then its training and other activations while nobody is waiting."""
        for query in (
            "",
            *(f"activation={name}" for name in _FIRST),
            *map("start=own&activation={}".format, ACTIVATIONS),
        ):
            values = read(query)
            works = [
                self.desk.theory,
                *(partial(self.desk.in_child, "finite", part=i) for i in range(len(problem.PARTS))),
            ]
            for work in works:
                if query:
                    await self._idle()
                with contextlib.suppress(ValueError, Ended):
                    await asyncio.wrap_future(work(values))
            if not query:
                self.desk.jobs.prepare(values)

    async def _prepare_trainings(self) -> None:
        """Compile the training of the state that a visitor stays with, before the button is pressed."""
        prepared = None
        while True:
            await self._idle()
            if self._last_values is not None and self._last_values != prepared:
                prepared = self._last_values
                self.desk.jobs.prepare(prepared)
            await asyncio.sleep(_IDLE / 4)

    async def _idle(self) -> None:
        while asyncio.get_running_loop().time() < self._last_request + _IDLE:
            await asyncio.sleep(_IDLE / 4)

    # --- addresses -----------------------------------------------------------------------------------

    async def setup(self, _request: Request) -> Response:
        """Everything that the page needs to draw its controls and plots."""
        return _json(
            {
                "version": finitewidth.__version__,
                "controls": described(),
                "look": ROLES,
                "dark_look": ROLES_ON_DARK,
                "symbols": symbols.described(),
                "parts": len(problem.PARTS),
                "span": problem.SPAN,
                "gammas": residual.GAMMAS,
                "deepest": DEEPEST,
                "presets": presets(),
                "limits": {
                    "finite_depth": answers.FINITE_DEPTH,
                    "trained_width": ensembles.TRAINED_WIDTH,
                    "trained_depth": ensembles.TRAINED_DEPTH,
                    "training_seconds": ensembles.TIME_LIMIT,
                },
            }
        )

    async def theory(self, request: Request) -> Response:
        return await self._answer(request, lambda: self.desk.theory(self._seen(request)))

    async def python(self, request: Request) -> Response:
        """The library's own calls for what is in sight."""
        try:
            return _json({"code": python_code(_asked(request)), "errors": {}})
        except BadValues as error:
            return _json({"errors": error.errors})

    async def finite(self, request: Request) -> Response:
        part, parts = request.path_params["part"], [str(part) for part in range(len(problem.PARTS))]
        if part not in parts:
            return _json({"errors": {"finite": f"part must be 0 to {parts[-1]}, got {part[:30]!r}."}})
        return await self._answer(
            request, lambda: self.desk.in_child("finite", _asked(request), part=int(part))
        )

    async def in_child(self, request: Request) -> Response:
        kind = request.url.path.rpartition("/")[2]
        return await self._answer(request, lambda: self.desk.in_child(kind, _asked(request)))

    def _seen(self, request: Request) -> Values:
        """The values of a visitor, whose training is compiled if the visitor stays with them."""
        self._last_values = _asked(request)
        return self._last_values

    async def add_job(self, request: Request) -> Response:
        if not is_from_the_page(request):
            return _refused()
        body = await bounded_body(request)
        if body is None:
            return PlainTextResponse(f"the request is longer than the limit of {MOST_BODY} bytes", 413)
        try:
            return _json({"id": self.desk.jobs.add(read(body))})
        except BadValues as error:
            return _json({"errors": error.errors})

    async def job(self, request: Request) -> Response:
        status = self.desk.jobs.status(request.path_params["name"])
        return _json(status or {"errors": {"train": "this training is no longer known; start it again."}})

    async def cancel_job(self, request: Request) -> Response:
        if not is_from_the_page(request):
            return _refused()
        return _json({"cancelled": self.desk.jobs.cancel(request.path_params["name"])})

    # --- answering -----------------------------------------------------------------------------------

    async def _answer(self, request: Request, submit: Callable[[], "Future[dict]"]) -> Response:
        """The answer, or the errors of the request, or nothing if the visitor has left."""
        loop = asyncio.get_running_loop()
        self._last_request = loop.time()
        try:
            future = submit()
        except BadValues as error:
            return _json({"errors": error.errors})
        waiting = asyncio.wrap_future(future)
        deadline = loop.time() + 2 * self.desk.time_limit  # half of it for the time in the queue
        deadline += 0 if self._has_answered else LOADING
        while not (await asyncio.wait({waiting}, timeout=_LOOK_FOR_DISCONNECTION))[0]:
            if await request.is_disconnected():
                future.cancel()  # unless it has begun; its answer is then kept
                return Response(status_code=204)
            if loop.time() > deadline:
                begun = not future.cancel()
                return _json({"errors": {"page": self._too_long() if begun else self._too_busy()}})
        self._has_answered = True
        try:
            return _json(waiting.result())
        except BadValues as error:
            return _json({"errors": error.errors})
        except ValueError as error:
            return _json({"errors": {"page": str(error)}})
        except Ended as reason:
            ended = "The process that computes this ended on its own; change a value and try again."
            return _json({"errors": {"finite": self._too_long() if reason.is_time else ended}})

    def _too_busy(self) -> str:
        return (
            f"No process was free to answer this within the limit of {2 * self.desk.time_limit:g} s; "
            "try again in a moment."
        )

    def _too_long(self) -> str:
        return (
            f"These values take longer than the limit of {self.desk.time_limit:g} s; lower the depth, C_W or "
            "C_b, or use fw.predict, which has no limit."
        )


def _asked(request: Request) -> Values:
    return read(request.url.query)


def _refused() -> Response:
    return PlainTextResponse("this address answers to the page alone", 403)


def _json(content: dict) -> Response:
    return Response(json.dumps(content, allow_nan=False), media_type="application/json")


async def _index(_request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _symbols(_request: Request) -> Response:
    return HTMLResponse(symbols.as_html())


def application(desk: Desk | None = None, *, hosts: Sequence[str] = LOOPBACK, warm: bool = True) -> Starlette:
    """The whole server, answering to these host names only."""
    page = Page(desk or Desk(), warm)
    routes = [
        Route("/", _index),
        Route("/symbols", _symbols),
        Route("/api/setup", page.setup),
        Route("/api/theory", page.theory),
        Route("/api/python", page.python),
        Route("/api/finite/{part}", page.finite),  # a converter to int would fail on five thousand digits
        Route("/api/bayes", page.in_child),
        Route("/api/residual", page.in_child),
        Route("/api/jobs", page.add_job, methods=["POST"]),
        Route("/api/jobs/{name}", page.job),
        Route("/api/jobs/{name}", page.cancel_job, methods=["DELETE"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    middleware = [Middleware(SafetyHeaders), Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts])]
    return Starlette(routes=routes, middleware=middleware, lifespan=page.lifespan)
