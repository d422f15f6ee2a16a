"""A session that ends while its user works: nothing is lost, and work continues after a sign-in."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.world import PASSWORDS
from tests.handlers.hub.browser import Browser


def reload_until(page, shown):
    """Reload a page until something is in the store."""
    for _ in range(40):
        if shown.count():
            return
        page.wait_for_timeout(250)
        page.reload()
    raise AssertionError("it is not shown")


@pytest.fixture
def away(world, open_page):
    """Yield a page of alice, with `end_session()` and `sign_in()`, which act like another tab."""
    page = open_page(world.hub_url)
    browser = Browser(world.hub_port)

    def sign_in():
        assert browser.sign_in("alice", PASSWORDS["alice"]).status == 303
        cookie = {"name": "sluice_session", "value": browser.cookies["sluice_session"]}
        page.context.add_cookies([{**cookie, "url": world.hub_url}])
        page.evaluate("window.dispatchEvent(new Event('focus'))")

    def end_session():
        browser.get("/account")
        assert browser.send("/sign-out", []).status == 303

    page.end_session, page.sign_in = end_session, sign_in
    sign_in()
    page.goto("/keys")
    return page


def test_a_drawer_keeps_its_fields(away):
    away.get_by_role("link", name="laptop", exact=True).click()
    away.get_by_role("link", name="Edit").first.click()
    field = away.locator("dialog input[name='limit']")
    field.fill("77.5")
    away.end_session()
    away.locator("dialog form button.primary").click()
    notice = away.locator("dialog [data-session]")
    expect(notice).to_contain_text("Your session has ended")
    expect(notice.get_by_role("link", name="Sign in")).to_have_attribute("target", "_blank")
    away.said.clear()  # the console's message about the refused form
    away.sign_in()
    expect(notice).to_have_count(0)
    expect(field).to_have_value("77.5")
    away.locator("dialog form button.primary").click()
    expect(away.locator("dialog.drawer")).to_have_count(0)
    expect(away.get_by_text("77.5").first).to_be_visible()


def test_filters_go_on_by_themselves(away):
    away.end_session()
    away.locator("#find").fill("lap")
    notice = away.locator("main [data-session]")
    expect(notice).to_be_visible()
    expect(away.locator("#find")).to_have_value("lap")
    away.sign_in()
    away.wait_for_url(re.compile("=lap"))
    expect(notice).to_have_count(0)
    expect(away.get_by_role("link", name="laptop", exact=True)).to_be_visible()


def test_a_question_that_was_not_asked_stays_and_is_asked_after_the_next_sign_in(away):
    away.goto("/try?model=gpt-4.1")
    prompt = away.get_by_placeholder("Message.")
    prompt.fill("Who is there?")
    away.end_session()
    away.get_by_role("button", name="Send").click()
    notice = away.locator("main [data-session]")
    expect(notice).to_contain_text("Your session has ended")
    expect(prompt).to_have_value("Who is there?")
    expect(away.locator(".did")).to_have_count(0)
    away.said.clear()
    away.sign_in()
    expect(notice).to_have_count(0)
    away.get_by_role("button", name="Send").click()
    expect(away.locator(".did")).to_contain_text("Ok 200")


def test_the_live_tail_says_so_and_goes_on(away):
    away.route("**/usage/tail", lambda route: route.fulfill(content_type="text/html"))
    away.goto("/usage")
    away.end_session()
    notice = away.locator("main [data-session]")
    expect(notice).to_be_visible()
    away.unroute("**/usage/tail")
    away.said.clear()
    away.sign_in()
    expect(notice).to_have_count(0)
    expect(away.locator("[data-tail]")).to_contain_text("Live")


def test_a_row_opens_after_the_next_sign_in(away, world):
    assert world.call() == 200
    away.goto("/usage")
    row = away.locator("table.usage tr.row").first
    reload_until(away, row)
    away.end_session()
    row.locator("td").nth(2).click(force=True)  # the link covers it
    expect(away.locator("main [data-session]")).to_contain_text("Your session has ended")
    expect(row).to_be_visible()
    away.said.clear()
    away.sign_in()
    expect(away.locator("dialog.drawer")).to_contain_text("gpt-4.1")


def test_a_form_of_a_whole_page_is_sent_again_and_passwords_are_typed_again(away):
    away.goto("/keys/new")
    away.get_by_label("Name", exact=True).fill("tablet")
    away.end_session()
    away.get_by_role("button", name="Create key").click()
    expect(away.get_by_role("heading", name="Your session has ended")).to_be_visible()
    away.said.clear()
    away.sign_in()
    away.get_by_role("button", name="Continue").click()
    expect(away.get_by_role("heading", name="You have signed in again")).to_be_visible()
    away.said.clear()
    away.get_by_role("button", name="Continue").click()
    expect(away.locator("#secret")).to_be_visible()
    away.get_by_label("I have stored it").check()

    away.goto("/account")
    away.get_by_label("Old password").fill("not the password")
    away.get_by_label("New password").fill("a long enough password")
    away.end_session()
    away.get_by_role("button", name="Change password").click()
    expect(away.get_by_label("Old password")).to_have_value("")
    expect(away.get_by_label("New password")).to_have_value("")
    away.said.clear()
