"""The common frame of all pages in a browser: rows, the navigation, the keyboard."""

import re

import pytest
from playwright.sync_api import expect

GREY = "rgba(0, 0, 0, 0)"
LONG_NAME = "no-such-" + "model" * 24


@pytest.fixture(scope="module", autouse=True)
def calls(world):
    assert world.call() == 200
    world.call(model=LONG_NAME)


def test_a_row_opens_where_it_is_clicked_and_lights_up_only_if_it_opens(visit):
    page = visit("alice", "/keys")
    row = page.locator("tr.row").filter(has_text="laptop")
    row.locator("td").nth(2).click(force=True)  # the link covers it
    expect(page.get_by_role("heading", name="laptop")).to_be_visible()
    page.goto("/keys")
    row.get_by_role("link", name="Use").click()  # another link of the row
    expect(page).to_have_url(re.compile("/setup"))
    page = visit("boss", "/admin/audit")
    page.locator("tr.row td").nth(3).hover()
    shade = "element => getComputedStyle(element).backgroundColor"
    assert page.locator("tr.row").first.evaluate(shade) == GREY


def test_a_cell_with_a_title_opens_its_row_and_a_cut_name_gets_one(visit):
    page = visit("alice", "/")
    page.locator("table.failures td.why").first.click()
    expect(page.locator("dialog[open]")).to_contain_text("Refused")
    page.keyboard.press("Escape")
    page.locator("table.failures tr.row").first.hover()
    expect(page.locator("table.failures td code").first).to_have_attribute("title", LONG_NAME)


def test_a_drawer_begins_at_its_first_field_and_asks_before_it_drops_what_was_typed(visit):
    page = visit("boss", "/admin/groups")
    page.keyboard.press("n")
    field = page.locator("dialog[open] input[name='name']")
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.keyboard.press("n")
    field.fill("night shift")
    page.once("dialog", lambda question: question.dismiss())
    page.keyboard.press("Escape")
    expect(field).to_have_value("night shift")
    page.once("dialog", lambda question: question.accept())
    page.get_by_role("button", name="Close").click()
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_a_refused_form_leads_to_the_field_that_is_wrong(visit):
    page = visit("alice", "/keys")
    page.get_by_role("link", name="laptop", exact=True).click()
    page.get_by_role("link", name="Edit").first.click()
    limit = page.get_by_label("Spend limit")
    for submit in ("Save", "Create key"):  # in a drawer, on a page of its own
        limit.fill("abc")
        page.get_by_role("button", name=submit).click()
        expect(page.locator("#limit-problem")).to_be_visible()
        expect(limit).to_be_focused()
        page.said.clear()
        page.goto("/keys/new?name=x")


def test_a_base_font_of_24_px_gets_the_narrower_layout(visit):
    page = visit("boss", "/account")
    page.set_viewport_size({"width": 900, "height": 900})
    expect(page.locator("nav.tabs")).to_be_hidden()
    session = page.context.new_cdp_session(page)
    session.send("Page.setFontSizes", {"fontSizes": {"standard": 24, "fixed": 20}})
    for path in ("/", "/keys", "/usage?of=all", "/admin/channels", "/admin/users", "/wallet"):
        page.goto(path)
        expect(page.locator("nav.tabs")).to_be_visible()
        assert page.evaluate("getComputedStyle(document.documentElement).fontSize") == "24px"
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, (path, wide)
