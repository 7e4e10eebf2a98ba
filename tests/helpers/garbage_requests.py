"""Generated garbage for the command line and the page, and what they may answer.

A case ends "accepted", "refused" (one line on stderr and status 2, or a message by name) or, where the
command line would now begin to compute, "computed"; anything else is an AssertionError. Computing is patched
out: only reading is on trial.
"""

import asyncio
import contextlib
import io
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import httpx
from hypothesis import strategies as st

import finitewidth as fw
from finitewidth.interface.cli import main as cli
from finitewidth.interface.page import values
from finitewidth.interface.page.server import Desk, application
from helpers.garbage import TOML

# modules that are first imported while a name is patched would keep the patch
for _name in fw.__all__:
    getattr(fw, _name)


class Computed(BaseException):
    """Reading is over, and computing would begin."""


def _stop(*_, **__):
    raise Computed


COMPUTING = (
    "finitewidth.theory.solve.solve",
    "finitewidth.interface.runs.main_job.predict",
    "finitewidth.interface.runs.main_job.train_ensemble",
    "finitewidth.experiment.ensemble.training.train_ensemble",
    "finitewidth.critical.activations.classification.criticality",
    "finitewidth.critical.audit.audit",
    "finitewidth.comparison.claims.claims",
    "finitewidth.interface.runs.embedded.embedded",
    "socket.create_server",  # names of hosts are not looked up
)
WORDS = """solve criticality audit ensemble claims page --json --output out --no-figure --no-browser --fit
--all --only 10.93 --list --activation --C_b --C_W --lambda_W --input-scale --port --host --fresh run.toml
X.csv missing.toml . /dev/null tanh os:no_such_name no_module:f : 784,100x20,10 2x99999999999999 2,3x-1,1 1e9
nan inf -1 0 70000 --help --version -- 999.999.999.999""".split()
COMMANDS = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.sampled_from(WORDS),
        st.text(max_size=8).map(lambda word: word.replace("\0", "")),  # which no system passes on
    ),
    max_size=6,
).filter(lambda words: not any("completion" in word for word in words))
COMMAND_LINES = st.tuples(COMMANDS, st.one_of(st.none(), TOML))


@contextlib.contextmanager
def nothing_computed() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in COMPUTING:
            stack.enter_context(mock.patch(name, _stop))
        yield


def run_command(folder: Path, case: tuple[list[str], bytes | None]) -> str:
    arguments, toml = case
    if toml is not None:
        (folder / "run.toml").write_bytes(toml)
    out, err = io.StringIO(), io.StringIO()
    streams = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with contextlib.chdir(folder), nothing_computed(), streams[0], streams[1]:
        try:
            cli.main(arguments)
        except SystemExit as ended:
            status = int(ended.code or 0)
        except Computed:
            return "computed"
    if status == 0:
        return "accepted"
    said = err.getvalue()
    assert status == 2, f"status {status}: {said}"
    assert said.startswith("finitewidth: ") and said.count("\n") == 1, said
    assert out.getvalue() == "" and "Traceback" not in said
    return "refused"


# --- the page -------------------------------------------------------------------------------------------

_FIELD_NAMES = [*values.FIELDS, "other", "", "address"]
_VALUES = st.one_of(
    st.text(max_size=12),
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from([*values.ACTIVATIONS, "own", "flow_time", "1e999", "٣", "0x10", "1_000", "%", "%ff"]),
    st.integers(1, 3000).map(lambda length: "9" * length),
)
QUERIES = st.one_of(
    st.lists(st.tuples(st.sampled_from(_FIELD_NAMES), _VALUES), max_size=5).map(
        lambda pairs: "&".join(f"{name}={value}" for name, value in pairs)
    ),
    st.text(max_size=60),
    st.lists(_VALUES, max_size=80).map("&".join),
)
REQUESTS = st.tuples(
    st.sampled_from(["GET", "GET", "GET", "POST", "DELETE", "PUT"]),
    st.one_of(
        st.sampled_from(["/", "/api/setup", "/api/theory", "/api/finite/0", "/api/jobs"]),
        st.sampled_from(["/static/../server.py", "/static/%2e%2e/server.py", "/static//etc/passwd"]),
        st.integers().map(lambda part: f"/api/finite/{part}"),
        st.integers(1, 5000).map(lambda digits: f"/api/finite/{'9' * digits}"),
        st.text(max_size=10).map(lambda name: f"/api/jobs/{name}"),
        st.text(max_size=10).map(lambda name: f"/static/{name}"),
    ),
    QUERIES,
    st.one_of(QUERIES.map(lambda text: text.encode("utf-8", errors="replace")), st.binary(max_size=5000)),
)
FROM_THE_PAGE = {"X-Finitewidth": "page", "Host": "127.0.0.1"}
STATUSES = (200, 204, 307, 403, 404, 405, 413)


@contextlib.contextmanager
def visitor() -> Iterator[Callable[..., httpx.Response]]:
    """Asks the page, behind which nothing is computed; exceptions of the server come through."""
    desk = Desk(theory=lambda asked: {"depth": asked.depth})

    def answered(*_, **__) -> Future:
        future: Future = Future()
        future.set_result({"mean": []})
        return future

    transport = httpx.ASGITransport(application(desk, warm=False))
    client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
    loop = asyncio.new_event_loop()
    with (
        mock.patch.object(desk, "in_child", answered),
        mock.patch.object(desk.jobs, "add", lambda asked: "name"),
    ):
        try:
            yield lambda *given, **named: loop.run_until_complete(client.request(*given, **named))
        finally:
            loop.run_until_complete(client.aclose())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            desk.close()


def ask_page(ask: Callable[..., httpx.Response], case: tuple[str, str, str, bytes]) -> str:
    method, path, query, body = case
    address = f"{_quoted(path)}?{_quoted(query)}"
    answer = ask(method, address, content=body, headers=FROM_THE_PAGE)
    assert answer.status_code in STATUSES, f"{method} {address[:200]}: {answer.status_code}"
    if answer.headers.get("content-type", "").startswith("application/json") and "errors" in answer.json():
        assert all(isinstance(text, str) and text for text in answer.json()["errors"].values())
        return "refused"
    return "accepted" if answer.status_code == 200 else "refused"


def _quoted(text: str) -> str:
    """What an address may hold; percent signs are left as they are, right or wrong."""
    return quote(text.encode("utf-8", errors="replace"), safe="=&;+%/:@,.()")
