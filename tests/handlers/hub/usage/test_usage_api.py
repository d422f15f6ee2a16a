"""The JSON API of usage: who sees what, filters, pages, sums, errors, exports, the live tail."""

import csv
import io
import json

import pytest

from handlers.hub.usage import usage
from handlers.hub.usage.usage_call import MEMBER_HIDDEN
from store.values.usage_record import FIELDS
from tests.handlers.hub.usage.calls import call, failed, put


@pytest.fixture
def calls(db):
    """Create a successful and a failed call of alice, and a successful one of the administrator."""
    return put(
        db,
        call(db, 1, upstream_nanos=75_000),
        failed(db, 2, minutes_ago=3),
        call(db, 3, "boss", minutes_ago=1),
    )


def ids(browser, path="/api/usage"):
    answer = browser.get(path)
    assert answer.status == 200, answer.text
    return [one["id"] for one in answer.json["items"]]


def test_a_member_sees_own_calls_and_nothing_of_the_channels(alice, calls):
    assert ids(alice) == [calls[1], calls[0]]
    for call_id in calls[:2]:
        one = alice.get(f"/api/usage/{call_id}").json
        assert set(FIELDS) <= set(one)
        assert {one[name] for name in MEMBER_HIDDEN} == {None}
        assert "own words" not in json.dumps(one) and "main" not in json.dumps(one)
    [attempt] = one["attempts"]
    assert attempt.keys() == {"status", "error", "ms", "detail"}
    assert attempt["detail"] == "The upstream accepts no more calls for a while"
    assert alice.get(f"/api/usage/{calls[2]}").status == 404
    assert alice.get("/api/usage/req_1").status == 404


def test_an_administrator_sees_all(boss, calls):
    assert ids(boss) == calls[::-1]
    assert ids(boss, "/api/usage?user=alice") == [calls[1], calls[0]]
    one = boss.get(f"/api/usage/{calls[1]}").json
    assert one["attempts"][0]["detail"] == "the vendor's own words" and one["channel"] == "main"
    assert boss.get("/api/usage/req_1").json["id"] == calls[0]
    one = boss.get(f"/api/usage/{calls[0]}").json
    lines = one["cost_lines"]
    assert one["upstream_cost"] == "0.000075" and one["cost"] == "0.0003"
    assert [(line["meter"], line["count"]) for line in lines] == [("input", 100), ("output", 50)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("outcome=ok,upstream_error", [1, 0]),
        ("outcome=ok&outcome=timeout", [0]),
        ("status=429", [1]),
        ("error_code=upstream_rate_limited", [1]),
        ("text=RATE%20limited", [1]),
        ("stream=true", [0]),
        ("min_duration_ms=2001", []),
        ("model=gpt-4.1&endpoint=/v1/chat/completions&group=default", [1, 0]),
        ("model=no-such-model", []),
        ("since=4m", [1]),
        ("key_id=key-of-alice", [1, 0]),
    ],
)
def test_filters(alice, calls, query, found):
    assert ids(alice, f"/api/usage?{query}") == [calls[place] for place in found]


def test_a_group_that_a_member_may_not_see_is_unknown(alice, boss, apply, db, calls):
    apply({"group": [{"name": "hidden"}, {"name": "left"}]})
    put(db, call(db, 9, group="left"))

    def told(browser, group):
        answer = browser.get(f"/api/usage?group={group}")
        error = answer.json.get("error", {"field": "", "message": ""})
        return answer.status, error["field"], error["message"].replace(group, "?")

    unknown = (400, "group", 'there is no group "?"')
    assert told(alice, "hidden") == told(alice, "nowhere") == unknown
    assert told(alice, "left")[0] == told(alice, "default")[0] == told(boss, "hidden")[0] == 200


REFUSED = (
    *("outcome=okay", "error_code=none", "key_id=key-of-boss", "key=laptop", "user=boss"),
    *("channel=main", "status=abc", "trace_id=zebra", "since=yesterday", "modle=x", "limit=0"),
    *("limit=" + "9" * 5000, "after=x", "stream=yes", "until=1970-01-01&since=2026-01-02"),
)


def test_what_does_not_exist_is_refused_with_its_field(alice, boss, calls):
    for query in REFUSED:
        field = query.partition("=")[0]
        for path in ("/api/usage", "/api/usage/errors"):
            if field not in ("limit", "after") or path == "/api/usage":
                answer = alice.get(f"{path}?{query}")
                assert (answer.status, answer.json["error"]["field"]) == (400, field), query
    error = boss.get("/api/usage?user=alicia").json["error"]
    assert error["field"] == "user" and "alice" in error["message"]


def test_pages_hold_each_call_once_while_others_come(db, alice):
    expected = put(db, *[call(db, number) for number in range(10)])
    page = alice.get("/api/usage?limit=7").json
    put(db, call(db, 100, minutes_ago=0))
    rest = alice.get(f"/api/usage?limit=7&after={page['next']}").json
    ids = [one["id"] for one in page["items"] + rest["items"]]
    assert ids == sorted(expected, reverse=True) and rest["next"] is None


def test_sums_are_those_of_the_calls(alice, boss, calls):
    [row] = alice.get("/api/usage/stats?by=model").json["items"]
    assert (row["model"], row["calls"], row["ok"], row["failed"]) == ("gpt-4.1", 2, 1, 1)
    rows = boss.get("/api/usage/stats?by=user,channel&sort=calls&top=1").json["items"]
    assert [(one["user"], one["channel"], one["calls"]) for one in rows] == [("alice", "main", 2)]
    margin = {"upstream_cost": "0.000075", "cost_known": "0.0003", "margin": "0.7500"}
    assert margin.items() <= rows[0].items() and not margin.keys() & row.keys()
    for query in ("by=channel", "by=model,model", "sort=name", "top=0"):
        assert alice.get(f"/api/usage/stats?{query}").status == 400


def test_sums_are_not_made_from_too_many_calls(alice, boss, calls, monkeypatch):
    paths = ("stats?by=status", "stats?status=200", "errors?status=429")
    assert {boss.get(f"/api/usage/{path}").status for path in paths} == {200}
    monkeypatch.setattr(usage.usage_page, "READ_AT_MOST", 2)
    for path in paths:
        assert alice.get(f"/api/usage/{path}").status == 200  # she has only two calls
        answer = boss.get(f"/api/usage/{path}")
        assert (answer.status, answer.json["error"]["field"]) == (400, "since")
    for told in ("stats?by=user,outcome", "errors", "stats?by=status&client_request_id=x"):
        assert boss.get(f"/api/usage/{told}").status == 200


def test_errors_are_grouped(db, alice, calls):
    first, last = put(db, failed(db, 10, minutes_ago=30), failed(db, 11, minutes_ago=2))
    refused = {"outcome": "refused", "error_code": "model_not_found", "model": None}
    put(db, failed(db, 12, status=404, **refused), failed(db, 13, user="boss"))
    kinds = alice.get("/api/usage/errors").json["items"]
    assert [(one["error_code"], one["model"], one["calls"]) for one in kinds] == [
        ("upstream_rate_limited", "gpt-4.1", 3),
        ("model_not_found", None, 1),
    ]
    assert kinds[0]["id"] == last and kinds[0]["endpoint"] == "/v1/chat/completions"
    assert kinds[0]["first_at"] == alice.get(f"/api/usage/{first}").json["started_at"]
    assert kinds[0]["last_at"] == alice.get(f"/api/usage/{last}").json["started_at"]


def test_exports_are_the_calls(db, alice, boss, calls):
    more = put(db, *[call(db, number) for number in range(300, 900)])
    lines = alice.get("/api/usage/export?format=ndjson").text.splitlines()
    records = [json.loads(line) for line in lines]
    assert [one["id"] for one in records] == sorted([*calls[:2], *more])
    answer = alice.get("/api/usage/export?format=csv&outcome=upstream_error")
    [row] = csv.DictReader(io.StringIO(answer.text))
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert list(row) == list(FIELDS) and row["id"] == calls[1] and row["channel"] == ""
    assert len(boss.get("/api/usage/export").text.splitlines()) == 603
    assert alice.get("/api/usage/export?format=xml").status == 400
