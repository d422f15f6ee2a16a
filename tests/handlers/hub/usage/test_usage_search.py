"""The filter bar of usage: one box that finds calls, periods in the viewer's days, and invalid
filters."""

import html
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, quote, urlencode, urlsplit
from zoneinfo import ZoneInfo

import pytest

from store.calls.reading import search, usage_page
from store.db.database import transaction
from store.db.tables.catalog import Model
from store.values.ids import new_ulid, now_ms, ulid
from tests.handlers.hub.usage.calls import call, failed, put

TRACE = "0af7651916cd43dd8448eb211c80319c"
BERLIN = ZoneInfo("Europe/Berlin")


def rows(answer):
    return re.findall(r'<tr class="row[^"]*" data-id="(\w+)"', answer.text)


def place_of(browser, text, **fields):
    answer = browser.get("/usage?" + urlencode({"search": text, **fields}))
    assert answer.status == 303, answer.text[:300]
    return answer.place


def test_the_box_finds_ids_names_and_texts(db, alice, boss):
    ids = put(db, call(db, 1, client_request_id="mine-1", trace_id=TRACE), failed(db, 2))
    [theirs] = put(db, call(db, 3, "boss"))
    for text in (ids[0], "mine-1"):
        assert place_of(alice, f" {text} ") == f"/usage/{ids[0]}"
    assert place_of(boss, "req_1", of="all") == f"/usage/{ids[0]}"
    for text, field, value, found in (
        (TRACE.upper(), "trace_id", TRACE, ids[:1]),
        ("GPT-4.1", "model", "gpt-4.1", ids),
        ("rate limited", "text", "rate limited", ids[1:]),
    ):
        place = place_of(alice, text, since="7d")
        assert parse_qs(urlsplit(place).query) == {field: [value], "since": ["7d"]}
        assert sorted(rows(alice.get(place))) == sorted(found)
    made = alice.make("tower", group="default")
    assert f"key_id={made}" in place_of(alice, "Tower")
    assert "No call has this id." in alice.get(place_of(alice, theirs)).text


def test_a_text_in_names_of_models_is_offered(db, alice):
    name = "gpt-named"
    row = {"id": new_ulid(), "name": name, "created_ms": 0}
    transaction(db, lambda: Model.insert(row).execute(db))
    page = alice.get("/usage?text=gpt")
    assert "Models with this text in their names" in page.text
    assert f"model={name}" in page.text


@pytest.mark.parametrize(
    ("hours_ago", "reason"),
    [(0.1, "it may still be running"), (24 * 40, "leave no record")],
)
def test_an_id_without_a_record_says_why(db, alice, hours_ago, reason):
    missing = ulid(now_ms() - round(hours_ago * 3_600_000), bytes(10))
    page = alice.get(place_of(alice, missing))
    assert "No call has this id." in page.text and reason in page.text


def test_an_id_from_before_the_records_says_so(db, alice, monkeypatch):
    monkeypatch.setattr(search, "pruned_before", lambda db: 20990101)
    page = alice.get(place_of(alice, ulid(now_ms(), bytes(10))))
    assert "have been removed" in page.text


def test_a_text_is_looked_for_in_the_newest_calls_first(db, alice, monkeypatch):
    monkeypatch.setattr(
        usage_page, "newest_since", lambda db, filters: search.newest_since(db, filters, 2)
    )
    old, new = put(db, failed(db, 1, minutes_ago=600), failed(db, 2, minutes_ago=2))
    put(db, call(db, 3, minutes_ago=300))
    page = alice.get("/usage?text=rate")
    assert rows(page) == [new] and "Search older" in page.text
    older = re.search(r'href="([^"]*)">Search older', page.text)[1]
    assert rows(alice.get(html.unescape(older))) == [old]


def test_a_filter_that_cannot_be_is_marked_and_the_others_hold(db, alice):
    put(db, call(db, 1), failed(db, 2))
    page = alice.get("/usage?group=nowhere&outcome=ok&min_duration_ms=soon")
    assert page.status == 400
    assert len(rows(page)) == 1  # filtered by the valid ones
    for name, text in (("group", "nowhere"), ("min_duration_ms", "soon")):
        field = re.search(rf'<input id="f-{name}"[^>]*>', page.text)[0]
        assert f'value="{text}"' in field and 'aria-invalid="true"' in field
        assert f'id="p-{name}"' in page.text
    assert 'value="ok" selected' in page.text


@pytest.mark.parametrize(
    ("text", "in_words", "calls"),
    [("1.5s", "1.5 s", 1), ("1500", "1.5 s", 1), ("500 ms", "500 ms", 2), ("2 s", "2 s", 0)],
)
def test_a_duration_is_in_words_on_the_page_and_in_its_api(db, alice, text, in_words, calls):
    put(db, call(db, 1, duration_ms=500), call(db, 2, duration_ms=1500))
    query = f"min_duration_ms={quote(text)}"
    page = alice.get(f"/usage?{query}")
    assert len(rows(page)) == len(alice.get(f"/api/usage?{query}").json["items"]) == calls
    assert f'value="{in_words}" placeholder="1.5 s"' in page.text
    assert f'took at least <b title="{in_words}">' in page.text


# ---- periods -------------------------------------------------------------------------------------


def zoned(browser):
    browser.cookies["zone"] = "Europe/Berlin"
    return browser


def test_times_come_in_the_viewers_zone_once_it_is_known(db, alice):
    [made] = put(db, call(db, 1))
    assert "Times in UTC" in alice.get("/usage").text
    text = zoned(alice).get("/usage").text
    assert "Times in Europe/Berlin" in text
    stamp, title, shown = re.search(
        r'<time datetime="([^"]*)" title="([^"]*)">([^<]*)</time>', text
    ).groups()
    at = datetime.fromisoformat(stamp)
    assert title.endswith("UTC") and at.astimezone(BERLIN).strftime("%H:%M:%S") in shown
    alice.cookies["zone"] = "../../etc/passwd"
    assert alice.get(f"/usage/{made}").status == 200


def test_days_of_an_address_are_the_viewers(db, alice):
    today = datetime.now(BERLIN).replace(hour=0, minute=0, second=0, microsecond=0)
    before = today - timedelta(minutes=30)  # yesterday there, usually the same UTC day
    minutes = round((datetime.now(UTC) - before).total_seconds() / 60)
    first, second = put(db, call(db, 1, minutes_ago=minutes), call(db, 2, minutes_ago=0))
    browser = zoned(alice)
    days = [(today - timedelta(days=back)).date().isoformat() for back in (1, 0)]
    page = browser.get(f"/usage?since={days[1]}")
    assert rows(page) == [second] and "<b>today</b>" in page.text
    page = browser.get(f"/usage?since={days[0]}&until={days[1]}")
    assert rows(page) == [first] and "<b>yesterday</b>" in page.text
    sums = browser.get(f"/usage?by=day&chart=calls&since={days[0]}")
    assert sums.text.count('class="g-group"><i') == 2


def test_days_are_of_utc_where_sums_do_not_tell_others(db, alice, monkeypatch):
    put(db, call(db, 1))
    browser = zoned(alice)
    assert "UTC days" not in browser.get("/usage?by=model&since=7d").text
    assert "UTC days" in browser.get("/usage?by=model&since=90d").text
    monkeypatch.setattr("store.calls.reading.buckets.HOUR_ROWS_MAX", 0)
    assert "UTC days" in browser.get("/usage?by=model&since=7d").text


def test_the_fields_of_the_panel_become_an_address(db, alice):
    fields = {"from_day": "2026-01-02", "from_time": "00:00", "to_day": "2026-01-05"}
    place = alice.get("/usage?by=model&" + urlencode({**fields, "to_time": "13:30"})).place
    assert parse_qs(urlsplit(place).query) == {
        "by": ["model"],
        "since": ["2026-01-02"],
        "until": ["2026-01-05T13:30:00.000Z"],
    }
    place = zoned(alice).get("/usage?" + urlencode({**fields, "to_time": "13:30"})).place
    assert "2026-01-05T12:30:00.000Z" in place
    for wrong in ({"to_day": "2026-01-01"}, {"from_day": "2026-02-31"}, {"from_time": "noon"}):
        page = alice.get("/usage?outcome=ok&" + urlencode({**fields, **wrong}))
        [(name, value)] = wrong.items()
        field = re.search(rf'<input[^>]*name="{name}"[^>]*>', page.text)[0]
        assert page.status == 400 and 'aria-invalid="true"' in field and value in field


def test_the_calendar_is_links_without_a_script(db, alice):
    page = alice.get("/usage?since=2026-01-02&month=2026-01")
    assert "December 2025" in page.text and "January 2026" in page.text
    day = re.search(r'data-day="2026-01-07" href="([^"]*)"', page.text)[1]
    begun = html.unescape(day)
    assert "since=2026-01-07" in begun and "pick=until" in begun
    page = alice.get(begun + "&month=2026-01")
    end = html.unescape(re.search(r'data-day="2026-01-09" href="([^"]*)"', page.text)[1])
    assert "since=2026-01-07" in end and "until=2026-01-10" in end
    page = alice.get(end + "&month=2026-01")
    marked = re.findall(r'<td class="([^"]*)" aria-selected="true">', page.text)
    assert marked == ["end first", "in", "end last"] and "3 days, of UTC" in page.text
