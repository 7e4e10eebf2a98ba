"""The page in headless Chromium: it loads, answers to its controls, trains, explains and saves."""

import contextlib
import os
import re
import shutil
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
import uvicorn

from finitewidth.interface.page.server import Desk, application

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(
    not Path(CHROMIUM).exists(),
    reason=f"no Chromium at {CHROMIUM}; install the system package chromium, or name another in CHROMIUM",
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
PATIENCE = 120_000  # milliseconds; a busy machine compiles slowly
SMALL = "depth=2&width=8&points=2&algorithm=descent&steps=5&learning_rate=0.05&members=32"


@pytest.fixture(scope="module")
def address():
    """A server of its own; one thread of the products is enough for these sizes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        desk = Desk(time_limit=120)
        server = uvicorn.Server(uvicorn.Config(application(desk, warm=False), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def chromium():
    with playwright_api.sync_playwright() as playwright:
        yield playwright.chromium


@pytest.fixture
def opened(chromium, address, tmp_path):
    """A function that opens a page; any console error, page error or outside request fails the test."""
    complaints: list[str] = []
    with contextlib.ExitStack() as stack:

        def open_page(query: str, viewport=LAPTOP):
            context = chromium.launch_persistent_context(
                str(tmp_path / "profile"),
                executable_path=CHROMIUM,
                headless=True,
                args=ARGUMENTS,
                viewport=viewport,
                accept_downloads=True,
            )
            stack.callback(context.close)
            page = context.pages[0]
            page.set_default_timeout(PATIENCE)
            page.on(
                "console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None
            )
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("request", lambda request: complaints.extend(outside(request.url)))
            page.goto(f"{address}?{query}")
            return page

        yield open_page
    assert complaints == []


def outside(url: str) -> list[str]:
    parts = urlsplit(url)
    return [] if parts.hostname == "127.0.0.1" or parts.scheme in ("data", "blob") else [url]


def settled(page, query: str) -> None:
    """Wait until this state is drawn, with its bands at finite width."""
    page.locator(f'body[data-refined="{query}"]').wait_for(state="attached")


def curves(page, plot: str) -> list[str]:
    return page.locator(f"#{plot} svg path").evaluate_all("paths => paths.map(p => p.getAttribute('d'))")


def test_it_loads_controls_change_plots_and_networks_are_trained(opened):
    page = opened(SMALL)
    settled(page, SMALL)
    assert page.locator("#state").inner_text() == "critical"
    words = re.findall("trusted|doubtful|meaningless", page.locator("#results").inner_text())
    assert words == ["trusted"] and page.locator("#trust").inner_text() == "order 1/n trusted"
    before = {plot: curves(page, plot) for plot in ("regression", "kernel", "ratios")}
    assert all(before.values()) and "width n" in page.locator("#regression").inner_text()

    page.get_by_role("button", name="Train real networks").click()
    page.locator('body[data-trained="finished"]').wait_for(state="attached")
    assert "32 networks trained" in page.locator("#training-note").inner_text()
    assert "trained networks" in page.locator("#spread").inner_text()
    points = page.locator("#spread svg [data-mark='dot'] circle").count()
    assert points >= 11

    page.get_by_label("activation", exact=True).select_option("relu")
    relu = SMALL.replace("depth=2", "activation=relu&depth=2")
    settled(page, page.url.split("?")[1])
    assert set(page.url.split("?")[1].split("&")) == set(relu.split("&")) - {"algorithm=descent"}  # a default
    assert "has a kink" in page.locator(".regression-note").first.inner_text()
    assert "width n" not in page.locator("#regression").inner_text()
    assert "trained networks, ±" not in page.locator("#spread").inner_text()  # they were of another state
    after = {plot: curves(page, plot) for plot in before}
    assert all(before[plot] != after[plot] for plot in before)


def test_bad_values_explain_themselves_from_the_address_and_from_a_control(opened):
    page = opened("depth=9999&activation=nothing&foo=1")
    page.locator("body[data-drawn]").wait_for(state="attached")
    assert page.locator(".plot.stale svg").count() == 5  # of the default state, in grey
    assert "from 2 to 50, got '9999'" in page.locator("#message-depth").inner_text()
    assert "choose one of tanh" in page.locator("#message-activation").inner_text()
    assert "unknown value 'foo'" in page.locator("#banner").inner_text()
    assert page.get_by_label("depth L", exact=True).input_value() == "9999"
    page.get_by_label("depth L", exact=True).fill("2")
    page.get_by_label("activation", exact=True).select_option("relu")
    page.locator("#message-depth").wait_for(state="hidden")
    page.locator("#kernel svg").wait_for()
    assert page.locator("#banner").is_hidden()
    page.get_by_label("width n", exact=True).fill("many")
    page.locator("#message-width").wait_for()
    assert "whole number from 2 to 10000, got 'many'" in page.locator("#message-width").inner_text()
    assert page.locator(".plot.stale svg").count() == 5
    page.get_by_role("button", name="Reset").click()
    page.locator('body[data-drawn=""]').wait_for(state="attached")
    assert page.get_by_label("width n", exact=True).input_value() == "32" and "?" not in page.url
    assert page.locator(".plot.stale").count() == 0


def test_controls_are_in_sight_symbols_explained_and_the_dark_page_dark(opened):
    query = "activation=relu&depth=3&algorithm=descent"
    page = opened(query)
    page.locator("body[data-drawn]").wait_for(state="attached")
    bottom = page.locator("#train").evaluate("button => button.getBoundingClientRect().bottom")
    assert bottom <= LAPTOP["height"]
    assert "(constant: 2)" in page.locator("#kernel").inner_text()  # K of critical relu
    signs = page.locator(".help").evaluate_all("all => all.map(b => b.getAttribute('aria-label'))")
    assert {"About V", "About A", "About B", "About K", "About Θ", "About C_W"} <= set(signs)
    page.get_by_role("button", name="About V").focus()
    tip = page.get_by_role("tooltip").filter(visible=True)
    assert "four-point vertex" in tip.inner_text()
    assert tip.get_by_role("link").get_attribute("href") == "/symbols#V"
    page.keyboard.press("Escape")
    assert tip.count() == 0
    background = "plot => getComputedStyle(plot).backgroundColor"
    light = page.locator("#kernel svg").first.evaluate(background)
    page.get_by_role("button", name="Dark").click()
    assert page.locator("#kernel svg").first.evaluate(background) != light
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"  # it stays chosen


def test_a_plot_is_saved_and_a_phone_needs_no_sideways_scrolling(opened, tmp_path):
    query = "activation=relu&depth=3"
    page = opened(query, PHONE)
    settled(page, query)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    tops = [page.locator(f"#{name}").bounding_box()["y"] for name in ("regression", "controls", "kernel")]
    assert tops == sorted(tops)  # controls come after the first plot
    page.get_by_label("depth L, slider").scroll_into_view_if_needed()
    page.locator("body.adjusting").wait_for()
    assert page.locator("#regression").bounding_box()["y"] >= 0  # in sight while a slider moves
    heights = page.locator("#controls select:visible, #controls input[type=text]:visible").evaluate_all(
        "boxes => boxes.map(box => box.getBoundingClientRect().height)"
    )
    assert min(heights) >= 40  # wide enough for a finger
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG of the plot: signals").click()
    download.value.save_as(tmp_path / "saved.svg")
    assert download.value.suggested_filename == "finitewidth-kernel.svg"
    root = ElementTree.parse(tmp_path / "saved.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "infinite width" in "".join(root.itertext()) and "layer" in "".join(root.itertext())


def test_residual_networks_are_compared_over_depth_and_gamma(opened):
    page = opened("activation=relu&depth=20&width=64")
    page.get_by_role("tab", name="Residual networks").click()
    settled(page, "tab=residual&activation=relu&depth=20&width=64")
    assert "20 relu layers of width 64" in page.locator("#trust-text").inner_text()
    assert curves(page, "depth-ratios") and "γ = 0.95" in page.locator("#depth-ratios").inner_text()
    assert page.locator("#reach [data-mark='dot'] path").count() == 7  # gammas
    assert page.locator("#train").is_hidden() and page.locator("#regression").is_hidden()
    page.get_by_label("skips γ", exact=True).fill("1")
    page.locator("#message-gamma").wait_for()
    assert page.locator("#reach.stale").count() == 1


def test_the_posterior_stands_beside_trained_networks(opened):
    query = f"tab=bayes&{SMALL}&noise=0.3"
    page = opened(query, PHONE)
    settled(page, query)
    for plot in ("posterior", "posterior-shift", "posterior-spread"):
        assert len(curves(page, plot)) >= 3
    assert "finite width adds" in page.locator("#evidence").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_narrow_networks_add_the_orders_behind_1_over_n(opened):
    """Drawn from an answer as the server gives it; test_page.py trains."""
    query = f"tab=extrapolation&{SMALL}"
    page = opened(query)
    settled(page, query)
    over = {"width": [8, 12, 48], "theory": [0.3, 0.2, 0.1], "together": [0.2, 0.1, 0.1]}
    narrow = {"width": [12], "shift": [0.1], "error": [0.01]}
    beyond = {
        "x": [-1.5, 0.0, 1.5],
        **{name: [0.1, 0.2, 0.1] for name in ("shift", "shift_error", "std", "std_error")},
        "over_width": {"x": 0.5, **over, "together_error": [0.01] * 3, "narrow": narrow},
        **{"chi_square": 0.7, "freedom": 1, "members": 32, "of": 32, "notes": []},
    }
    status = {"state": "finished", "result": beyond, "message": "", "before": 0, "progress": 1}
    page.route("**/api/jobs", lambda route: route.fulfill(json={"id": "one"}))
    page.route("**/api/jobs/one", lambda route: route.fulfill(json=status))
    page.get_by_role("button", name="Train narrow networks").click()
    page.locator('body[data-trained="finished"]').wait_for(state="attached")
    assert "32 networks of each width trained" in page.locator("#training-note").inner_text()
    assert "networks of width 12" in page.locator("#over-width").inner_text()
    assert "median χ² of 0.70" in page.locator("#beyond-note").inner_text()
    assert "with narrow networks" in page.locator("#spread-beyond").inner_text()


def test_it_opens_with_trained_networks_and_sits_well_on_a_keyboard(opened, tmp_path):
    page = opened("")
    settled(page, "")
    page.locator('body[data-trained="finished"]').wait_for(state="attached")
    assert "trained networks, ±" in page.locator("#shift").inner_text()
    assert "Trained networks of width 32" in page.locator("#preset-note").inner_text()

    focused = "document.activeElement.id || document.activeElement.textContent"
    stops = []
    while not stops or stops[-1] != "train":
        page.keyboard.press("Tab")
        stops.append(page.evaluate(focused))
    assert len(stops) <= 10 and stops[0] == "theme"
    page.keyboard.press("Tab")  # a control's name, and the link in its tip
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "More" and page.get_by_role("tooltip").filter(visible=True).count() == 1
    box = page.get_by_role("tooltip").filter(visible=True).bounding_box()
    assert 0 <= box["x"] and box["x"] + box["width"] <= LAPTOP["width"]
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "help"

    page.locator("#tab-network").focus()
    page.keyboard.press("End")
    assert page.evaluate(focused) == "tab-extrapolation"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    settled(page, "tab=residual")
    assert page.get_by_role("tabpanel").get_attribute("aria-labelledby") == "tab-residual"
    page.get_by_label("depth L", exact=True).fill("120")
    settled(page, "tab=residual&depth=120")
    page.go_back()
    page.go_back()
    page.locator('body[data-tab="extrapolation"]').wait_for(state="attached")
    page.locator("#over-width svg").wait_for()

    sizes = page.locator("button:visible, select:visible, summary:visible, input:visible").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(box => Math.min(box.width, box.height))"
    )
    assert min(sizes) >= 24  # pixels


def test_a_state_is_a_link_a_script_and_files(opened, tmp_path):
    page = opened(SMALL)
    settled(page, SMALL)
    page.get_by_role("button", name="Show the Python").click()
    page.locator("#python", has_text="fw.MLP.critical((2, *[8] * 1, 1)").wait_for()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").endswith(f"?{SMALL}")
    for kind, starts in (("PNG", b"\x89PNG"), ("CSV", b"series,x,mean,")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"{kind} of the plot: trained").click()
        download.value.save_as(tmp_path / "saved")
        assert (tmp_path / "saved").read_bytes().startswith(starts)
    page.locator("#preset").select_option(label="A hundred layers")
    settled(page, "tab=residual&depth=100&width=128")
    assert "100 tanh layers of width 128" in page.locator("#trust-text").inner_text()
