"""Models in a real browser: from the list to the page of one, its snippets, and a comparison."""

import re

from playwright.sync_api import expect


def test_from_the_list_to_a_page_and_a_comparison(visit, picture):
    page = visit("alice", "/models")
    expect(page.get_by_role("heading", level=1)).to_have_text("Models")
    row = page.locator("table.models tr.row").first
    name = row.locator("td.name code").inner_text()
    picture(page, "models")
    row.locator("td.what").click(force=True)  # the row is its link
    page.wait_for_url(re.compile(r"/models/[^/?]+\?group="))
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    picture(page, "model")

    use = page.get_by_role("group", name="Use it")
    use.get_by_role("link", name="curl", exact=True).click()
    expect(page.locator("#use-it")).to_contain_text("curl -N")
    page.go_back()
    expect(page.locator("#use-it")).not_to_contain_text("curl -N")
    page.get_by_role("button", name="History").click()
    expect(page.locator("#history")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#history")).to_be_hidden()

    page.get_by_role("link", name="Compare two").click()
    page.wait_for_url(re.compile(r"/try\?.*with="))
    expect(page.locator('[name="with"]')).to_have_count(1)


def test_prices_are_edited_in_cells_and_two_tabs_do_not_undo_each_other(visit, picture):
    first = visit("boss", "/admin/models")
    first.get_by_role("link", name="Edit prices").click()
    first.wait_for_url("**/admin/prices/edit")
    second = first.context.new_page()
    second.goto(first.url)
    for page, price in ((first, "7.5"), (second, "9")):
        cell = page.locator("td.cell > input").first
        cell.focus()
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type(price)
        expect(page.locator("td.cell.own")).to_have_count(1)
        expect(page.locator("[data-edited]")).to_have_text("1 model changed")
        page.get_by_role("button", name="Save prices").click()
        first.wait_for_url("**/admin/models")
    expect(first.locator("tr.row").first).to_contain_text("7.5")
    expect(second.get_by_role("alert")).to_contain_text("7.5")
    expect(second.locator("td.cell > input").first).to_have_value("9")
    picture(second, "prices-outdated")
