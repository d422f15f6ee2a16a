"""Actions of a member in a browser with a real gateway: home, channel status, wallet, keys, client
set-up; and the common parts of all pages: navigation, shortcuts, times."""

import re

import openai
from playwright.sync_api import expect

from tests.browser.world import MODEL

BROKEN = "claude-sonnet-4-5"
VISIBLE_MS = 8000


def test_the_first_call_appears_by_itself_on_the_empty_home(visit, world):
    page = visit("carol")
    expect(page.get_by_text("Waiting for the first call")).to_be_visible()
    expect(page.locator("#first-call")).to_contain_text("$SLUICE_API_KEY")
    expect(page.locator("#first-call")).to_contain_text(world.base_url)
    assert world.call("carol") == 200
    # the completed steps stay until their reader leaves them
    expect(page.get_by_text("The first call has arrived")).to_be_visible()
    expect(page.locator(".steps > .done")).to_have_count(2)
    address = page.get_by_role("link", name="Open call").get_attribute("href")
    assert address.startswith("/usage/0")
    page.reload()
    expect(page.get_by_text("The first call has arrived")).to_be_visible()
    page.get_by_role("link", name="Go to Home").click()
    expect(page.get_by_text("Latest failures")).to_be_visible()
    expect(page.locator(".figures").get_by_text("Calls, 24 h")).to_be_visible()
    expect(page.locator("table code", has_text=MODEL).first).to_be_visible()


def test_filters_of_models_change_it_in_place(visit):
    page = visit("boss", "/models")
    page.keyboard.press("/")
    page.keyboard.type("gpt")
    expect(page.locator("tr.row", has_text=BROKEN)).to_have_count(0)
    page.wait_for_url(re.compile("text=gpt"))
    expect(page.locator("#find")).to_be_focused()
    page.locator("#find").fill("")
    page.get_by_role("link", name="coding ×0.5").click()
    page.wait_for_url(re.compile("group=coding"))
    expect(page.locator("tr.row", has_text=MODEL)).to_contain_text("Not in coding")
    page.go_back()
    expect(page.locator("tr.row", has_text=MODEL)).to_contain_text("Available")


def test_a_bar_says_its_day_and_the_name_is_copied(visit, world):
    assert world.call("alice") == 200
    page = visit("alice", "/status?text=gpt")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    bars = page.locator("td.days a")
    box = bars.locator("svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 5)
    expect(bars).to_have_attribute(
        "title", re.compile(r": (1 call, it|\d+ calls, all) succeeded|no calls")
    )
    page.locator("td.model button.copy").click()
    assert page.evaluate("navigator.clipboard.readText()") == MODEL


def test_the_search_of_a_phone_opens_when_it_is_used(visit):
    page = visit("alice", "/keys", "phone")
    find = page.locator("#find")
    assert find.bounding_box()["width"] < 50
    find.focus()
    assert find.bounding_box()["width"] > 150
    find.fill("lap")
    expect(page.get_by_text("laptop").first).to_be_visible()


def test_navigation_at_each_width(visit):
    assert visit("alice").locator("a[href^='/admin']").count() == 0
    page = visit("boss")
    links = page.get_by_role("navigation").get_by_role("link")
    expect(links.filter(has_text="Audit log")).to_be_visible()
    page.set_viewport_size({"width": 768, "height": 1024})
    expect(page.locator(".side a[href='/usage']")).to_be_visible()
    expect(page.locator(".side a[href='/usage'] span")).to_be_hidden()
    page.set_viewport_size({"width": 360, "height": 740})
    expect(page.locator(".tabs a[href='/usage']")).to_be_visible()
    page.locator(".tabs summary").click()
    expect(page.locator(".tabs a[href='/wallet']")).to_be_visible()


def test_keys_lead_to_pages_and_show_themselves(visit):
    page = visit("alice", "/account")
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#shortcuts")).to_be_hidden()
    for key, path in (("m", "/models"), ("w", "/wallet"), ("h", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(re.compile(f"{path}$"))


def test_times_are_in_the_browsers_zone_and_utc_on_hover(visit):
    page = visit("alice", "/account")
    first = page.locator("time").first
    assert "UTC" in first.get_attribute("title") and "UTC" not in first.text_content()


def make(page, name):
    """Create a key in the drawer; return its secret."""
    page.goto("/keys")
    page.keyboard.press("n")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create key").click()
    secret = page.locator("#secret")
    expect(secret).to_be_visible()
    return secret.inner_text()


def leave(page):
    """Confirm that the secret is stored, so that the page can be left."""
    page.get_by_label("I have stored it").check()


def row(page, name):
    return page.locator("tr.row").filter(has=page.get_by_role("link", name=name, exact=True))


def reloaded_until(page, found):
    """Reload the page until it shows something, because recording takes a moment."""
    for _ in range(40):
        if found.count():
            return
        page.wait_for_timeout(VISIBLE_MS / 40)
        page.reload()
    raise AssertionError(f"not shown: {found}")


def test_a_key_is_made_and_used_with_an_official_sdk_and_its_record_seen(visit, world):
    page = visit("alice")
    secret = make(page, "sdk")
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    client = openai.OpenAI(base_url=f"{world.base_url}/v1", api_key=secret)
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}]
    )
    assert answer.choices[0].message.content
    with page.expect_download() as download:
        page.get_by_role("button", name="Download .env").click()
    assert download.value.suggested_filename == "sdk.env"
    assert f"SLUICE_API_KEY={secret}\n" in download.value.path().read_text()
    page.get_by_role("link", name="Done").click()
    reloaded_until(page, page.locator("td", has_text=re.compile("^Ok 200$")))
    expect(page.locator("td code", has_text=MODEL).first).to_be_visible()
    assert secret not in page.content()
    page.goto("/keys")
    expect(row(page, "sdk")).to_contain_text("OpenAI")


def test_a_secret_that_was_not_copied_asks_before_it_is_left(visit):
    page = visit("alice")
    make(page, "asks")
    asked = []

    def stay(dialog):
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", stay)
    page.locator("body").click()  # a browser asks only after some interaction
    page.goto("/keys")
    assert asked == ["beforeunload"]
    make(page, "asks-not")
    leave(page)
    page.goto("/account")
    assert asked == ["beforeunload"]
    page.get_by_role("button", name="Create token").click()
    page.locator(".secret").click()
    page.goto("/account")
    assert asked == ["beforeunload"] * 2
    page.get_by_role("button", name="Create token").click()
    page.get_by_role("link", name="I have stored it").click()
    expect(page.locator(".secret")).to_have_count(0)
    assert asked == ["beforeunload"] * 2


def test_snippets_of_each_client_and_a_test_call(visit):
    page = visit("alice")
    secret = make(page, "snippets")
    expect(page.locator("pre:visible")).to_contain_text(f"ANTHROPIC_AUTH_TOKEN={secret}")
    page.locator(".use-client", has_text="Codex").click()
    expect(page.locator("pre:visible").first).to_contain_text('wire_api = "responses"')
    page.locator(".segment:visible label", has_text="PowerShell").click()
    expect(page.locator("pre:visible").last).to_contain_text(f"$env:SLUICE_API_KEY = '{secret}'")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".tested")).to_contain_text("Ok")
    expect(page.locator("[data-result]")).to_contain_text("Recorded as")
    assert page.url.endswith("/keys/new")
    leave(page)


def test_by_keyboard_alone(visit):
    page = visit("alice")
    page.keyboard.press("g")
    page.keyboard.press("k")
    page.wait_for_url("**/keys")
    page.keyboard.press("/")
    page.keyboard.type("laptop")
    page.wait_for_url(re.compile(r"=laptop\b"))  # then the list no longer changes
    expect(page.locator("tr.row")).to_have_count(1)
    page.keyboard.press("Escape")
    page.locator("#find").blur()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="laptop")).to_be_visible()
    page.goto("/keys")
    page.keyboard.press("n")
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.keyboard.type("typed")
    page.keyboard.press("Enter")
    expect(page.locator("#secret")).to_be_visible()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.dataset.copyFrom === 'secret'"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
