"""Administration in a real browser: a channel is tested and disabled; the audit log has it."""

from playwright.sync_api import expect

from tests.browser.world import PASSWORDS
from tests.handlers.hub.browser import Browser

SCRIPT = "<script>alert(7)</script>"


def test_a_channel_is_tested_switched_off_and_the_audit_log_tells(visit, world):
    boss = Browser(world.hub_port)
    boss.sign_in("boss", PASSWORDS["boss"])
    boss.get("/account")
    fields = {"vendor": "demo", "family": "chat_completions", "base_url": world.vendor.url}
    fields |= {"keys": ["sk-secret-of-the-browser"], "models": {"gpt-4.1": "demo-chat"}}
    made = boss.api("POST", "/api/admin/channels", {"name": "made-here", **fields})
    assert made.status == 201, made.text
    page = visit("boss", "/admin/channels")
    page.get_by_role("link", name="made-here").click()
    expect(page.get_by_role("heading", name="Upstream keys")).to_be_visible()
    page.get_by_role("button", name="Test all models").click()
    expect(page.locator("tr.opened")).to_contain_text("Works")
    page.get_by_role("button", name="Disable").click()
    expect(page.locator(".toast")).to_contain_text("made-here disabled.")
    expect(page.locator("tr.row.open")).to_contain_text("Disabled")
    page.keyboard.press("z")
    expect(page.locator("tr.row.open")).not_to_contain_text("Disabled")
    page.goto("/admin/audit?name=made-here")
    lines = page.locator("table.audit tbody tr")
    expect(lines).to_have_count(4)  # created, tested, disabled and enabled again
    expect(lines.first).to_contain_text("boss")
    expect(lines.first).to_contain_text("127.0.0.1")
    assert "sk-secret-of-the-browser" not in page.content()


def expect_refused(page):
    """Check that the browser reports the answer 400, and nothing else."""
    for _ in range(50):
        if not page.said:
            page.wait_for_timeout(100)
    assert page.said and all("status of 400" in line for line in page.said)
    page.said.clear()


def test_removing_asks_for_the_name_and_a_user_gets_money(visit):
    page = visit("boss", "/admin/users")
    page.get_by_role("link", name="New user").click()
    page.locator("dialog").get_by_label("Name").fill(SCRIPT)
    page.locator("dialog").get_by_role("button", name="Create").click()
    expect(page.locator(".toast")).to_contain_text(SCRIPT)
    page.locator("tr.row").get_by_role("link", name=SCRIPT).click()
    page.get_by_role("link", name="Add money").click()
    dialog = page.locator("dialog[open]")
    dialog.get_by_label("Amount").fill("many")
    dialog.get_by_label("Reason").fill("gift")
    dialog.get_by_role("button", name="Book").click()
    expect(dialog.locator("#amount-problem")).to_be_visible()
    expect_refused(page)
    expect(dialog.get_by_label("Reason")).to_have_value("gift")
    dialog.get_by_label("Amount").fill("2.5")
    dialog.get_by_role("button", name="Book").click()
    expect(page.locator("section.figures")).to_contain_text("2.5")
    page.locator(".head").get_by_label("More actions").click()
    page.get_by_role("link", name="Remove user").click()
    button = page.locator("dialog").get_by_role("button", name="Remove")
    expect(button).to_be_disabled()
    page.locator("dialog input[name='confirm']").fill(SCRIPT)
    button.click()
    expect(page.locator("tr.row").filter(has_text=SCRIPT)).to_have_count(0)


def test_forms_open_and_close_by_keyboard(visit):
    page = visit("boss", "/admin/groups")
    page.keyboard.press("n")
    expect(page.locator("dialog.drawer")).to_be_visible()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    expect(page.locator("dialog.drawer")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type("cod")
    expect(page.locator("tr.row")).to_have_count(1)
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="coding").focus()
    page.keyboard.press("Enter")
    expect(page.locator("dialog.drawer").get_by_label("Multiplier")).to_have_value("0.5")
