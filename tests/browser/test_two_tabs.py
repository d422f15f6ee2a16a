"""Two tabs, and the list behind a change: nothing is reverted silently, and filters stay."""

import re

from playwright.sync_api import expect

FILTERED = re.compile(r"/keys\?search=lap$")


def test_another_tab_was_faster(visit):
    slow = visit("alice", "/keys")
    slow.get_by_role("link", name="laptop", exact=True).click()
    slow.get_by_role("link", name="Edit").first.click()
    slow.locator("dialog input[name='limit']").fill("88")
    fast = slow.context.new_page()
    fast.goto(slow.url)
    fast.locator("main form summary").first.click()
    fast.locator("form input[name='rpm']").fill("600")
    fast.locator("form button.primary").click()
    fast.wait_for_url(re.compile(r"/keys/[^/]+$"))
    slow.locator("dialog form button.primary").click()
    notice = slow.locator("dialog .outdated")
    expect(notice).to_contain_text("alice changed laptop")
    expect(notice).to_contain_text("Calls a minute")
    slow.said.clear()  # the console's message about the refused form
    notice.get_by_role("button", name="Keep both").click()
    expect(slow.locator("dialog.drawer")).to_have_count(0)
    expect(slow.get_by_text("88").first).to_be_visible()


def test_undo_stays_in_the_list(visit):
    page = visit("alice", "/keys?search=lap")
    page.locator("tr.row summary").first.click()
    page.get_by_role("button", name="Disable").first.click()
    undo = page.locator(".toast [data-undo]")
    expect(undo).to_be_visible()
    expect(page).to_have_url(FILTERED)
    undo.click()
    expect(page.locator(".toast")).to_contain_text("enabled")
    expect(page).to_have_url(FILTERED)


def test_a_drawer_leads_back_to_the_filtered_list(visit):
    page = visit("boss", "/admin/groups?search=de")
    page.locator("tr.row a").first.click()
    page.locator("dialog form button.primary").click()
    expect(page.locator(".toast")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/admin/groups\?search=de$"))
