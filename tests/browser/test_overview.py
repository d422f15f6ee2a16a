"""Home for administrators in a browser: choices in place, long names, and a page that brings itself
up to date."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.world import MODEL
from tests.support.client import wait_until

LONG = "a-name-of-128-characters-" + "x" * 103
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
    """Calls of two users, one of a model and through a channel with long names."""
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
