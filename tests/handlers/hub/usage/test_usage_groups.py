"""The page of usage by groups: its figures, rows and chart, who sees them, and their links."""

import html
import re
import threading

import pytest

from store.calls.reading import groups, usage_page
from tests.handlers.hub.usage.calls import call, failed, put

DIMENSIONS = {
    "day": None,
    "model": "gpt-4.1",
    "user": "alice",
    "key_id": "key-of-alice",
    "channel": "main",
    "endpoint": "/v1/chat/completions",
    "error_code": "No error",
}


def body(answer):
    assert answer.status == 200, answer.text[:500]
    return answer.text


def names(text):
    rows = re.findall(r'class="g-group"><i[^>]*></i>(?:<a[^>]*>|<span[^>]*>)(.*?)</', text)
    return [html.unescape(re.sub(r"<[^>]+>", "", name)) for name in rows]


@pytest.mark.parametrize("by", DIMENSIONS)
def test_each_dimension_has_rows_and_a_chart_of_each_figure(db, boss, by):
    put(db, call(db, 1, upstream_nanos=10), call(db, 2, "boss", model="other"), failed(db, 3))
    for chart in groups.CHARTS:
        text = body(boss.get(f"/usage?of=all&by={by}&chart={chart}&since=7d"))
        assert "data-explore" in text and "data-legend" in text
        if DIMENSIONS[by]:
            assert DIMENSIONS[by] in names(text)


def link_of(text, name):
    return html.unescape(re.search(rf'href="([^"]*)" title="{re.escape(name)}"', text)[1])


def figure(text, label):
    found = re.search(rf'>{label}</span><span class="figure[^>]*>(?:<a[^>]*>)?([^<]*)', text)
    return html.unescape(found[1]).strip()


def test_a_row_and_a_column_lead_to_their_calls(db, boss):
    put(db, call(db, 1), call(db, 2, model="other"), failed(db, 3, minutes_ago=60 * 30))
    text = body(boss.get("/usage?of=all&by=model&since=7d&chart=calls"))
    assert figure(text, "Calls") == "3"
    rows = body(boss.get(link_of(text, "other")))
    assert len(re.findall(r'<tr class="row', rows)) == 1 and "Group by" in rows
    found = re.findall(r'<a href="([^"]*)"(?: tabindex="-1")? aria-label="[^"]*calls?', text)
    columns = [html.unescape(href) for href in found]
    counts = [len(re.findall(r'<tr class="row', body(boss.get(href)))) for href in columns]
    assert sum(counts) == 3
    errors = body(boss.get("/usage?of=all&by=error_code&since=7d"))
    assert link_of(errors, "No error").endswith("outcome=ok")


def test_members_have_their_own_groups_without_margins(db, alice, boss):
    put(db, call(db, 1), call(db, 2, "boss", model="secret-model"))
    text = body(alice.get("/usage?by=model&since=7d"))
    assert names(text) == ["gpt-4.1"]
    for hidden in ("Margin", "secret-model", ">User<", ">Channel<", "of=all"):
        assert hidden not in text, hidden
    for by in ("user", "channel", "nothing"):
        assert "data-legend" not in alice.get(f"/usage?by={by}").text
    assert "secret-model" not in alice.get("/usage?by=model&of=all").text
    assert "secret-model" in body(boss.get("/usage?by=model&of=all"))


def test_groups_are_compared_with_a_span_before(db, alice):
    day = 24 * 60
    put(db, call(db, 1), call(db, 2), call(db, 3, minutes_ago=8 * day, model="gone"))
    text = body(alice.get("/usage?by=model&since=7d"))
    assert "compared with" in text and names(text) == ["gpt-4.1", "gone"]
    assert figure(text, "Cost") == "0.0006" and text.count("0.0003") >= 1
    text = body(alice.get("/usage?by=model&since=7d&compare=none"))
    assert "compared with" not in text and names(text) == ["gpt-4.1"]
    assert "compare=month" in text


def test_the_rest_of_many_groups_shares_a_row(db, alice, monkeypatch):
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    put(db, *[call(db, number, model=f"model-{number}") for number in range(7)])
    text = body(alice.get("/usage?by=model&since=7d"))
    assert "5 more models" in text and "2 of 7 have a row" in text
    assert figure(text, "Calls") == "7"


def test_the_order_is_in_the_heads(db, alice):
    put(db, call(db, 1, model="a", output_tokens=900))
    put(db, call(db, 2, model="b"), call(db, 3, model="b"))
    assert names(body(alice.get("/usage?by=model&since=7d"))) == ["a", "b"]
    assert names(body(alice.get("/usage?by=model&since=7d&sort=calls"))) == ["b", "a"]


def test_too_many_calls_are_not_gone_through(db, alice, monkeypatch):
    put(db, call(db, 1))
    monkeypatch.setattr(groups, "READ_AT_MOST", 0)
    text = body(alice.get("/usage?by=model&since=7d&status=200"))
    assert "The groups could not be read." in text and "since=24h" in text


def test_sums_that_take_long_come_by_a_second_request(hub, db, alice):
    put(db, call(db, 1))
    hub.site.unfinished.patience_s = 0
    text = body(alice.get("/usage?by=model&since=7d"))
    assert "data-legend" not in text
    later = html.unescape(re.search(r'data-bones="([^"]*)"', text)[1])
    assert names(body(alice.get(later))) == ["gpt-4.1"]


@pytest.mark.parametrize("query", ["", "&sort=cost"])
def test_calls_come_before_sums_that_take_long(hub, db, alice, query, monkeypatch):
    put(db, call(db, 1))
    hub.site.unfinished.patience_s = 0
    summing, sums = threading.Event(), usage_page.load_sums

    def late(*args, **zone):
        assert summing.wait(20)
        return sums(*args, **zone)

    monkeypatch.setattr(usage_page, "load_sums", late)
    text = body(alice.get(f"/usage?since=7d{query}"))
    assert 'class="figure money"' not in text and 'data-loaded="1"' in text
    later = html.unescape(re.search(r'data-bones="([^"]*)"', text)[1])
    summing.set()
    text = body(alice.get(later))
    assert 'class="figure money"' in text and 'data-loaded="1"' in text
    assert "data-bones" not in text


def test_the_table_is_exported(db, alice, boss):
    put(db, call(db, 1), call(db, 2, "boss"))
    text = body(boss.get("/usage?by=user&of=all&since=7d"))
    href = html.unescape(re.search(r'data-export href="([^"]*)"', text)[1])
    lines = boss.get(href).text.splitlines()
    assert lines[0].startswith("user,calls,ok,") and len(lines) == 3
    text = body(alice.get("/usage?by=model&since=7d"))
    href = html.unescape(re.search(r'data-export href="([^"]*)"', text)[1])
    head = alice.get(href).text.splitlines()[0]
    assert "margin" not in head and head.startswith("model,calls")


def test_a_span_without_calls_leads_to_the_last_one(db, alice):
    put(db, call(db, 1, minutes_ago=60 * 24 * 40))
    text = body(alice.get("/usage?by=model&since=7d&compare=none"))
    assert "No calls in this span" in text
    href = html.unescape(re.search(r'href="([^"]*)">Show it', text)[1])
    assert names(body(alice.get(href))) == ["gpt-4.1"]
