"""Pictures of the page for its documentation: every tab on a laptop, and the first on a phone.

    python -m benchmarks.page.pictures

Needs playwright and Chromium (CHROMIUM names another path). Starts `finitewidth page`, waits until all is
drawn, trains networks, and writes docs/pictures/page_*.png.
"""

import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import BrowserType, sync_playwright

from benchmarks.page.load import server

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
LAPTOP, PHONE = (1440, 900), (390, 844)
# file, values of the address, size of the window, colours, whether networks are trained
PICTURES = (
    ("page_network", "", LAPTOP, "light", False),
    ("page_residual", "tab=residual&depth=100&width=128", LAPTOP, "light", False),
    ("page_bayes", "tab=bayes&width=64", LAPTOP, "dark", False),
    ("page_extrapolation", "tab=extrapolation&width=128", LAPTOP, "light", True),
    ("page_phone", "", PHONE, "light", False),
    ("page_phone_dark", "tab=residual&depth=100&width=128", PHONE, "dark", False),
)
COLOURS = 128  # of a picture, which has few
PATIENCE = 300_000  # milliseconds


def picture(chromium: BrowserType, address: str, name: str, query: str, size, colours, trains: bool) -> None:
    width, height = size
    with tempfile.TemporaryDirectory() as profile:
        context = chromium.launch_persistent_context(
            profile,
            executable_path=CHROMIUM,
            headless=True,
            args=["--no-sandbox", "--disable-gpu"],
            viewport={"width": width, "height": height},
            color_scheme=colours,
        )
        page = context.pages[0]
        page.set_default_timeout(PATIENCE)
        page.goto(f"{address}?{query}")
        page.locator(f'body[data-refined="{query}"]').wait_for(state="attached")
        if trains:
            page.locator("#train").click()
        if trains or not query:  # the default state trains by itself
            page.locator('body[data-trained="finished"]').wait_for(state="attached")
        file = FOLDER / f"{name}.png"
        page.screenshot(path=file)
        context.close()
    with Image.open(file) as image:
        image.convert("RGB").quantize(COLOURS).save(file, optimize=True)
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB", flush=True)


def main() -> None:
    with server() as (address, _), sync_playwright() as playwright:
        for one in PICTURES:
            picture(playwright.chromium, address, *one)


if __name__ == "__main__":
    main()
