"""Usage by groups in a browser: the tip of a chart, the table as its legend, the calendar, keys,
the box that finds calls."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import expect

from tests.browser.world import MODEL

GROUPS = "/usage?by=model&since=7d&chart=calls"
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture(scope="module")
def called(world):
    for _ in range(3):
        assert world.call() == 200
    assert world.call(model="no-such-model") == 404
    return world


@pytest.fixture
def grouped(visit, called):
    """Yield the page of groups once the calls are in the store."""
    page = visit("alice", GROUPS)
    page.reload()  # with the zone's cookie
    for _ in range(40):
        if page.locator("table.groups .g-group", has_text="no-such-model").count():
            break
        page.wait_for_timeout(250)
        page.reload()
    return page


def test_the_tip_follows_pointer_and_focus(grouped, picture):
    page, tip = grouped, grouped.locator(".tip")
    column = page.locator("[data-explore] .plot > a").last
    column.locator("rect").last.hover()
    expect(tip).to_contain_text("4 calls; a click shows them")
    expect(tip.locator(".name")).to_have_text(["no-such-model", MODEL])
    expect(tip).to_contain_text("75.0 %")
    picture(page, "usage-groups-tip")
    # beside its column; on its left at the right end of the chart
    bar, box = column.locator(".under-pointer").bounding_box(), tip.bounding_box()
    assert box["x"] + box["width"] <= bar["x"]
    page.keyboard.press("Escape")
    expect(tip).to_have_count(0)
    column.focus()
    expect(tip).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowRight")
    expect(tip).to_contain_text("4 calls")
    page.keyboard.press("Enter")
    expect(page.locator("table.usage tbody tr.row")).to_have_count(4)


def test_the_table_is_the_legend_and_the_filter(grouped):
    page = grouped
    row = page.locator("table.groups tbody tr", has_text=MODEL)
    row.hover()
    expect(page.locator("[data-explore]")).to_have_attribute(
        "data-lit", row.get_attribute("data-part")
    )
    page.locator("h1").hover()
    expect(page.locator("[data-lit]")).to_have_count(0)
    page.keyboard.press("b")
    expect(page.locator("[data-group-by] :focus")).to_have_text("Model")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".chip.set")).to_contain_text("model")
    expect(page.locator("table.usage tbody tr.row").first).to_be_visible()


def test_a_row_opens_wherever_it_is_clicked(grouped):
    cell = grouped.locator("table.groups tbody tr", has_text=MODEL).locator(".g-calls")
    cell.click(force=True)  # the link of the row covers it
    grouped.wait_for_url(re.compile("model="))


def test_the_calendar_is_a_grid_of_keys(grouped, picture):
    page = grouped
    page.keyboard.press("d")
    panel = page.locator("[data-dates] > .panel")
    expect(panel).to_be_visible()
    picture(page, "usage-dates")
    page.set_viewport_size({"width": 720, "height": 450})  # as at a zoom of 200 %
    box = panel.bounding_box()
    assert box["x"] + box["width"] <= 720 and box["y"] + box["height"] <= 450
    page.set_viewport_size({"width": 1440, "height": 900})
    today = datetime.now(BERLIN).date()
    day = panel.locator("a[data-day][tabindex='0']")
    expect(day).to_have_attribute("data-day", today.isoformat())
    day.focus()
    page.keyboard.press("ArrowUp")
    focused = panel.locator("a[data-day]:focus")
    first = today - timedelta(days=7)
    expect(focused).to_have_attribute("data-day", first.isoformat())
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(panel.locator("td.end")).to_have_count(2)
    expect(panel.locator(".panel-foot")).to_contain_text("2 days, of Europe/Berlin")
    page.keyboard.press("PageUp")
    page.keyboard.press("PageUp")
    expect(panel.locator("[data-months] b").last).not_to_have_text(f"{today:%B %Y}")
    panel.get_by_role("button", name="Show span").click()
    until = first + timedelta(days=2)
    page.wait_for_url(re.compile(f"since={first}.*until={until}|until={until}.*since={first}"))
    page.keyboard.press("]")
    page.wait_for_url(re.compile(f"since={until}"))
    page.keyboard.press("[")
    page.wait_for_url(re.compile(f"since={first}"))


def test_ids_and_names_are_found_by_the_box(visit, called):
    page = visit("alice", "/usage")
    page.locator("table.usage tbody tr.row").first.wait_for()
    call_id = page.locator("table.usage tbody tr.row").first.get_attribute("data-id")
    box = page.get_by_label("Id or text of the error")
    box.fill(MODEL)
    box.press("Enter")
    page.wait_for_url(re.compile("model="))
    box.fill(call_id)
    box.press("Enter")
    page.wait_for_url(re.compile(f"/usage/{call_id}$"))
    expect(page.locator("h2.id code")).to_have_text(call_id)


def test_a_mistyped_filter_is_marked_where_it_is(visit, called):
    page = visit("alice", "/usage?outcome=ok")
    page.said.clear()
    page.keyboard.press("f")
    page.get_by_label("took at least").fill("soon")
    page.get_by_role("button", name="Apply").click()
    field = page.get_by_label("took at least")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_value("soon")
    expect(page.locator(".chip.set")).to_contain_text("Ok")
    page.said.clear()  # the answer is 400


def test_figures_move_with_live_rows(visit, called):
    page = visit("alice", "/usage")
    figure = page.locator(".usage-top .figure").first
    before = int(figure.inner_text())
    page.wait_for_timeout(1_500)  # now the tail is watching
    assert called.call(prompt="one more") == 200
    expect(figure).to_have_text(str(before + 1))


SPANS = {
    "today": lambda today: (today, None),
    "yesterday": lambda today: (today - timedelta(1), today),
    "this month": lambda today: (today.replace(day=1), None),
    "last month": lambda today: (
        (today.replace(day=1) - timedelta(1)).replace(day=1),
        today.replace(day=1),
    ),
}


def test_presets_are_days_of_the_viewer(visit, called):
    page = visit("alice", "/usage")
    page.reload()  # with the zone's cookie
    for name, days in SPANS.items():
        page.keyboard.press("d")
        page.get_by_role("navigation", name="By calendar").get_by_text(name, exact=True).click()
        since, until = days(datetime.now(BERLIN).date())
        page.wait_for_url(re.compile(f"since={since}"))
        assert (f"until={until}" in page.url) == (until is not None)
        expect(page.locator("[data-dates] > summary")).to_contain_text(name)


def test_the_first_paint_is_in_the_viewers_zone(visit, called):
    page = visit("alice", "/usage", timezone_id="Asia/Kolkata")
    painted = page.context.request.get("/usage").text()  # as sent, before any script
    page.goto("/usage")
    times = page.locator("table.usage td.c-time time")
    texts = times.all_inner_texts()
    assert len(texts) >= 4 and all(f">{text}</time>" in painted for text in texts)
    at = datetime.fromisoformat(times.first.get_attribute("datetime"))
    assert texts[0] == f"{at.astimezone(ZoneInfo('Asia/Kolkata')):%H:%M:%S}"
