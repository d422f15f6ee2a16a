"""Keys and client set-up in a real browser before a real gateway."""

import re

import openai
import pytest
from playwright.sync_api import expect

from tests.browser.world import MODEL, SECRETS

DOUBLED = "/v1/messages/v1/messages"
VISIBLE_MS = 8000


def make(page, name):
    """Makes a key by the drawer; its secret."""
    page.goto("/keys")
    page.keyboard.press("n")
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create key").click()
    secret = page.locator("#secret")
    expect(secret).to_be_visible()
    return secret.inner_text()


def leave(page):
    """Says that the secret is stored, so that the page lets go."""
    page.get_by_label("I have stored it").check()


def undo(page):
    """Presses the key, when the page's scripts are there to hear it."""
    page.wait_for_load_state("load")
    page.keyboard.press("z")


def row(page, name):
    return page.locator("tr.row").filter(has=page.get_by_role("link", name=name, exact=True))


def reloaded_until(page, found):
    """Loads the page again until it shows something: what is recorded takes a moment."""
    for _ in range(40):
        if found.count():
            return
        page.wait_for_timeout(VISIBLE_MS / 40)
        page.reload()
    raise AssertionError(f"not shown: {found}")


def test_a_key_is_made_and_used_with_an_official_sdk_and_its_record_seen(visit, world, picture):
    page = visit("alice")
    secret = make(page, "sdk")
    picture(page, "key-made")
    page.get_by_role("button", name="Copy", exact=True).first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    client = openai.OpenAI(base_url=f"{world.base_url}/v1", api_key=secret)
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "hello"}]
    )
    assert answer.choices[0].message.content
    page.get_by_role("link", name="Done").click()
    reloaded_until(page, page.locator("td", has_text=re.compile("^Ok 200$")))
    expect(page.locator("td code", has_text=MODEL).first).to_be_visible()
    assert secret not in page.content()
    page.goto("/keys")
    expect(row(page, "sdk")).to_contain_text("OpenAI")
    picture(page, "keys")


def test_a_secret_that_was_not_copied_asks_before_it_is_left(visit):
    page = visit("alice")
    make(page, "asks")
    asked = []

    def stay(dialog):
        asked.append(dialog.type)
        dialog.accept()

    page.on("dialog", stay)
    page.locator("body").click()  # a browser asks only where somebody has done something
    page.goto("/keys")
    assert asked == ["beforeunload"]
    make(page, "asks-not")
    leave(page)
    page.goto("/keys")
    assert asked == ["beforeunload"]


def test_the_file_of_a_secret(visit):
    page = visit("alice")
    secret = make(page, "file")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download .env").click()
    assert download.value.suggested_filename == "file.env"
    assert f"SLUICE_API_KEY={secret}\n" in download.value.path().read_text()
    page.goto("/keys")


def test_snippets_of_each_client_and_a_test_call(visit, picture):
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


def test_a_wrong_path_is_shown_to_the_owner_with_its_cure(visit, world, picture):
    assert world.call("alice", path=DOUBLED)[0] == 404
    page = visit("alice", "/keys?state=wrong_base_url")
    reloaded_until(page, row(page, "laptop"))
    row(page, "laptop").get_by_role("link", name="laptop").click()
    notice = page.locator(".wrong-paths")
    expect(notice).to_contain_text(DOUBLED)
    expect(notice.locator(".wavy")).to_have_text("/v1/messages")
    expect(notice).to_contain_text(f"Set it to{world.base_url}")
    picture(page, "key-wrong-path")
    notice.get_by_role("button", name="Dismiss").click()
    expect(page.locator(".wrong-paths")).to_have_count(0)
    undo(page)
    expect(page.locator(".wrong-paths")).to_be_visible()
    page.locator(".wrong-paths").get_by_role("link", name="Check a URL").click()
    expect(page.locator(".verdicts .wavy").first).to_be_visible()
    other = visit("carol", "/keys")
    assert DOUBLED not in other.content() and "laptop" not in other.locator("main").inner_text()


def test_two_users_never_see_each_others_keys(visit):
    page = visit("alice", "/keys")
    address = row(page, "laptop").get_by_role("link", name="laptop").get_attribute("href")
    other = visit("carol", "/keys")
    expect(row(other, "editor")).to_be_visible()
    for end in ("", "/edit", "/rotate", "/revoke"):
        assert other.goto(address + end).status == 404
    other.said.clear()


def test_disabled_and_back_by_the_toast(visit, world):
    page = visit("carol", "/keys")
    row(page, "editor").locator("summary").click()
    page.get_by_role("button", name="Disable").click()
    expect(row(page, "editor")).to_contain_text("Disabled")
    expect(page.locator(".toast")).to_contain_text("Key editor disabled")
    undo(page)
    expect(page.locator(".head")).to_contain_text("Active")


def test_revoking_waits_for_the_typed_name(visit):
    page = visit("alice")
    make(page, "gone")
    leave(page)
    page.goto("/keys")
    row(page, "gone").locator("summary").click()
    row(page, "gone").get_by_role("link", name="Revoke key").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Revoke key")
    expect(button).to_be_disabled()
    page.get_by_label("Type gone to confirm").fill("gone")
    button.click()
    expect(page.locator(".toast")).to_contain_text("Key gone revoked")
    expect(row(page, "gone")).to_have_count(0)


def test_an_edit_in_the_drawer_keeps_what_was_typed(visit):
    page = visit("alice", "/keys")
    row(page, "laptop").locator("summary").click()
    row(page, "laptop").get_by_role("link", name="Edit").click()
    drawer = page.get_by_role("dialog")
    drawer.get_by_label("Spend limit").fill("much")
    drawer.get_by_role("button", name="Save").click()
    expect(drawer.locator("#limit-problem")).to_be_visible()
    expect(drawer.get_by_label("Spend limit")).to_have_value("much")
    drawer.get_by_label("Spend limit").fill("5000")
    drawer.get_by_role("button", name="Save").click()
    expect(page.locator(".toast")).to_contain_text("Key laptop changed")
    expect(page.locator(".figures")).to_contain_text("5,000.00")
    page.said.clear()  # the browser notes the 400 of the first try


def test_by_keyboard_alone(visit):
    page = visit("alice")
    page.keyboard.press("g")
    page.keyboard.press("k")
    page.wait_for_url("**/keys")
    page.keyboard.press("/")
    page.keyboard.type("laptop")
    page.wait_for_url(re.compile(r"=laptop\b"))  # then the list is the one that stays
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


@pytest.mark.parametrize("width", ["desk", "tablet", "phone"])
def test_no_page_is_wider_than_its_window(visit, width, picture):
    page = visit("alice", "/keys", width)
    address = row(page, "laptop").get_by_role("link", name="laptop").get_attribute("href")
    ends = ("", "/edit", "/rotate", "/revoke")
    for path in ("/keys", "/keys/new", "/setup?url=x", *(address + end for end in ends)):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        picture(page, f"{path.strip('/').split('?')[0].replace('/', '-')}-{width}")


def test_what_works_without_scripts(visit):
    page = visit("alice", "/keys/new", java_script_enabled=False)
    page.get_by_label("Name", exact=True).fill("plain")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#secret")).to_be_visible()
    page.locator(".use-client", has_text="Codex").click()
    expect(page.locator("pre:visible").first).to_contain_text("model_provider")
    page.goto("/setup")
    page.get_by_label("Secret").fill(SECRETS["alice"])
    page.get_by_role("button", name="Run").click()
    expect(page.locator("[data-result]")).to_contain_text("Recorded as")
