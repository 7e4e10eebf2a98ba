"""The page's server: what it accepts, what it answers, what it refuses, and that it stays responsive."""

import contextlib
import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
import zipfile

import httpx
import numpy as np
import psutil
import pytest
import uvicorn
from helpers.paths import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

import finitewidth as fw
from finitewidth.interface.cli import page as page_command
from finitewidth.interface.page import (
    answers,
    bayes,
    extrapolation,
    jobs,
    problem,
    residual,
    symbols,
    values,
)
from finitewidth.interface.page.children import Child, Ended
from finitewidth.interface.page.python_code import python_code
from finitewidth.interface.page.server import STATIC, Desk, application

FROM_PAGE = {"X-Finitewidth": "page"}
SMALL = "depth=2&width=4&algorithm=descent&steps=3&learning_rate=0.05&members=32"


@contextlib.contextmanager
def served(desk: Desk):
    """A real server in a thread: the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(application(desk, warm=False), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def client(desk: Desk):
    with served(desk) as address, httpx.Client(base_url=address, timeout=30) as http:
        yield http


# --- values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query, field, says",
    [
        ("depth=9999", "depth", "whole number from 2 to 50, got '9999'"),
        ("depth=51", "depth", "from 2 to 50"),
        ("depth=201&tab=residual", "depth", "from 2 to 200"),
        ("depth=3.5", "depth", "round it"),
        ("depth=", "depth", "got ''"),
        ("width=nan", "width", "got 'nan'"),
        ("C_W=1e999", "C_W", "from 0.05 to 4"),
        ("C_b=-1", "C_b", "from 0 to 1"),
        ("C_b=0x10", "C_b", "a number"),
        ("activation=os:system", "activation", "choose one of tanh"),
        ("activation=" + "z" * 500, "activation", "zzz..."),
        ("depth=3&depth=4", "depth", "given twice"),
        ("dept=3", "address", "unknown value 'dept'"),
        ("members=100000", "members", "from 32 to 2048"),
        ("x=" + "1" * 3000, "address", "at most 2000"),
        ("&".join(f"a{i}=1" for i in range(100)), "address", "more than 38 values"),
    ],
)
def test_a_bad_value_is_named_with_its_bounds(query, field, says):
    with pytest.raises(values.BadValues) as caught:
        values.read(query)
    assert says in caught.value.errors[field]
    assert len(caught.value.errors[field]) < 300


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.dictionaries(st.sampled_from([*values.FIELDS]), st.text(max_size=20)))
def test_any_query_is_read_or_refused_in_words(query):
    text = query if isinstance(query, str) else "&".join(f"{name}={value}" for name, value in query.items())
    try:
        state = values.read(text)
    except values.BadValues as error:
        assert error.errors and all(error.errors.values())
    else:
        assert (
            2 <= state.depth <= (200 if state.tab == "residual" else 50)
            and state.activation in values.ACTIVATIONS
        )


# --- answers -------------------------------------------------------------------------------------------


def test_theory_says_what_the_library_says():
    asked = values.read("depth=3&width=32&lambda_b=0.5&algorithm=flow")
    answer = answers.theory(asked)
    json.dumps(answer, allow_nan=False)
    assert answer["critical"]["verdict"]["state"] == "critical" and not answer["errors"]
    net = fw.MLP.critical((2, 32, 32, 1), "tanh", lambda_b=0.5)
    one = fw.solve(net, [[np.sqrt(2), 0.0]])
    layers = [one.layer(l) for l in (1, 2, 3)]
    np.testing.assert_allclose(answer["depth"]["K"], [l.K[0, 0] for l in layers], rtol=1e-9)
    np.testing.assert_allclose(answer["depth"]["finite_Theta"], [l.H[0, 0] for l in layers], rtol=1e-12)
    V = [l.V[0, 0, 0, 0] / l.n / l.K[0, 0] ** 2 for l in layers]
    np.testing.assert_allclose(answer["depth"]["ratios"]["V"], V, rtol=1e-12)
    x, y = problem.training_points(asked)
    curve = answer["regression"]["infinite"]
    expected = fw.predict(net, problem.inputs(x), y[:, None], problem.inputs(curve["x"]), order=0)
    np.testing.assert_allclose(curve["mean"], expected.mean[:, 0], rtol=1e-12)
    np.testing.assert_allclose(curve["std"], expected.std[:, 0], rtol=1e-12, atol=1e-9)


def test_finite_width_says_what_the_library_says_at_any_width():
    asked = values.read("depth=2&width=20&points=2&algorithm=flow_time&time=2")
    answer = answers.finite(asked, 1)
    x, y = problem.training_points(asked)
    net = fw.MLP.critical((2, 20, 1), "tanh")
    expected = fw.predict(
        net,
        problem.inputs(x),
        y[:, None],
        problem.inputs(answer["x"]),
        algorithm=fw.GradientFlow(2.0),
        method=fw.Tensors(tolerance=1e-8),
    )
    np.testing.assert_allclose(answer["mean"], expected.mean[:, 0], atol=1e-4)
    np.testing.assert_allclose(answer["std"], expected.std[:, 0], atol=1e-4)


def test_off_criticality_is_explained():
    answer = answers.theory(values.read("depth=20&start=own&C_W=0.3"))["critical"]
    assert answer["verdict"]["state"] == "off" and "χ⊥" in answer["verdict"]["text"]
    assert any("gradient vanishes" in line for line in answer["findings"])
    assert "C_W = 1" in answer["advice"][0]


def test_what_cannot_be_shown_says_why():
    kinked = answers.theory(values.read("activation=relu&depth=3"))
    assert "kink" in kinked["finite_missing"] and kinked["regression"]["infinite"]["mean"]
    with pytest.raises(values.BadValues, match="kink"):
        answers.finite(values.read("activation=relu&depth=3"), 0)
    assert "12 layers" in answers.theory(values.read("depth=13"))["finite_missing"]
    fast = answers.theory(values.read("depth=3&algorithm=descent&learning_rate=9"))
    assert "2 over the largest eigenvalue" in fast["errors"]["learning_rate"]
    loud = answers.theory(values.read("activation=relu&start=own&C_W=4&depth=20"))
    assert "Signals grow" in loud["errors"]["regression"] and loud["depth"]["log_K"]
    with pytest.raises(values.BadValues) as caught:
        answers.theory(values.read("activation=sigmoid"))
    assert "no critical point" in caught.value.errors["start"]


def test_the_tabs_say_what_the_library_says():
    asked = values.read("activation=relu&depth=20&width=64&gamma=0.8")
    skips = residual.residual(asked)
    there = fw.critical.aspect("relu", width=64, gamma=0.8)
    assert skips["reached"] == there.depth
    np.testing.assert_allclose(skips["ratio"][there.depth - 1], there.ratio, rtol=1e-12)
    assert f"width {fw.critical.aspect('relu', depth=20, gamma=0.8).width} or more" in skips["text"][2]
    assert answers.theory(asked)["regression"]["infinite"]["mean"]  # the other tabs have no skips
    asked = values.read("depth=2&width=20&points=2&noise=0.3")
    answer = bayes.bayes(asked)
    json.dumps(answer, allow_nan=False)
    x, y = problem.training_points(asked)
    net = fw.MLP.critical((2, 20, 1), "tanh")
    expected = fw.bayes.posterior(
        net, problem.inputs(x), y[:, None], problem.inputs(answer["finite"]["x"]), noise=0.3, order=1
    )
    np.testing.assert_allclose(answer["finite"]["mean"], expected.mean[:, 0], atol=1e-4)
    np.testing.assert_allclose(answer["finite"]["std"], expected.std[:, 0], atol=1e-4)
    kinked = bayes.bayes(values.read("activation=relu&depth=3"))
    assert "kink" in kinked["missing"] and kinked["finite"] is None and kinked["infinite"]["mean"]


def test_an_extrapolation_is_refused_where_it_would_take_too_long():
    for query, says in (("activation=relu", "kink"), ("depth=13", "12 layers"), ("algorithm=flow", "finite")):
        with pytest.raises(values.BadValues, match=says):
            extrapolation.check(values.read(query))


@pytest.mark.long
def test_an_extrapolation_is_that_of_the_library(monkeypatch):
    made, told = [], []

    def extrapolated(*arguments, **options):
        made.append(fw.extrapolate(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(extrapolation, "extrapolate", extrapolated)
    extrapolation.beyond(values.read(f"tab=extrapolation&points=2&{SMALL}"), told.append)
    (answer,), (there,) = [line["result"] for line in told if "result" in line], made
    json.dumps(answer, allow_nan=False)
    assert there.n == 4 and there.widths == (12, 16, 24) and there.members == 32
    limit = there.prediction.infinite_width.mean
    np.testing.assert_allclose(answer["shift"], (there.mean.value - limit)[:, 0], atol=1e-12)
    std = np.array(answer["std"], dtype=float)  # None where a variance is below zero
    np.testing.assert_allclose(np.isnan(std), there.below_zero[:, 0])
    np.testing.assert_allclose(std, there.std.value[:, 0], atol=1e-12)
    assert any("width 4 is below the trained widths 12, 16, 24" in note for note in answer["notes"])
    over, narrow = answer["over_width"], answer["over_width"]["narrow"]
    place = answer["x"].index(over["x"])
    theory = [over["theory"][over["width"].index(n)] for n in narrow["width"]]
    seen = [at.value[place, 0] for at in there.remainders["mean"]]
    np.testing.assert_allclose(np.subtract(narrow["shift"], theory), seen, atol=1e-12)


# --- the server ----------------------------------------------------------------------------------------


def test_addresses_headers_and_hosts():
    with client(Desk(theory=lambda asked: {"depth": asked.depth})) as http:
        page = http.get("/?depth=3")
        assert page.status_code == 200 and "finitewidth" in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        assert http.get("/static/favicon.svg").status_code == 200
        setup = http.get("/api/setup").json()
        assert {c["name"] for c in setup["controls"]} == set(values.FIELDS)
        assert setup["look"]["finite width"]["color"].startswith("#")
        assert http.get("/api/theory?depth=7").json() == {"depth": 7}
        refused = http.get("/api/theory?depth=0")
        assert refused.status_code == 200 and "from 2 to 50" in refused.json()["errors"]["depth"]
        assert "part must be" in http.get("/api/finite/9").json()["errors"]["finite"]
        assert http.get("/", headers={"Host": "evil.example"}).status_code == 400
        assert http.post("/api/jobs", content=SMALL).status_code == 403
        assert http.delete("/api/jobs/x").status_code == 403
        too_long = http.post("/api/jobs", content="x" * 5000, headers=FROM_PAGE)
        assert too_long.status_code == 413 and "limit of 4000 bytes" in too_long.text
        assert (
            "from 32"
            in http.post("/api/jobs", content="members=1", headers=FROM_PAGE).json()["errors"]["members"]
        )
        large = http.post("/api/jobs", content="width=5000&depth=40", headers=FROM_PAGE).json()["errors"]
        assert "up to width 256" in large["width"] and "up to 12 layers" in large["depth"]
        assert "no longer known" in http.get("/api/jobs/nothing").json()["errors"]["train"]
        assert http.get("/static/%2e%2e/server.py").status_code == 404


def test_answers_are_kept_and_late_ones_are_refused():
    asked, released = [], threading.Event()

    def slow(value):
        asked.append(value.depth)
        if value.depth == 3:
            released.wait(20)
        return {"depth": value.depth}

    with client(Desk(theory=slow, time_limit=0.2)) as http:
        assert http.get("/api/theory?depth=5").json() == http.get("/api/theory?depth=5").json()
        assert asked == [5]
        assert "limit of 0.2 s" in http.get("/api/theory?depth=3").json()["errors"]["page"]
        assert http.get("/api/theory?depth=6").json() == {"depth": 6}  # the other thread goes on
        released.set()


def test_a_question_that_nobody_waits_for_is_never_computed():
    asked, released = [], threading.Event()

    def slow(value):
        asked.append(value.width)
        released.wait(20)
        return {}

    with served(Desk(theory=slow)) as address, contextlib.ExitStack() as stack:

        def ask(width: int) -> socket.socket:
            host, port = address.removeprefix("http://").split(":")
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(f"GET /api/theory?width={width} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            return connection

        ask(11), ask(12)  # both threads are busy now
        wait_until(lambda: len(asked) == 2)
        left = ask(13)
        assert httpx.get(f"{address}/api/setup", timeout=10).status_code == 200  # the server itself is free
        time.sleep(0.2)
        left.close()
        time.sleep(0.5)
        ask(14)
        time.sleep(0.2)
        released.set()
        wait_until(lambda: 14 in asked)
    assert asked[2:] == [14]


def wait_until(is_so, seconds=20.0):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_every_symbol_has_a_sentence_and_a_section_that_exists():
    shown = set(
        re.findall(
            r"[\w]+", " ".join(re.findall(r'data-symbols="([^"]*)"', (STATIC / "index.html").read_text()))
        )
    )
    assert shown | set(values.FIELDS) == set(symbols.SYMBOLS)
    page = symbols.as_html()
    for name, one in symbols.SYMBOLS.items():
        file, anchor = one.section.split("#")
        text = (ROOT / "docs" / file).read_text(encoding="utf-8")
        assert anchor in {slug(title) for title in re.findall(r"^#+ (.*)$", text, re.M)}, one.section
        assert one.sentence.endswith(".") and f'id="{name}"' in page


def slug(title: str) -> str:
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


def test_every_preset_is_a_state_with_a_sentence():
    assert values.presets()[0]["query"] == ""
    for preset in values.presets():
        state = values.read(preset["query"])
        assert preset["sentence"].endswith(".") and preset["trains"] <= (state.tab == "network")


@pytest.mark.parametrize(
    "query",
    [
        "",
        "weights=orthogonal&lambda_b=0.5",
        "start=own&C_b=0.2&C_W=1.3&depth=5&width=9&weights=orthogonal&lambda_W=2",
    ],
)
def test_the_python_that_is_shown_makes_the_network_of_the_page(query):
    state = values.read(query)
    exec(python_code(state).split("def circle")[0], names := {})
    assert names["net"] == problem.network(state)


@pytest.mark.parametrize(
    "query, numbers",
    [
        (SMALL, lambda: answers.theory(values.read(SMALL))["regression"]["infinite"]["mean"][0]),
        (f"tab=bayes&{SMALL}", lambda: bayes.bayes(values.read(f"tab=bayes&{SMALL}"))["finite"]["mean"][0]),
        ("tab=residual&depth=120&width=64", lambda: residual.residual(values.read("width=64"))["reached"]),
    ],
)
def test_the_python_that_is_shown_computes_what_is_shown(query, numbers, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fw.warnings.ExpansionWarning)
        exec(python_code(values.read(query)), names := {})
        shown = numbers()
    if "p" in names:
        assert names["networks"].members == 32
        assert names["p"].infinite_width.mean[0, 0] == pytest.approx(shown, rel=1e-9)
    elif "posterior" in names:
        assert abs(names["posterior"].mean[0, 0] - shown) < 1e-4  # averages of the page are rough
    else:
        assert names["reach"].depth == shown
    assert capsys.readouterr().out


# --- trainings -----------------------------------------------------------------------------------------


class SlowChild:
    """Stands for a child process: one line, then nothing until it is ended."""

    def __init__(self):
        self.asked = []
        self._ended = threading.Event()

    def ask(self, order, seconds):
        self.asked.append(order["values"]["width"])
        self._ended.clear()
        yield {"result": {"members": 32}}
        if not self._ended.wait(seconds):
            raise Ended(is_time=True)
        raise Ended

    def start(self):
        pass

    def end(self):
        self._ended.set()

    close = end


def test_the_queue_is_bounded_watched_and_cancellable():
    child = SlowChild()
    queue = jobs.Jobs(child, time_limit=20)
    names = [queue.add(values.read("width=10"))]
    wait_until(lambda: queue.status(names[0])["result"] == {"members": 32})
    names += [queue.add(values.read(f"width={11 + i}")) for i in range(jobs.MOST_WAITING)]
    with pytest.raises(values.BadValues, match="the limit is 4"):
        queue.add(values.read("width=20"))
    assert [queue.status(name)["before"] for name in names] == [0, 1, 2, 3, 4]
    assert queue.cancel(names[1]) and queue.cancel(names[0]) and not queue.cancel("nothing")
    wait_until(lambda: queue.status(names[2])["state"] == "running")
    assert [queue.status(name)["state"] for name in names[:2]] == ["cancelled", "cancelled"]
    assert child.asked == [10, 12]
    queue.prepare(values.read("width=30"))
    queue.prepare(values.read("width=31"))  # replaces the one before, and gives way to those who wait
    assert queue.status(names[-1])["before"] == 2
    for name in names[2:]:
        queue.cancel(name)
    wait_until(lambda: child.asked[-1] == 31)
    assert 30 not in child.asked
    queue.close()


def test_a_training_ends_at_its_time_limit_and_when_its_page_is_gone():
    queue = jobs.Jobs(SlowChild(), time_limit=0.2)
    name = queue.add(values.read(""))
    wait_until(lambda: queue.status(name)["state"] == "failed")
    assert "limit of 0.2 s; 32 networks are shown" in queue.status(name)["message"]
    queue.close()
    queue = jobs.Jobs(SlowChild(), forgotten=0.3)
    name = queue.add(values.read(""))
    time.sleep(1.5)
    assert queue.status(name)["message"] == "the page that started it was closed"
    queue.close()


def test_networks_are_trained_in_a_child_process_that_can_be_ended():
    child = Child()
    order = {"do": "train", "values": values.read(SMALL).to_dict()}
    try:
        threading.Timer(0.3, child.end).start()
        with pytest.raises(Ended):
            list(child.ask(order, 60))
        lines = list(child.ask(order, 60))  # a new process
        assert lines[-1] == {"finished": True} and [
            line["result"]["members"] for line in lines if "result" in line
        ] == [16, 32]
        result = lines[-2]["result"]
        assert len(result["x"]) == len(result["mean"]) == len(result["std_error"])
        assert 0 < max(result["mean_error"]) < 1
        parts = [line["progress"] for line in lines if "progress" in line]
        assert parts == sorted(parts) and 0 < parts[0] <= parts[-1] <= 1
        asked = values.read("depth=2&activation=relu")
        (refused,) = child.ask({"do": "finite", "values": asked.to_dict(), "part": 0}, 60)
        assert "kink" in refused["errors"]["finite"]
        process = child._process
    finally:
        child.close()
    assert process is not None and process.poll() is not None
    with pytest.raises(Ended):
        list(child.ask(order, 60))


# --- the command and the package -----------------------------------------------------------------------


def test_the_command_serves_loopback_and_an_interrupt_ends_it_while_it_computes_and_trains():
    earlier = signal.signal(signal.SIGINT, signal.SIG_DFL)  # also where this process ignores Ctrl-C
    run = subprocess.Popen(
        [sys.executable, "-m", "finitewidth", "page", "--no-browser", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    signal.signal(signal.SIGINT, earlier)
    assert run.stdout is not None
    document = json.loads(run.stdout.readline())
    assert document["command"] == "page" and document["address"].startswith("http://127.0.0.1:")
    wait_until(lambda: reached(document["address"]))
    with httpx.Client(base_url=document["address"], timeout=60) as http:
        name = http.post("/api/jobs", content="members=2048&steps=20000", headers=FROM_PAGE).json()["id"]
        wait_until(lambda: http.get(f"/api/jobs/{name}").json()["state"] == "running", 60)
        with contextlib.suppress(httpx.ReadTimeout):  # the server goes on computing until it is interrupted
            http.get("/api/finite/0", params={"activation": "mish", "depth": 12}, timeout=0.05)
        children = psutil.Process(run.pid).children()
        run.send_signal(random.choice([signal.SIGINT, signal.SIGTERM]))
        _, errors = run.communicate(timeout=30)
    assert (run.returncode, errors) == (0, "finitewidth: interrupted; the page keeps no results.\n")
    assert len(children) > 1 and not psutil.wait_procs(children, timeout=30)[1]


def reached(address: str) -> bool:
    try:
        return httpx.get(f"{address}api/setup", timeout=10).status_code == 200
    except httpx.TransportError:
        return False


def test_the_command_refuses_in_one_sentence(monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f"--port {port}: .*; choose another port"):
            page_command._serve(port, "127.0.0.1", True, False, False)
    with pytest.raises(ValueError, match="cannot listen at --host 'no.such.host.invalid'"):
        page_command._serve(0, "no.such.host.invalid", True, False, False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ValueError, match=re.escape("pip install '.[page]'")):
        page_command._serve(0, "127.0.0.1", True, False, False)
    assert [page_command._is_loopback(h) for h in ("127.0.0.1", "localhost", "0.0.0.0", "10.0.0.3")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_host_that_others_can_reach_is_warned_about(monkeypatch, capsys):
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    page_command._serve(0, "0.0.0.0", True, False, False)
    assert "lets other machines use this page" in capsys.readouterr().err


VENDORED = {
    "d3.min.js": "f2094bbf6141b359722c4fe454eb6c4b0f0e42cc10cc7af921fc158fceb86539",
    "plot.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
}


def test_vendored_files_are_the_published_ones():
    """d3 7.9.0 and @observablehq/plot 0.6.17 as the npm registry has them."""
    for name, digest in VENDORED.items():
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest
        assert "Permission to use" in (STATIC / "vendor" / f"{name.split('.')[0]}.LICENSE").read_text()


def test_colours_of_plots_come_from_the_one_table():
    for file in STATIC.glob("*.js"):
        assert not re.findall(r"#[0-9a-fA-F]{3,8}\b", file.read_text(encoding="utf-8")), file.name
        assert "innerHTML" not in file.read_text(encoding="utf-8")


def test_the_wheel_holds_the_page(tmp_path):
    pytest.importorskip("hatchling", reason="hatchling is not installed, so no wheel can be built")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {
        name.split("page/static/")[1] for name in zipfile.ZipFile(wheel).namelist() if "page/static/" in name
    }
    wanted = {str(file.relative_to(STATIC)) for file in STATIC.rglob("*") if file.is_file()}
    assert held == wanted
