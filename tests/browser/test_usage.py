"""Usage in a browser: a failed call found by its error, exports, the live tail, keys, a phone."""

import csv
import io
import re

import pytest
from playwright.sync_api import expect

from tests.browser.world import MODEL

FAULT = "[[demo status=503]]"
SECONDS = 15_000


@pytest.fixture(scope="module")
def called(world):
    """Make good calls, one that fails upstream, one that is refused."""
    for _ in range(3):
        assert world.call() == 200
    assert world.call(prompt=FAULT) >= 500
    assert world.call(model="no-such-model") == 404
    return world


def table(page):
    return page.locator("table.usage tbody tr.row")


def see(page, count):
    """Reload the page until the calls are in the store."""
    for _ in range(40):
        if table(page).count() >= count:
            return
        page.wait_for_timeout(250)
        page.reload()
    expect(table(page)).to_have_count(count)


def test_a_failed_call_is_found_by_its_error(visit, called):
    page = visit("alice", "/usage")
    see(page, 5)
    expect(page.locator(".kinds")).to_contain_text("not ok")
    page.locator(".kinds .kind", has_text="Upstream").first.click()
    page.wait_for_url(re.compile(r"error_code=upstream_"))
    expect(table(page)).to_have_count(1)
    table(page).first.locator("a").click()
    drawer = page.locator("dialog.drawer")
    expect(drawer).to_contain_text("503 after")
    expect(drawer).to_contain_text("Nothing was charged")
    expect(page).to_have_url(re.compile(r"/usage/[0-9A-Z]{26}$"))
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    expect(page).to_have_url(re.compile(r"/usage\?.*error_code=upstream_"))
    page.locator(".chip.set .remove").click()
    expect(table(page)).not_to_have_count(1)


def test_the_export_is_the_rows(visit, called):
    page = visit("alice", "/usage?outcome=ok")
    see(page, 3)
    page.keyboard.press("e")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="CSV", exact=True).click()
    with open(downloading.value.path(), encoding="utf-8") as file:
        exported = [row["id"] for row in csv.DictReader(io.StringIO(file.read()))]
    shown = table(page).evaluate_all("rows => rows.map((row) => row.dataset.id)")
    assert exported == sorted(shown) and len(exported) >= 3


def test_the_live_tail_shows_a_call_and_pauses(visit, called):
    page = visit("alice", "/usage")
    see(page, 5)
    live = page.locator("[data-tail]")
    expect(live).to_contain_text("Live")
    page.wait_for_timeout(1_500)  # now the tail is watching
    before = table(page).count()
    assert called.call(prompt="a new one") == 200
    expect(page.locator("tr.row.new")).to_have_count(1, timeout=SECONDS)
    assert table(page).count() == before + 1
    expect(live).to_contain_text("1 new in 10 s")
    page.keyboard.press("p")
    expect(live).to_contain_text("Paused")
    assert called.call(prompt="another one") == 200
    assert called.call("carol") == 200
    expect(live).to_contain_text("1 waiting", timeout=SECONDS)
    assert table(page).count() == before + 1
    page.keyboard.press("p")
    expect(table(page)).to_have_count(before + 2, timeout=SECONDS)


def test_by_keyboard_alone(visit, called):
    page = visit("alice", "/usage")
    see(page, 5)
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    drawer = page.locator("dialog.drawer")
    expect(drawer).to_be_visible()
    first = drawer.locator("h2 code").text_content()
    page.keyboard.press("j")
    expect(drawer.locator("h2 code")).not_to_have_text(first)
    drawer.get_by_role("button", name="Previous").press("Enter")
    expect(drawer.locator("h2 code")).to_have_text(first)
    expect(drawer.get_by_role("button", name="Previous")).to_be_focused()
    page.keyboard.press("Escape")
    expect(drawer).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("not available")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("text=not"))
    expect(table(page)).to_have_count(1)
    expect(table(page)).to_contain_text("Model not offered")


def test_filters_are_added_from_the_menu(visit, called):
    page = visit("alice", "/usage")
    page.keyboard.press("Tab")
    page.locator("#content").focus()
    page.keyboard.press("f")
    expect(page.get_by_label("result", exact=True)).to_be_focused()
    page.get_by_label("model", exact=True).fill(MODEL)
    page.get_by_role("button", name="Apply").click()
    page.wait_for_url(re.compile("model="))
    expect(page.locator(".chip.set")).to_contain_text(MODEL)
    page.go_back()
    expect(page.locator(".chip.set")).to_have_count(0)


def test_a_day_is_the_same_calls_at_home_and_in_usage(visit, called):
    page = visit("alice", "/usage")
    see(page, 5)
    page.goto("/")
    figure = page.locator(".figures a", has_text="Calls, 24 h")
    calls = figure.locator(".figure").inner_text()
    figure.click()
    page.wait_for_url(re.compile("/usage"))
    expect(page.locator(".usage-top .figure").first).to_have_text(calls)
    expect(table(page)).to_have_count(int(calls))


def test_more_kinds_of_errors_are_a_table_in_place(visit, called):
    """The last test here, because its faults open circuits."""
    for status in (400, 401, 429, 500, 503):
        called.call("carol", prompt=f"[[demo status={status}]]")
    called.call("carol", model="no-such-model")
    called.call("carol", path="/v1/responses")
    page = visit("carol", "/usage?outcome=refused,upstream_error")
    see(page, 7)
    page.locator(".more-kinds").click()
    page.wait_for_url(re.compile("by=error_code"))
    expect(page.locator("table.groups")).to_contain_text("Model not offered")
    expect(page.locator(".chip.set").first).to_contain_text("Refused")  # the filters still apply
