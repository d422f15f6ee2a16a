"""Try it and client set-up with scripts: answers as they come, a comparison, a key in the page."""

import re

from playwright.sync_api import expect

from tests.support.client import wait_until

SONNET, GPT = "claude-sonnet-4-5", "gpt-4.1"
SECRET = "sk-slc-of-nobody-0123456789"


def ask(page, prompt):
    page.get_by_placeholder("Message.").fill(prompt)
    page.keyboard.press("Control+Enter")


def test_an_answer_its_price_and_its_code(world, visit, picture):
    page = visit("carol", f"/try?model={SONNET}&system=Be+brief.")
    code = page.locator(".code-sample:visible pre")
    expect(code).to_contain_text("anthropic.Anthropic(")
    expect(code).to_contain_text('system="Be brief."')
    ask(page, "First question?")
    answers = page.locator(".did")
    expect(answers).to_have_text(re.compile(r"Ok 200.*USD.*first byte.*in, .*Open call", re.S))
    expect(page.get_by_placeholder("Message.")).to_have_value("")
    ask(page, "<b>Second</b> question?")
    expect(answers).to_have_count(2)
    expect(page.get_by_text("<b>Second</b> question?", exact=True)).to_be_visible()
    expect(code).to_contain_text("<b>Second</b> question?")
    expect(page.locator(".try-code dl")).to_contain_text("Calls2")
    picture(page, "try")
    # the panels on a phone keep it, also after Back
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_role("link", name="Settings of the call").click()
    expect(page.get_by_label("System prompt")).to_be_visible()
    page.get_by_role("link", name="As code").click()
    expect(code).to_be_visible()
    page.get_by_role("link", name="Close").click()
    expect(code).to_be_hidden()
    expect(answers).to_have_count(2)
    page.set_viewport_size({"width": 1440, "height": 900})

    # a setting that was touched is sent, and appears in the code at once
    slider = page.get_by_role("slider", name="Temperature")
    assert slider.get_attribute("aria-valuetext") == "not sent"
    slider.press("ArrowLeft")
    expect(code).to_contain_text("temperature=0.95")
    page.get_by_role("button", name="Do not send Temperature").click()
    expect(code).not_to_contain_text("temperature")
    # another model selects its own entry, and the conversation stays
    page.get_by_label("Model", exact=True).select_option(GPT)
    expect(page.get_by_label("entry")).to_have_value("chat_completions")
    expect(code).to_contain_text("OpenAI(")
    expect(answers).to_have_count(2)
    ask(page, "A line.\n" * 60)
    expect(answers).to_have_count(3)
    # Columns scroll instead.
    assert page.evaluate("document.documentElement.scrollHeight - innerHeight") <= 0
    page.get_by_role("button", name="Clear").first.click()
    expect(page.get_by_text("One answer in a minute")).to_be_visible()


def test_a_wrong_setting_is_marked_in_the_words_of_the_page(visit):
    page = visit("carol", f"/try?model={SONNET}", locale="zh-CN")
    longest = page.locator("#try-max")
    longest.fill("many")
    page.locator("#try-prompt").fill("你好")
    page.locator("[data-send]").click()
    expect(page.locator(".toast")).to_contain_text("1 到 1000000")
    expect(longest).to_be_focused()
    expect(longest).to_have_value("many")
    expect(page.locator("#try-prompt")).to_have_value("你好")
    page.said.clear()  # the answer is 400


def test_two_models_side_by_side_and_a_stop(world, visit, picture):
    page = visit("carol", f"/try?model={SONNET}&with={GPT}")
    ask(page, "One question to both?")
    sides = page.locator("[data-side]")
    for side in (0, 1):
        expect(sides.nth(side).locator(".did")).to_contain_text("Ok 200")
        expect(sides.nth(side)).to_contain_text("One question to both?")  # the vendor repeats it
    rows = page.locator("[data-part='compared'] tbody tr")
    for name, row in ((SONNET, 0), (GPT, 1)):
        expect(rows.nth(row)).to_contain_text(name)
        expect(rows.nth(row)).not_to_contain_text("–")
    picture(page, "try-compare")
    page = visit("carol", f"/try?model={GPT}")
    ask(page, "[[demo stall=2]]")
    expect(page.locator(".did")).to_contain_text("Answering")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".try-turns")).to_contain_text("Client gone")
    assert wait_until(lambda: world.vendor.stats()["streams"] == 0, 10)
    expect(page.get_by_role("button", name="Send")).to_be_enabled()


def test_a_pasted_secret_stays_in_the_page(visit):
    page = visit("carol", "/setup")
    sent = []
    page.on("request", lambda one: sent.append(f"{one.url} {one.post_data or ''}"))
    shown = page.locator(".use-panel:visible pre").first
    expect(shown).to_contain_text("YOUR_API_KEY")
    expect(shown).to_contain_text(SONNET)  # native for Claude Code
    page.locator(".use-client", has_text="Codex").click()
    expect(page.locator(".use-panel:visible pre").first).to_contain_text(GPT)
    field = page.get_by_label("Your key")
    field.fill("short")
    expect(page.get_by_text("A secret has 16 to 200")).to_be_visible()
    field.fill(SECRET)
    expect(page.get_by_text("This is not the secret of key editor")).to_be_visible()
    assert page.locator(".use-panels pre", has_text="YOUR_API_KEY").count() == 0
    page.locator("#f-model").select_option(GPT)  # replaces the content
    expect(field).to_have_value(SECRET)
    expect(page.locator(".use-panel:visible pre", has_text=SECRET).first).to_be_visible()
    page.get_by_role("button", name="Run").click()
    expect(page.locator("[data-result]")).to_contain_text("Ok 200")
    assert sent and not any(SECRET in one for one in sent)


def test_a_masked_secret_is_never_copied(visit):
    page = visit("carol", "/setup")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for client in ("Claude Code", "Codex"):
        page.locator(".use-client", has_text=client).click()
        page.locator(".use-panel:visible").get_by_role("button", name="Copy").first.click()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert "YOUR_API_KEY" in copied or "SLUICE_API_KEY" in copied, copied
        assert "…" not in copied and "***" not in copied
