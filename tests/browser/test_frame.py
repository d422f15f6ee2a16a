"""What every page has: navigation at each width, theme, keyboard, language, times."""

import re

import pytest
from playwright.sync_api import expect


def test_navigation_at_each_width(visit):
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


def test_a_member_sees_no_page_of_administrators(visit):
    page = visit("alice")
    assert page.locator("a[href^='/admin']").count() == 0


@pytest.mark.parametrize("width", ["desk", "tablet", "phone"])
def test_no_page_is_wider_than_its_window(visit, width):
    page = visit("alice", "/account", width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_theme_and_the_language_stay(visit):
    page = visit("alice")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.locator(".side summary").click()
    page.get_by_role("button", name="中文").click()
    expect(page.locator("html")).to_have_attribute("lang", "zh")
    page.goto("/account")
    expect(page.locator("html[lang='zh'][data-theme='dark']")).to_be_visible()


def test_keys_lead_to_pages_and_show_themselves(visit):
    page = visit("alice", "/account")
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#shortcuts")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_url(re.compile(r"/$"))


def test_times_are_in_the_browsers_zone_and_utc_on_hover(visit):
    page = visit("alice", "/account")
    first = page.locator("time").first
    assert "UTC" in first.get_attribute("title") and "UTC" not in first.text_content()
