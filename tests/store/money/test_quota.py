"""Display of windows: the amount spent in the current one, and when the next one starts."""

import pytest

from store.admin.export import list_objects, show
from store.db import database as database_module
from store.money.quota import Use, current_use, with_use_of_limits, with_use_of_subscriptions
from tests.support.stores import insert

pytestmark = pytest.mark.databases("sqlite")

AT_MS = 1_795_000_000_000  # Wednesday 2026-11-18, 11:06:40 UTC
DAY_MS = 86_400_000
MIDNIGHT_MS = AT_MS - AT_MS % DAY_MS


def spend(db, account, nanos):
    insert(db, "quotas", account=account, spent=nanos)


def test_the_current_window_counts(database):
    for account, nanos in (
        ("d:day:20261118", 1),
        ("d:day:20261117", 99),
        ("w:week:20261116", 2),
        ("m:month:20261101", 3),
        ("n:never:0", 4),
    ):
        spend(database, account, nanos)
    windows = {"d": "day", "w": "week", "m": "month", "n": "never", "none": "day"}
    tomorrow_ms = MIDNIGHT_MS + DAY_MS
    assert current_use(database, windows, AT_MS) == {
        "d": Use(1, tomorrow_ms),
        "w": Use(2, MIDNIGHT_MS + 5 * DAY_MS),
        "m": Use(3, MIDNIGHT_MS + 13 * DAY_MS),
        "n": Use(4, None),
        "none": Use(0, tomorrow_ms),
    }
    assert current_use(database, windows, tomorrow_ms)["d"] == Use(0, tomorrow_ms + DAY_MS)
    assert current_use(database, {}, AT_MS) == {}


def test_many_are_read_in_parts(database, monkeypatch):
    monkeypatch.setattr(database_module, "PORTION", 2)
    for number in range(5):
        spend(database, f"{number}:never:0", number)
    uses = current_use(database, {str(number): "never" for number in range(5)}, AT_MS)
    assert [use.spent_nanos for use in uses.values()] == [0, 1, 2, 3, 4]


def test_subscriptions_go_by_the_window_of_their_plan(database, editor, applied):
    editor.create("plan", "weekly", {"quota": "20", "window": "week"})
    editor.create("subscription", "alice/weekly", {})
    stored = show(database, "subscription", "alice/weekly")
    spend(database, f"{stored['id']}:week:20261116", 1_500_000_000)
    use = {"spent": "1.5", "resets_at": "2026-11-23T00:00:00Z"}
    assert with_use_of_subscriptions(database, [stored], AT_MS) == [{**stored, **use}]
    gone = {**stored, "plan": "removed meanwhile"}
    [shown] = with_use_of_subscriptions(database, [gone], AT_MS)
    assert (shown["spent"], shown["resets_at"]) == (None, None)


@pytest.mark.parametrize(("kind", "name"), [("key", "alice/laptop"), ("user", "alice")])
def test_keys_and_users_go_by_their_limit(database, editor, applied, kind, name):
    editor.change(kind, name, {"limit": "5"})
    found = list_objects(database, kind)
    spend(database, f"{found[0]['id']}:never:0", 7)
    spend(database, f"{found[1]['id']}:never:0", 9)
    use = [
        {"spent": "0.000000007", "resets_at": None},
        {"spent": None, "resets_at": None},  # a key without a limit
    ]
    shown = with_use_of_limits(database, found, AT_MS)
    assert shown == [{**key, **more} for key, more in zip(found, use, strict=True)]
    editor.change(kind, name, {"limit_window": "day"})
    [shown] = with_use_of_limits(database, [show(database, kind, name)], AT_MS)
    assert (shown["spent"], shown["resets_at"]) == ("0", "2026-11-19T00:00:00Z")
