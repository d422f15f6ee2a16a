"""Access in a real browser: from the first link to a model's answer, signing in, the account."""

import re
import subprocess

import pytest
from openai import OpenAI
from playwright.sync_api import expect

from tests.browser.looks import WIDTH, axe_faults
from tests.browser.world import PASSWORDS
from tests.support.client import wait_until
from tests.support.gateway import Gateway
from tests.support.ports import HOST, free_port

PASSWORD = "a password of the first run"
PATIENCE_S = 20


@pytest.fixture
def fresh(tmp_path):
    """Yield an unused gateway, with the URL of the Hub and the path of its first link."""
    hub_port = free_port()
    gateway = Gateway(tmp_path, {"hub.enabled": "true", "hub.port": hub_port})
    gateway.start()
    gateway.hub_url = f"http://{HOST}:{hub_port}"

    def links():
        return re.findall(r"/first-run\?token=[\w-]+", gateway.log())

    gateway.link = wait_until(links, PATIENCE_S)[-1]
    yield gateway
    gateway.close()


def faults_of(page):
    return page.evaluate(WIDTH) + axe_faults(page)


def test_from_the_first_link_to_a_models_answer(fresh, open_page, scripted_vendor, picture):
    page = open_page(fresh.hub_url, "phone")
    page.goto("/")
    expect(page.get_by_text("prints a first-run link")).to_be_visible()
    assert not faults_of(page)
    page.goto(fresh.link)
    picture(page, "first-run-1-phone")
    assert not faults_of(page)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Set password").click()

    expect(page.get_by_text("Signed in as")).to_be_visible()
    picture(page, "first-run-2-phone")
    page.goto("/keys")  # after leaving, one is redirected back
    page.goto("/")
    page.locator("main a[href='/first-run']").first.click()
    expect(page.get_by_text("Signed in as")).to_be_visible()
    page.get_by_text("made-up answers").click()
    assert not faults_of(page)
    page.get_by_label("Base URL").fill(scripted_vendor.url)
    page.get_by_role("button", name="List models").click()
    page.wait_for_url("**part=2")
    picture(page, "first-run-models-phone")
    assert not faults_of(page)
    page.get_by_role("button", name=re.compile(r"Test \d")).click()
    expect(page.locator("#test-counts")).to_contain_text("2 work")
    picture(page, "first-run-tested-phone")
    assert not faults_of(page)
    page.get_by_role("button", name=re.compile("Save channel")).click()

    page.get_by_label("Key name").fill("laptop")
    picture(page, "first-run-3-phone")
    page.get_by_role("button", name="Create key").click()
    expect(page.locator("#curl")).to_be_visible()
    picture(page, "first-run-done-phone")
    assert not faults_of(page)
    secret, curl = page.locator("#secret").inner_text(), page.locator("#curl").inner_text()

    streamed = subprocess.check_output(["bash", "-c", curl], text=True, timeout=30)
    assert "data: [DONE]" in streamed
    base = f"http://{HOST}:{fresh.port}/v1"
    with OpenAI(base_url=base, api_key=secret, max_retries=0) as client:
        said = [{"role": "user", "content": "hello"}]
        answer = client.chat.completions.create(model="demo-small", messages=said)
    assert answer.choices[0].message.content
    page.reload()
    page.wait_for_url(re.compile(r"/$"))
    assert secret not in page.content()
    page.goto(fresh.link)
    page.wait_for_url(re.compile(r"/$"))  # everything is done: home


class Counted:
    """A page that counts clicks, filled fields and keys that act."""

    def __init__(self, page):
        self.page, self.acts = page, 0

    def click(self, role, name):
        self.acts += 1
        self.page.get_by_role(role, name=name).click()

    def fill(self, label, text):
        self.acts += 1
        self.page.get_by_label(label, exact=True).fill(text)


def test_from_the_link_to_the_first_call_in_few_acts(fresh, open_page, scripted_vendor, picture):
    """With a vendor that requires a key and whose models the catalogue does not have."""
    page = open_page(fresh.hub_url)
    page.goto(fresh.link)
    acts = Counted(page)
    acts.fill("Password", PASSWORD)
    acts.click("button", "Set password")
    page.get_by_text("Another gateway").click()
    page.get_by_label("Base URL").fill(scripted_vendor.url)
    acts.acts += 2
    acts.fill("Key", "sk-of-the-vendor-0123456789")
    picture(page, "first-run-account")
    acts.click("button", "List models")
    page.wait_for_url("**part=2")
    acts.click("checkbox", "Choose demo-small")
    acts.fill("Input price of demo-small", "1")
    acts.fill("Output price of demo-small", "2")
    picture(page, "first-run-models")
    acts.click("button", re.compile(r"Test 1"))
    expect(page.locator("#test-counts")).to_contain_text("1 work")
    picture(page, "first-run-tests")
    acts.click("button", re.compile("Save channel"))
    acts.click("button", "Create key")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    acts.acts += 1
    page.locator("[data-copy-from='curl']").click()
    curl = page.evaluate("navigator.clipboard.readText()")
    assert "data: [DONE]" in subprocess.check_output(["bash", "-c", curl], text=True, timeout=30)
    acts.click("link", re.compile("home page"))
    page.goto("/usage")
    acts.acts += 2
    expect(page.locator("table.usage")).to_contain_text("demo-small")
    assert acts.acts <= 25


def test_the_first_run_by_keyboard_alone(fresh, open_page, scripted_vendor):
    page = open_page(fresh.hub_url)
    page.goto(fresh.link)
    page.keyboard.type(PASSWORD)  # the field has the focus
    page.keyboard.press("Enter")
    expect(page.get_by_text("Signed in as")).to_be_visible()
    page.locator("input[name=vendor]:checked").focus()
    page.keyboard.press("ArrowLeft")  # the last one: the demo
    expect(page.get_by_role("radio", name="Demo")).to_be_focused()
    page.get_by_label("Base URL").focus()
    page.keyboard.press("Control+a")
    page.keyboard.type(scripted_vendor.url)
    page.keyboard.press("Enter")
    page.wait_for_url("**part=2")
    page.get_by_role("button", name=re.compile(r"Test \d")).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#test-counts")).to_contain_text("2 work")
    page.get_by_role("button", name=re.compile("Save channel")).focus()
    page.keyboard.press("Enter")
    page.get_by_label("Key name").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#curl")).to_be_visible()


def test_signing_in(world, open_page):
    page = open_page(world.hub_url, "phone")
    page.goto("/account")
    page.get_by_label("Name").fill("carol")
    page.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("Name or password is wrong.")
    expect(page.get_by_label("Name")).to_have_value("carol")
    expect(page.get_by_label("Password")).to_be_focused()
    assert not faults_of(page)
    page.keyboard.type(PASSWORDS["carol"])
    page.keyboard.press("Enter")
    page.wait_for_url("**/account")
    page.said.clear()  # the browser logs the 401


def test_one_letter_keys_are_switched_off(visit):
    page = visit("alice", "/account")
    page.get_by_role("group", name="Keyboard").get_by_role("button", name="Off").click()
    page.wait_for_load_state()
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_hidden()
    page.get_by_role("group", name="Keyboard").get_by_role("button", name="On").click()
    page.wait_for_load_state()
    page.keyboard.press("?")
    expect(page.locator("#shortcuts")).to_be_visible()
