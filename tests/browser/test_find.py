"""⌘K: a dialog over any page that leads to everything with a name."""

import re

from playwright.sync_api import expect


def test_typing_arrows_and_enter_lead_there(visit, picture):
    page = visit("boss", "/admin/codes")
    page.keyboard.press("Control+k")
    field = page.get_by_role("searchbox", name=re.compile("^Page, key"))
    expect(field).to_be_focused()
    field.press_sequentially("la")
    links = page.locator("dialog .found a")
    expect(links.filter(has_text="laptop")).to_have_count(1)
    picture(page, "find")
    field.fill("open")
    expect(links.first).to_contain_text("openai-main")
    page.keyboard.press("ArrowDown")
    expect(links.first).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/admin/channels/openai-main$"))


def test_enter_opens_the_first_and_escape_gives_the_page_back(visit):
    page = visit("alice", "/wallet", "phone")
    page.locator(".tabs summary").click()
    page.locator(".tabs").get_by_role("link", name="Find").click()
    field = page.get_by_role("searchbox", name=re.compile("^Page, key"))
    field.fill("laptop")
    expect(page.locator("dialog .found a")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/keys/[0-9A-Z]{26}$"))
    page.goto("/find?q=gpt")  # over its own page, too
    page.keyboard.press("Control+k")
    page.locator("dialog").get_by_role("searchbox").fill("laptop")
    expect(page.locator("dialog .found a")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/keys/[0-9A-Z]{26}$"))
    page.keyboard.press("Control+k")
    expect(field).to_be_focused()
    page.keyboard.press("Escape")
    expect(field).to_have_count(0)
