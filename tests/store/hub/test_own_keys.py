"""A user's keys as the owner sees them."""

import pytest

from store.admin.export import show
from store.db.database import database_ms, transaction
from store.db.tables.money import Quota
from store.db.tables.users import User
from store.hub import own_keys
from store.hub.membership import groups_for_keys, key_groups
from store.money.accounts import quota_at
from store.values.ids import HOUR_MS, ulid
from store.values.usage_record import Charge
from tests.support.usage_records import store, usage_record

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture
def alice(database, applied):
    return show(database, "user", "alice")["id"]


@pytest.fixture
def laptop(database, applied):
    return show(database, "key", "alice/laptop")["id"]


def spend(database, laptop, nanos, at_ms):
    """Store this spending in the key's window of a day; return when the window ends."""
    account, ends_ms = quota_at(laptop, "day", at_ms)
    row = {"account": account, "spent": nanos, "ends_ms": ends_ms}
    transaction(database, lambda: Quota.replace(row).execute(database))
    return ends_ms


def call(alice, key_id, number, at_ms, **fields):
    facts = {"user_id": alice, "user": "alice", "key_id": key_id, "key_name": "laptop"}
    facts |= {"group": "default", "endpoint": "/v1/messages", "family": "messages", "model": "m"}
    facts |= {"cost_nanos": 5, "charges": (Charge("wallet", 5),), "outcome": "ok"}
    return usage_record(id=ulid(at_ms, number.to_bytes(10)), started_ms=at_ms, **(facts | fields))


def test_use_of_the_limit_and_of_the_month(database, alice, laptop, editor):
    at_ms = database_ms(database)
    store(database, [call(alice, laptop, number, at_ms) for number in range(3)], at_ms)
    key = own_keys.show(database, alice, laptop, at_ms)
    assert (key.spent_nanos, key.spent_window) == (15, "month") and key.resets_ms > at_ms
    editor.change("key", "alice/laptop", {"limit": "5", "limit_window": "day"})
    ends_ms = spend(database, laptop, 7, at_ms)
    key = own_keys.show(database, alice, laptop, at_ms)
    assert (key.spent_nanos, key.spent_window, key.resets_ms) == (7, "day", ends_ms)
    editor.change("key", "alice/laptop", {"limit_window": "never"})
    assert own_keys.show(database, alice, laptop, at_ms).resets_ms is None


@pytest.mark.parametrize(
    ("limit", "spent", "near"),
    [("5", 4 * 10**9 - 1, False), ("5", 4 * 10**9, True), ("5", 6 * 10**9, True), (None, 9, False)],
)
def test_near_its_limit(database, alice, laptop, editor, limit, spent, near):
    editor.change("key", "alice/laptop", {"limit": limit, "limit_window": "day"})
    at_ms = database_ms(database)
    spend(database, laptop, spent, at_ms)
    assert own_keys.show(database, alice, laptop, at_ms).near_limit is near


def test_the_last_use(database, alice, laptop, editor):
    made = editor.create("key", "alice/phone", {"group": "plain"}).keys[0].id
    at_ms = database_ms(database)
    at_ms -= at_ms % HOUR_MS
    calls = [
        call(alice, laptop, 1, at_ms - HOUR_MS, client_ip="192.0.2.1"),
        call(alice, laptop, 2, at_ms + 5, client_ip="192.0.2.2", user_agent="curl/8"),
        call(alice, laptop, 3, at_ms + 4, client_ip="192.0.2.3"),
        call(alice, made, 4, at_ms - 30 * HOUR_MS, client_ip="192.0.2.4"),
    ]
    store(database, calls, at_ms)
    keys_ = own_keys.owned(database, alice, at_ms)
    phone, other = own_keys.with_use(database, keys_, at_ms)
    assert (other.last_use.at_ms, other.last_use.address) == (at_ms + 5, "192.0.2.2")
    assert (other.last_use.agent, phone.last_use.address) == ("curl/8", "192.0.2.4")


def test_users_that_were_made_before_groups_have_the_default_one(database, alice):
    none = User.update(groups=None).where(User.id == alice)
    transaction(database, lambda: none.execute(database))
    assert groups_for_keys(database, alice, admin=False) == ["default"]


def test_what_groups_offer(database, applied, editor):
    found = key_groups(database)
    assert found["default"].models == ("claude", "gpt-4.1")
    assert (found["plain"].models, found["plain"].multiplier_ppm) == (("gpt-4.1",), 1_500_000)
    assert found["plain"].entries == ("chat_completions",)
    editor.set_enabled("model", "gpt-4.1", False)
    editor.set_enabled("channel", "anthropic-main", False)
    assert key_groups(database)["default"].models == ()
