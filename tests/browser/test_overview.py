"""Home for administrators in a browser: choices in place, long names, and a page that refreshes
itself."""

import os
import re
import signal

import pytest
from playwright.sync_api import expect

from tests.browser.world import MODEL, PASSWORDS, SECRETS
from tests.handlers.hub.browser import Browser
from tests.support.client import wait_until

LONG = "a-name-of-128-characters-" + "x" * 103
BALANCE = "0.004"
RED = "rgb(176, 39, 31)"
HANG_PATIENCE_S = 60
MINUTE_MS = 60_000
PATIENCE_S = 20
WIDE = "document.documentElement.scrollWidth - innerWidth"
CUT = """() => Math.max(...[...document.querySelectorAll(".table-box")].map(
  (box) => box.scrollWidth - box.clientWidth))"""
OVERLAPS = """() => [...document.querySelectorAll("td, th")].filter((cell) =>
  cell.clientWidth && cell.scrollWidth > cell.clientWidth + 1
  && getComputedStyle(cell).overflow === "visible").map((cell) => cell.textContent.slice(0, 40))"""


@pytest.fixture(scope="module", autouse=True)
def calls(world):
    """Make calls of two users, one of a model and through a channel with long names."""
    world.gateway.apply(
        {
            "model": [{"name": LONG, "price": {"input": "2", "output": "8"}}],
            "channel": [
                {
                    **{"name": LONG, "vendor": "demo", "base_url": world.vendor.url},
                    **{"family": "chat_completions", "keys": ["sk-of-long-names"]},
                    **{"models": {LONG: "demo-chat"}, "groups": ["default"], "cost_factor": "0.5"},
                }
            ],
            "user": [{"name": LONG, "balance": "0"}],
        }
    )
    assert wait_until(lambda: world.call("alice", model=LONG) == 200, PATIENCE_S)
    assert world.call("carol") == 200


def test_spans_and_groups_change_in_place(visit):
    page = visit("boss", "/")
    spans = page.locator(".figures.spans")
    expect(spans.locator("[aria-current]")).to_contain_text("30 days")
    spans.get_by_text("7 days", exact=True).click()
    page.wait_for_url(re.compile("span=7d"))
    expect(spans.locator("[aria-current]")).to_contain_text("7 days")
    page.get_by_role("group", name="Charged by").get_by_role("link", name="Users").click()
    page.wait_for_url(re.compile("span=7d.*by=users"))
    expect(page.locator("table.charged")).to_contain_text("alice")
    page.go_back()
    expect(page.locator("table.charged")).to_contain_text(MODEL)
    page.locator("table.charged tr.row a").first.click()
    page.wait_for_url(re.compile(r"/usage\?of=all&model="))


@pytest.mark.parametrize("width", [360, 768, 1280, 1440])
def test_long_names_stay_in_their_columns(visit, width):
    page = visit("boss", "/?by=channels")
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate(WIDE) <= 0
    assert page.evaluate(CUT) == 0
    assert page.evaluate(OVERLAPS) == []


def test_the_page_brings_itself_up_to_date_and_does_not_move(visit, world):
    page = visit("boss", "/account")
    page.clock.install()
    page.goto("/")
    before = page.locator(".figures.spans a").nth(2).inner_text()
    page.mouse.wheel(0, 300)
    page.wait_for_function("scrollY > 0")
    top = page.evaluate("scrollY")
    assert world.call("alice") == 200
    page.clock.fast_forward(MINUTE_MS + 1)
    expect(page.locator(".figures.spans a").nth(2)).not_to_have_text(before)
    assert page.evaluate("scrollY") == top


def test_a_part_that_was_late_comes_by_itself(visit):
    page = visit("boss", "/account")
    late = '<div class="bones" data-late></div>'

    def answer(route):
        if "wait=1" in route.request.url:
            route.fallback()
            return
        text = route.fetch().text()
        head, _, rest = text.partition('<table class="charged">')
        route.fulfill(body=head + late + rest.partition("</table>")[2], content_type="text/html")

    page.route(re.compile(r"/(\?.*)?$"), answer)
    page.goto("/")
    expect(page.locator("table.charged tr.row").first).to_be_visible()
    expect(page.locator("[data-late]")).to_have_count(0)


def test_who_lacks_money_reads_it_first_and_red(visit, world, monkeypatch):
    """First that the money will not last, then that calls are refused, also on the page where one
    tries them."""
    monkeypatch.setitem(PASSWORDS, "dave", "an empty purse")
    monkeypatch.setitem(SECRETS, "dave", "sk-dave-of-the-browser-tests")
    user = {"name": "dave", "password": PASSWORDS["dave"], "balance": BALANCE}
    key = {"user": "dave", "name": "desk", "group": "default", "secret": SECRETS["dave"]}
    world.gateway.apply({"user": [user], "key": [key]})
    assert wait_until(lambda: world.call("dave") == 200, PATIENCE_S)
    dave = Browser(world.hub_port)
    dave.sign_in("dave", PASSWORDS["dave"])
    dave.get("/account")
    assert dave.api("PATCH", "/api/wallet", {"low_below": BALANCE}).status == 200
    page = visit("dave", "/")
    expect(page.locator(".notice.warn")).to_contain_text("Balance 0.00")
    assert wait_until(lambda: world.call("dave") == 429, PATIENCE_S)
    page = visit("dave", f"/try?model={MODEL}")
    page.get_by_placeholder("Message.").fill("Hello?")
    page.keyboard.press("Control+Enter")
    turns = page.locator(".try-turns")
    expect(turns).to_contain_text(re.compile("too little money: 0.00.* is left, 0.00.* is needed"))
    expect(turns.locator("a[href^='/wallet']").first).to_be_visible()
    for name, words in (("dave", "calls refused for money"), ("boss", "dave: ")):
        page = visit(name, "/")
        first = page.locator(".needs > li").first
        expect(first).to_contain_text(words)
        expect(first.locator("svg").first).to_have_css("color", RED)
        expect(first.get_by_role("link")).to_be_visible()


def reloaded_until(page, condition):
    """Reload the page until a condition holds."""
    for _ in range(2 * HANG_PATIENCE_S):
        if condition():
            return
        page.wait_for_timeout(500)
        page.reload()
    raise AssertionError("it did not come")


@pytest.mark.long
def test_a_worker_that_hangs_is_a_banner_on_all_pages(visit, world):
    page = visit("boss", "/keys")
    banner = page.locator(".notice", has_text="worker does not answer")
    expect(banner).to_have_count(0)
    pid = world.gateway.worker_pids()[0]
    os.kill(pid, signal.SIGSTOP)
    reloaded_until(page, banner.count)
    for path in ("/usage", "/admin/users"):
        page.goto(path)
        expect(banner).to_be_visible()
        expect(banner.get_by_role("link")).to_have_attribute("href", "/admin/system")
    reloaded_until(page, lambda: not banner.count())
    assert pid not in world.gateway.worker_pids()  # another worker has replaced it
