"""The frame of all pages in a browser: rows, the navigation, what a keyboard does."""

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
    page = visit("boss", "/admin/users")
    row = page.locator("tr.row").filter(has_text="alice")
    row.locator("td").nth(2).click(force=True)  # the link lies over it
    expect(page.locator("dialog[open]")).to_be_visible()
    page.keyboard.press("Escape")
    row.get_by_role("link", name="Keys").click()  # what the row has beside its link
    expect(page).to_have_url(re.compile("/admin/keys"))
    page.goto("/admin/audit")
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
