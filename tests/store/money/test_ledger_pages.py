"""The ledger page by page, charges by day, payers, and the notice of a low balance."""

import pytest

from store.admin.export import show
from store.hub import notices
from store.money import ledger, subscriptions, wallet
from store.money.accounts import quota_at
from store.values.errors import Refused
from store.values.ids import DAY_MS, day_at
from tests.support.stores import insert
from tests.support.usage_records import NOW_MS, charged, store


@pytest.fixture
def alice(applied, database):
    return wallet.find_owner(database, "alice").id


def pages(db, user_id, limit):
    found, after = [], None
    while True:
        page = ledger.page_of(db, user_id, limit, after)
        found.append(list(page.lines))
        after = page.next
        if after is None:
            return found


def test_pages_are_the_ledger_backwards(database, alice):
    for number in range(5):
        wallet.credit(database, "alice", wallet.Movement(10**9 + number, "gift"))
    # The charges of two days are booked at the same time: the later day's line has the later
    # balance.
    records = [charged(alice, 10, NOW_MS), charged(alice, 20, NOW_MS - DAY_MS)]
    store(database, records, NOW_MS)
    whole = wallet.ledger(database, "alice")
    for limit in (1, 2, 3, 100):
        found = pages(database, alice, limit)
        assert [line for page in found for line in page] == whole[::-1]
        assert all(len(page) == limit for page in found[:-1])
    days = ledger.charges_by_day(database, alice, day_at(NOW_MS))
    assert days == {day_at(NOW_MS): 10}
    [today] = [line for line in whole if ledger.charged_day(line) == day_at(NOW_MS)]
    assert (today.amount_nanos, ledger.charged_day(whole[-1])) == (-10, None)


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("cursor", ["", "x", "1-2", "1-2-short", "9" * 30 + "-0-" + "A" * 26])
def test_a_cursor_that_is_none(database, alice, cursor):
    with pytest.raises(Refused):
        ledger.page_of(database, alice, 5, cursor)


def test_who_pays_in_which_order(database, editor, alice):
    assert subscriptions.payers_of(database, alice, NOW_MS).order == ["wallet"]
    times = {"starts_at": "2026-01-01T00:00:00Z", "expires_at": "2026-03-01T00:00:00Z"}
    for name, more in (("small", {}), ("large", {"expires_at": "2026-02-01T00:00:00Z"})):
        editor.create("plan", name, {"quota": "20", "window": "month"})
        editor.create("subscription", f"alice/{name}", times | more)
    payers = subscriptions.payers_of(database, alice, NOW_MS)
    assert payers.order == ["large", "small", "wallet"]
    sub_id = show(database, "subscription", "alice/large")["id"]
    account, ends_ms = quota_at(sub_id, "month", NOW_MS)
    insert(database, "quotas", account=account, spent=21 * 10**9, ends_ms=ends_ms)
    [first, second] = subscriptions.payers_of(database, alice, NOW_MS).subscriptions
    assert (first.state, first.left_nanos, first.resets_ms) == ("used_up", 0, ends_ms)
    assert (second.state, second.spent_nanos) == ("active", 0)
    [first, second] = subscriptions.payers_of(database, alice, NOW_MS + 40 * DAY_MS).subscriptions
    assert (first.state, second.state) == ("expired", "active")
    [first, _] = subscriptions.payers_of(database, alice, NOW_MS - 40 * DAY_MS).subscriptions
    assert first.state == "waiting"


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("plan_first", ["p", "wallet"]),
        ("wallet_first", ["wallet", "p"]),
        ("plan_only", ["p"]),
        ("wallet_only", ["wallet"]),
    ],
)
def test_the_order_is_the_users(database, editor, alice, order, names):
    editor.create("plan", "p", {"quota": "20", "window": "day"})
    editor.create("subscription", "alice/p", {"starts_at": "2026-01-01T00:00:00Z"})
    editor.change("user", "alice", {"order": order})
    assert subscriptions.payers_of(database, alice, NOW_MS).order == names


def test_the_notice_of_a_low_balance(database, alice):
    for below in (None, 5 * 10**9, 0, None):
        if below is not None or notices.low_balance(database, alice) is not None:
            notices.set_low_balance(database, alice, below)
        assert notices.low_balance(database, alice) == below
