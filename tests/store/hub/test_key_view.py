"""A key's view of its money: limits, payers, and its spending in the UTC day and month."""

import pytest

from store.db.database import database_ms
from store.hub.key_view import KeyView, view_of
from store.money.subscriptions import ACTIVE, USED_UP, Held, Payers, SpendLimit
from store.values.errors import NotFound
from store.values.ids import DAY_MS, day_at, day_begin_ms
from tests.store.hub.test_own_keys import alice, call, laptop, spend  # noqa: F401 - fixtures
from tests.support.usage_records import store

pytestmark = pytest.mark.databases("sqlite")


def test_the_view_of_a_key(database, alice, laptop, editor):  # noqa: F811
    at_ms = database_ms(database)
    month_ms = day_begin_ms(day_at(at_ms) // 100 * 100 + 1)
    at_ms = month_ms + 2 * DAY_MS + 7
    times = (month_ms - 1, month_ms, at_ms, at_ms)
    calls = [call(alice, laptop, number, time_ms) for number, time_ms in enumerate(times)]
    calls.append(call(alice, "another", 9, at_ms))
    store(database, calls, at_ms)
    view = view_of(database, laptop, alice, at_ms)
    assert (view.today_nanos, view.month_nanos, view.spent_nanos) == (10, 15, 15)
    assert (view.limit, view.payers.limit, view.payers.spend_order) == (None, None, "plan_first")
    assert view.masked.startswith("sk-") and "…" in view.masked and len(view.masked) < 20
    editor.change("key", "alice/laptop", {"limit": "5", "limit_window": "day"})
    ends_ms = spend(database, laptop, 7, at_ms)
    view = view_of(database, laptop, alice, at_ms)
    assert view.limit == SpendLimit(5 * 10**9, "day", 7, ends_ms) and view.spent_nanos == 7
    with pytest.raises(NotFound):
        view_of(database, "nobody", alice, at_ms)


def held(state, left):
    return Held("plan", "month", 10, 10 - left, 0, 9, 9, state)


@pytest.mark.parametrize(
    ("order", "plans", "limits", "left"),
    [
        ("wallet_only", [held(ACTIVE, 4)], (None, None), 100),
        ("plan_first", [held(ACTIVE, 4), held(USED_UP, 0)], (None, None), 104),
        ("plan_only", [held(ACTIVE, 4)], (None, None), 4),
        ("plan_only", [], (None, None), 0),
        ("wallet_first", [held(ACTIVE, 4)], (30, None), 20),
        ("wallet_first", [held(ACTIVE, 4)], (30, 15), 5),
        ("wallet_first", [], (5, None), 0),
    ],
)
def test_what_is_left_to_a_key(order, plans, limits, left):
    """10 of the limits are spent; the wallet has 100."""
    key_limit, user_limit = (limit and SpendLimit(limit, "day", 10, 9) for limit in limits)
    view = KeyView("sk", 0, key_limit, Payers(order, plans, user_limit), 100, 0, 0)
    assert view.left_nanos == left
