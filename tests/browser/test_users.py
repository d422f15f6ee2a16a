"""Users in a real browser: a leaked secret disabled in a few clicks, two administrators with one
form, an invite from its creation to the first page."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.looks import axe_faults
from tests.browser.world import SECRETS
from tests.handlers.hub.browser import Browser
from tests.support.client import wait_until

CLICKS = 5  # at most, from a leaked secret to 401


@pytest.fixture
def clicks():
    """Return clicks(locator), which clicks; clicks.count() is the number of clicks."""
    pressed = []

    def press(locator):
        pressed.append(locator)
        locator.click()

    press.count = lambda: len(pressed)
    return press


def answers(world, user, status):
    """Return True once a user's call is answered with this status; the gateway needs a second."""
    return wait_until(lambda: world.call(user) == status, 10)


def test_from_a_leaked_secret_to_401(visit, world, clicks):
    assert world.call("carol") == 200
    page = visit("boss", "/")
    clicks(page.locator("nav.side").get_by_role("link", name="Keys").last)
    page.get_by_label("Find the key of a leaked secret").fill(SECRETS["carol"])
    clicks(page.get_by_role("button", name="Find key"))
    row = page.locator("tr.row")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("carol")
    clicks(row.get_by_role("button", name="Disable"))
    expect(page.locator(".toast")).to_contain_text("carol/editor disabled.")
    assert answers(world, "carol", 401) and clicks.count() <= CLICKS
    page.keyboard.press("z")
    expect(row.get_by_role("button", name="Disable")).to_be_visible()
    assert answers(world, "carol", 200)
    assert SECRETS["carol"] not in page.content() + page.url


def test_a_key_is_stopped_on_the_page_of_its_user(visit, world):
    page = visit("boss", "/admin/users/alice")
    page.get_by_role("link", name="Disable all").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Reason").fill("lost")
    dialog.get_by_role("button", name="Disable all keys").click()
    row = page.locator("#keys tr.row").filter(has_text="laptop")
    expect(row).to_contain_text("lost")
    assert answers(world, "alice", 401)
    row.get_by_role("button", name="Enable").click()
    expect(row.get_by_role("button", name="Disable")).to_be_visible()
    assert page.url.endswith("/admin/users/alice#keys") and answers(world, "alice", 200)


def test_a_menu_closes_under_the_dialog_that_it_opens(visit, world):
    page = visit("boss", "/admin/users/carol")
    page.locator(".head").get_by_label("More actions").click()
    page.get_by_role("link", name="Reset password by link").click()
    expect(page.locator("dialog[open]")).to_contain_text("New password for carol")
    expect(page.locator("details.menu[open]")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator(".head summary")).to_be_focused()


def test_two_forms_of_one_user_keep_both_changes(visit, world):
    page = visit("boss", "/admin/users/carol")
    page.locator("#facts").get_by_role("link", name="Edit").click()
    drawer = page.locator("dialog.form-drawer")
    drawer.get_by_label("Tokens a minute").fill("4000")
    other = Browser(world.hub_port)
    other.cookies["sluice_session"] = world.cookies_of("boss")[0]["value"]
    other.get("/account")
    assert other.api("PATCH", "/api/admin/users/carol", {"rpm": 77}).status == 200
    drawer.get_by_role("button", name="Save user").click()
    expect(drawer.locator(".notice")).to_contain_text("boss changed carol at")
    expect(drawer.get_by_label("Calls a minute")).to_have_value("77")
    page.said.clear()  # the 409
    drawer.get_by_role("button", name="Keep both").click()
    expect(page.locator("#facts")).to_contain_text("77 calls a minute, 4,000 tokens a minute")


def test_an_invite_leads_to_the_first_page(visit, world, open_page):
    page = visit("boss", "/admin/users")
    page.get_by_role("link", name="Invite user").click()
    drawer = page.locator("dialog.form-drawer")
    drawer.get_by_label("Starting balance").fill("2")
    drawer.get_by_role("button", name="Create link").click()
    address = drawer.locator("#link-address").inner_text()
    assert address.startswith(f"{world.hub_url}/join/")
    guest = open_page(world.hub_url)
    guest.goto(address)
    assert not axe_faults(guest)
    guest.get_by_label("Name").fill("dora")
    guest.get_by_label("Password").fill("a long password")
    guest.get_by_role("button", name="Create account").click()
    expect(guest.locator("nav.side")).to_contain_text("dora")
    page.goto("/admin/invites")
    expect(page.locator("tbody tr").first).to_contain_text("Joined dora")


def test_a_statement_is_a_sheet_of_its_figures_alone(visit, world, picture):
    page = visit("carol", "/wallet/statement")
    shown = page.locator("section.statement").all_inner_texts()
    page.emulate_media(media="print")
    expect(page.locator("nav.side")).to_be_hidden()
    expect(page.locator("form.filters")).to_be_hidden()
    expect(
        page.get_by_text("Closing balance").or_(page.get_by_text("So far")).first
    ).to_be_visible()
    printed = page.locator("section.statement").all_inner_texts()
    assert printed[1:] == shown[1:] and "carol" in printed[0]
    for time in page.locator("section.statement time").all_inner_texts():
        assert re.fullmatch(r"\d+ \w+", time)  # the date, even for today
    picture(page, "statement-print")
