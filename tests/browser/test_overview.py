"""Home, channel status, wallet in a browser: the first call, a channel that is down, a code."""

import json
import re

import pytest
from playwright.sync_api import expect

from store.channels.status import DOWN_CALLS
from tests.browser.world import MODEL

PATHS = ("/", "/status", "/wallet")
FAULT = "[[demo status=503]]"
BROKEN = "claude-sonnet-4-5"


def test_the_first_call_appears_by_itself_on_the_empty_home(visit, world, picture):
    page = visit("carol")
    expect(page.get_by_text("Waiting for the first call")).to_be_visible()
    expect(page.locator("#first-call")).to_contain_text("$SLUICE_API_KEY")
    expect(page.locator("#first-call")).to_contain_text(world.base_url)
    picture(page, "home-empty")
    assert world.call("carol")[0] == 200
    expect(page.get_by_text("Latest failures")).to_be_visible()
    expect(page.locator(".figures").get_by_text("Calls, 24 h")).to_be_visible()
    expect(page.locator("table code", has_text=MODEL).first).to_be_visible()
    picture(page, "home-first-call")


def test_a_channel_goes_down_and_the_status_page_says_so(visit, world, picture):
    page = visit("alice", "/status")
    row = page.locator("tr.row", has_text=BROKEN)
    expect(row).to_contain_text("Available")
    for _ in range(DOWN_CALLS + 2):
        world.call("alice", BROKEN, FAULT)
    for _ in range(20):
        page.reload()
        if "Down" in row.text_content():
            break
        page.wait_for_timeout(500)
    expect(row).to_contain_text("Down")
    reason = page.locator("tr.reason")
    expect(reason).to_contain_text("Down in default since")
    expect(reason).to_contain_text("calls failed in the last 24 h")
    expect(reason.get_by_role("link", name="Failed calls")).to_be_visible()
    picture(page, "status-down")
    page.goto("/")
    expect(page.get_by_text(f"{BROKEN} is down in default")).to_be_visible()


def test_filters_of_the_status_page_change_it_in_place(visit):
    page = visit("boss", "/status")
    page.keyboard.press("/")
    page.keyboard.type("gpt")
    expect(page.locator("tr.row", has_text=BROKEN)).to_have_count(0)
    page.wait_for_url(re.compile("text=gpt"))
    expect(page.locator("#find")).to_be_focused()
    page.locator("#find").fill("")
    page.get_by_role("link", name="coding ×0.5").click()
    page.wait_for_url(re.compile("group=coding"))
    expect(page.locator("tr.row", has_text=MODEL)).to_contain_text("Not offered")
    page.go_back()
    expect(page.locator("tr.row", has_text=MODEL)).to_contain_text("Available")


def test_a_bar_says_its_hour_and_the_name_is_copied(visit, world):
    assert world.call("alice")[0] == 200
    page = visit("alice", "/status?text=gpt")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    bars = page.locator("td.hours a")
    box = bars.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 5)
    expect(bars).to_have_attribute("title", re.compile(r": \d+ calls, all succeeded|no calls"))
    page.locator("td.model button.copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == MODEL


def test_a_code_is_redeemed_by_keyboard_alone(visit, world, picture):
    [made] = json.loads(world.gateway.run("code", "create", "--amount", "5", "--json"))
    page = visit("alice", "/wallet")
    page.locator("#code").focus()
    page.keyboard.type(made["code"])
    page.keyboard.press("Enter")
    expect(page.get_by_text("This code is worth 5 USD.")).to_be_visible()
    expect(page.get_by_role("button", name="Redeem 5 USD")).to_be_focused()
    picture(page, "wallet-confirm")
    page.keyboard.press("Enter")
    expect(page.locator(".toast")).to_contain_text("5 USD redeemed.")
    expect(page.locator(".ledger tr.row").first).to_contain_text("Redeemed")
    page.locator("#code").fill(made["code"])
    page.said.clear()
    page.get_by_role("button", name="Redeem", exact=True).click()
    expect(page.locator(".problem")).to_contain_text("was already used")
    expect(page.locator("#code")).to_be_focused()
    page.said.clear()  # the browser notes the answer 400


def test_who_pays_first_is_changed_and_changed_back(visit, world):
    plan = {"name": "monthly", "quota": "20", "window": "month", "days": 30}
    world.gateway.apply({"plan": [plan], "subscription": [{"user": "carol", "plan": "monthly"}]})
    page = visit("carol", "/wallet")
    payers = page.locator(".order > .payer")
    expect(payers.first).to_contain_text("Plan monthly")
    page.get_by_text("Change", exact=True).click()
    page.get_by_role("button", name="Wallet, then plan").click()
    expect(page.locator(".toast")).to_contain_text("Payment order changed.")
    expect(payers.first).to_contain_text("Wallet")
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(payers.first).to_contain_text("Plan monthly")


def test_the_search_of_a_phone_opens_when_it_is_used(visit):
    page = visit("alice", "/keys", "phone")
    find = page.locator("#find")
    assert find.bounding_box()["width"] < 50
    find.focus()
    assert find.bounding_box()["width"] > 150
    find.fill("lap")
    expect(page.get_by_text("laptop").first).to_be_visible()


@pytest.mark.parametrize("width", ["desk", "tablet", "phone"])
@pytest.mark.parametrize("path", PATHS)
def test_no_page_is_wider_than_its_window(visit, path, width, picture):
    page = visit("alice", path, width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    picture(page, f"{path.strip('/') or 'home'}-{width}")


def test_the_pages_are_reached_by_their_keys(visit):
    page = visit("alice")
    for key, path in (("s", "/status"), ("w", "/wallet"), ("h", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(re.compile(f"{path}$"))
