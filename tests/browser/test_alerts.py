"""Alerts in a browser: a rule is created in the drawer, its preview follows the input, it fires,
and the message arrives; destinations are created and tested."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests.support.client import wait_until
from tests.support.receivers import Webhook

CHATS = (
    ("#llm-gateway", "slack", "https://hooks.slack.com/services/T02ABC/B7KDEF/s3cret"),
    ("平台值班", "feishu", "https://open.feishu.cn/open-apis/bot/v2/hook/s3cret"),
    ("release room " + "x" * 100, "teams", "https://example.webhook.office.com/webhookb2/s3cret"),
)
RULES = (
    ("channel_down", {"minutes": 2}),
    ("errors", {}),
    ("key", {}),
    ("spending", {"of": "gateway", "above": "200"}),
    ("unpriced", {}),
    ("upstream_key", {"names": ["x" * 128]}),
)


@pytest.fixture(scope="module")
def webhook():
    with Webhook() as made:
        yield made


def call(page, method, path, body=None):
    """Call the JSON API as the page's user."""
    script = """async ([method, path, body]) => {
      const token = document.querySelector("[name=_xsrf]").value;
      const headers = { "X-Xsrftoken": token, "Content-Type": "application/json" };
      const answer = await fetch(path, { method, headers, body });
      return answer.status === 204 ? null : answer.json();
    }"""
    return page.evaluate(script, [method, path, None if body is None else json.dumps(body)])


@pytest.fixture(scope="module")
def filled(world, webhook, chromium):
    """Yield the world with destinations and rules of the gateway."""
    context = chromium.new_context(base_url=world.hub_url)
    context.add_cookies(world.cookies_of("boss"))
    page = context.new_page()
    page.goto("/alerts")
    of = "?of=gateway"
    hook = {"name": "ops", "kind": "webhook", "address": webhook.url}
    to = [call(page, "POST", f"/api/alerts/destinations{of}", hook)["id"]]
    for name, kind, address in CHATS:
        fields = {"name": name, "kind": kind, "address": address}
        to.append(call(page, "POST", f"/api/alerts/destinations{of}", fields)["id"])
    for kind, settings in RULES:
        body = {"kind": kind, "settings": settings, "destinations": [*to[:2], "owner"]}
        made = call(page, "POST", f"/api/alerts/rules{of}", body)
    call(page, "PATCH", f"/api/alerts/rules/{made['id']}{of}", {"enabled": False})
    context.close()


def test_a_rule_is_made_in_the_drawer_fires_and_arrives(world, visit, filled, webhook):
    assert world.call() == 200
    page = visit("boss", "/alerts")
    page.keyboard.press("n")
    drawer = page.locator("dialog.drawer")
    drawer.get_by_role("link", name="Spending").click()
    above = drawer.get_by_label("More than")
    expect(above).to_have_value("15")
    expect(drawer.locator(".rule-preview")).to_contain_text("Would not have been sent")
    above.fill("0")
    expect(drawer.locator(".rule-preview")).to_contain_text("Would have been sent once in 30 days")
    expect(above).to_be_focused()
    drawer.get_by_role("link", name=re.compile("^Balance")).click()
    drawer.get_by_label("Below").fill("60")
    drawer.get_by_label("Only these names").fill("alice")
    for name, _, _ in CHATS:
        drawer.get_by_label(name).uncheck()
    drawer.get_by_role("button", name="Save rule").click()
    expect(page.locator(".toast")).to_contain_text("Rule created.")
    assert wait_until(lambda: webhook.received, 60), "nothing was sent"
    document = webhook.documents()[-1]
    assert document["rule"] == "balance" and document["object"] == {"user": "alice"}
    assert "Sluice-Signature" in webhook.received[-1][0]
    page.reload()
    expect(page.locator("header")).to_contain_text("1 fires now")
    row = page.locator("tr.row", has_text="Balance below 60")
    expect(row).to_contain_text("Firing")
    expect(page.locator(".alerts-sent")).to_contain_text("alice: 49")
    row.locator("td").nth(3).click(force=True)  # the stretched link covers it
    expect(page.locator("dialog.drawer").get_by_label("Below")).to_have_value("60")
    page.keyboard.press("Escape")
    row.get_by_role("switch").click()
    toast = page.locator(".toast")
    expect(toast).to_contain_text("Rule turned off.")
    toast.get_by_role("button", name="Undo").click()
    expect(row.get_by_role("switch")).to_be_checked()


def test_a_destination_is_made_tested_and_removed(visit, webhook):
    page = visit("boss", "/alerts")
    page.get_by_role("link", name="New destination").click()
    drawer = page.locator("dialog.drawer")
    drawer.get_by_label("Name").fill("night")
    drawer.get_by_label("Address").fill("nowhere")
    drawer.get_by_role("button", name="Create destination").click()
    expect(drawer.locator(".problem")).to_contain_text("Address must be a URL")
    page.said.clear()  # the 400 of the form
    drawer.get_by_label("Address").fill(webhook.url)
    drawer.get_by_role("button", name="Create destination").click()
    expect(page.locator(".secret .value")).to_have_text(re.compile(r"[\w-]{43}"))
    page.get_by_role("link", name="I have stored it").click()
    page.get_by_role("button", name="Test night").click()
    expect(page.locator(".toast")).to_contain_text("Test sent in")
    place = page.locator(".places > li", has_text="night")
    expect(place).to_contain_text("Works")
    place.get_by_role("link", name="Remove night").click()
    page.locator("dialog").get_by_role("button", name="Remove destination").click()
    expect(place).to_have_count(0)
