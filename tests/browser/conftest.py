"""A real browser with a real gateway: Debian's Chromium, driven by Playwright.

The headless shell takes a third of the CPU of the full browser, and is sufficient.

`world` is a running gateway with the Hub, a scripted vendor, two members and an administrator.
`visit(name)` is a page of a user who has signed in. Console messages, violations of the content
security policy and failed loads fail the test, unless it removes them with `page.said.clear()`.
"""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.world import World
from tests.support.upstream import ScriptedUpstream

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    # One process for all pages, since all are of one site, and none for unused features.
    *("--process-per-site", "--renderer-process-limit=1", "--in-process-gpu"),
    "--disable-software-rasterizer",
)
WIDTHS = {"desk": (1440, 900), "tablet": (768, 1024), "phone": (360, 740)}
PATIENCE_MS = 15_000
expect.set_options(timeout=PATIENCE_MS)
SHOTS = os.environ.get("SLUICE_SCREENSHOTS")  # a folder for pictures of pages
UNIMPORTANT = ("favicon",)
# A page behaves as without scripts until they run; this keeps tests from clicking before that.
WAIT_FOR_SCRIPTS = """
const nothing = new CSSStyleSheet();
nothing.replaceSync("* { pointer-events: none !important; }");
document.adoptedStyleSheets = [nothing];
addEventListener("DOMContentLoaded", () => { document.adoptedStyleSheets = []; });
"""


def pytest_collection_modifyitems(items):
    if CHROMIUM is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="Chromium is not installed"))


@pytest.fixture(scope="module")
def chromium():
    """Yield the browser, closed with its module: Playwright's loop must not run beside other
    loops."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def scripted_vendor():
    with ScriptedUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def world(tmp_path_factory, scripted_vendor):
    """Yield a running gateway with its Hub; shared by a module."""
    with World(tmp_path_factory.mktemp("world"), scripted_vendor) as made:
        yield made


@pytest.fixture
def open_page(chromium):
    """Return open_page(base_url, width="desk", **options): a page in a fresh browser context."""
    with contextlib.ExitStack() as stack:
        pages = []

        def start(base_url, width="desk", **options):
            wide, high = WIDTHS[width]
            context = chromium.new_context(
                base_url=base_url,
                viewport={"width": wide, "height": high},
                **{"locale": "en-GB", "timezone_id": "Europe/Berlin", **options},
            )
            stack.callback(context.close)
            context.set_default_timeout(PATIENCE_MS)
            if options.get("java_script_enabled", True):
                context.add_init_script(WAIT_FOR_SCRIPTS)
            page = context.new_page()
            press_after_scripts(page)
            page.said = listen(page)
            pages.append(page)
            return page

        yield start
        said = [line for page in pages for line in page.said]
    assert not said, said


def press_after_scripts(page):
    press = page.keyboard.press

    def press_later(key, **options):
        page.wait_for_load_state("domcontentloaded")
        press(key, **options)

    page.keyboard.press = press_later


def listen(page):
    """Record the problems of a page as they happen."""
    said = []

    def note(line):
        if not any(word in line for word in UNIMPORTANT):
            said.append(line)

    page.on(
        "console", lambda one: one.type in ("error", "warning") and note(f"console: {one.text}")
    )
    page.on("pageerror", lambda error: note(f"script: {error}"))
    return said


@pytest.fixture
def visit(world, open_page):
    """Return visit(name, path="/", width="desk", …): a page of a user who has signed in."""

    def start(name, path="/", width="desk", **options):
        page = open_page(world.hub_url, width, **options)
        page.context.add_cookies(world.cookies_of(name))
        page.goto(path)
        return page

    return start


@pytest.fixture
def picture(request):
    """Return picture(page, name), which saves a picture of a page if SLUICE_SCREENSHOTS is set."""

    def take(page, name):
        if SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)

    return take
