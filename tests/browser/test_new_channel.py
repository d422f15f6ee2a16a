"""A new channel in a real browser: cards, price cells by keyboard, tests that finish one by one."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.looks import axe_faults
from tests.handlers.hub.test_new_channel import vendor_of
from tests.support.upstream import RawUpstream


@pytest.fixture
def vendor():
    with RawUpstream(vendor_of) as upstream:
        yield upstream


def test_a_channel_from_its_card_to_the_list(visit, vendor, picture):
    page = visit("boss", "/admin/channels")
    page.keyboard.press("n")
    page.wait_for_url("**/admin/channels/new")
    page.locator("[data-find]").fill("mistral")
    expect(page.locator(".vendor:visible")).to_have_count(1)
    page.get_by_text("Mistral").first.click()
    expect(page.locator("[data-address]")).to_have_text(
        "https://api.mistral.ai/v1/chat/completions"
    )
    expect(page.get_by_role("link", name="Where to create a key")).to_be_visible()
    picture(page, "new-channel-1")
    page.get_by_label("Base URL").fill(vendor.url)
    page.get_by_label("Key", exact=True).fill("sk-of-the-vendor-0123456789")
    page.locator("[name=vendor]:checked").focus()
    page.keyboard.press("Enter")  # lists the models
    page.wait_for_url("**/new?step=2")

    page.get_by_label("Choose unheard-of").check()
    expect(page.get_by_label("Input price of unheard-of")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Choose broken").check()
    page.get_by_label("Input price of broken").focus()
    page.keyboard.insert_text("1")
    cell = page.get_by_label("Output price of broken")
    cell.evaluate("""(cell) => {
      const data = new DataTransfer();
      data.setData("text", "2\\n3");
      cell.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
    }""")
    expect(cell).to_have_value("2")  # and the cell below got the next line
    page.get_by_label("Input price of broken").press("Enter")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("7")
    page.keyboard.press("Escape")
    picture(page, "new-channel-2")
    page.get_by_label("Input price of unheard-of").fill("1")
    page.get_by_label("Output price of unheard-of").fill("3")
    page.get_by_role("button", name="Test 2 models").click()

    expect(page.locator("#test-counts")).to_contain_text("1 work")
    expect(page.locator("#test-counts")).to_contain_text("1 failed")
    expect(page.get_by_label("Choose broken")).not_to_be_checked()
    percent = page.locator("[data-multiplier] .percent")
    expect(percent).to_have_text("0.0")
    page.get_by_label("Part of the list price").fill("0.5")
    expect(percent).to_have_text("50.0")
    picture(page, "new-channel-3")
    page.reload()  # results stay
    expect(page.locator("#test-counts")).to_contain_text("1 work")
    page.get_by_role("button", name="Save channel with 1 model").click()
    page.wait_for_url("**/admin/channels/mistral")


@pytest.mark.parametrize("width", ["tablet", "phone"])
def test_no_step_is_wider_than_the_window_or_hard_to_use(visit, vendor, picture, width):
    page = visit("boss", "/admin/channels/new", width)
    page.get_by_text("Another gateway").click()
    page.get_by_label("Name", exact=True).fill("n" * 120 + width)
    page.get_by_label("Base URL").fill(vendor.url)
    for step in (1, 2, 3):
        wide = "document.documentElement.scrollWidth - innerWidth"
        picture(page, f"new-channel-{step}-{width}")
        assert page.evaluate(wide) <= 0, step
        assert not axe_faults(page), step
        if step == 1:
            page.get_by_role("button", name="List models").click()
            page.wait_for_url("**/new?step=2")
        elif step == 2:
            page.get_by_role("button", name=re.compile(r"Test \d")).click()
            expect(page.locator("#test-counts")).to_contain_text("work")
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_url("**/admin/channels")
