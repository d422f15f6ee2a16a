"""Rounds of the rules: what fires, what has ended, and one message for each rule, object and
window."""

import pytest

from store.alerts import evaluation, outbox, rules, samples
from store.alerts.rules import OWNER
from store.catalog.suspended_keys import SuspendedKey, lift, suspend
from store.db import nodes
from store.db.database import database_ms, select_rows, transaction
from store.db.tables.alerts import AlertState
from store.db.tables.catalog import Channel, ChannelKey
from store.db.tables.money import LedgerLine, Quota, Wallet
from store.db.tables.system import Node, UpkeepRow
from store.db.tables.usage import JournalRow
from store.db.tables.users import ApiKey
from store.money.accounts import quota_at
from store.upkeep import lease
from store.values.ids import new_ulid
from store.values.usage import Served
from store.values.usage_record import AttemptRecord, Receipt
from tests.support.usage_records import record_at, store
from tests.support.users import add_user

MINUTE_MS = 60_000
UNIT = 10**9


def pick(db, table, *columns, **where):
    """Return rows of a table."""
    query = table.select(*columns)
    for name, value in where.items():
        query = query.where(getattr(table, name) == value)
    return select_rows(db, query)


def alter(db, table, where=None, **columns):
    query = table.update(**columns)
    transaction(db, lambda: (query.where(where) if where is not None else query).execute(db))


def set_balance(db, user_id, nanos):
    alter(db, Wallet, Wallet.user_id == user_id, balance=nanos)


def call(db, user="alice", ago_ms=0, **fields):
    at_ms = database_ms(db) - ago_ms
    facts = {"user": user, "key_id": "k", "model": "gpt-4.1", "outcome": "ok", "group": "default"}
    return record_at(at_ms, **(facts | fields))


def test_a_low_balance_is_sent_once_and_its_end_once(alerts, database, users):
    set_balance(database, users["bob"], 9 * UNIT)
    rule_id = alerts.rule("balance", below="5", names=["bob"])
    assert alerts.round() == []
    set_balance(database, users["bob"], 4 * UNIT)
    assert alerts.round() == ["bob: 4.0000 USD left"] and alerts.round() == []
    assert alerts.state(rule_id) == "firing"
    set_balance(database, users["bob"], 6 * UNIT)
    assert alerts.round() == ["Over: bob: 4.0000 USD left"] and alerts.round() == []
    assert alerts.state(rule_id) == "armed"


@pytest.mark.databases("sqlite")
def test_within_the_quiet_time_nothing_is_sent_after_it_what_lasts_is(alerts, database, users):
    rule_id = alerts.rule("balance", names=["bob"], again=60)
    assert alerts.round() != []
    set_balance(database, users["bob"], 6 * UNIT)
    assert alerts.round() == ["Over: bob: 0 USD left"]
    set_balance(database, users["bob"], 1)
    assert alerts.round() == [], "it was sent less than an hour ago"
    assert alerts.state(rule_id) == "firing"
    alter(database, AlertState, fired_ms=AlertState.fired_ms - 61 * MINUTE_MS)
    assert len(alerts.round()) == 1 and alerts.round() == []


@pytest.mark.databases("sqlite")
def test_who_never_had_money_has_none_to_run_out_of(alerts, database, users):
    alerts.rule("balance")
    delete = LedgerLine.delete().where(LedgerLine.user_id == users["bob"])
    transaction(database, lambda: delete.execute(database))
    assert alerts.round() == ["alice: 0 USD left"]


@pytest.mark.databases("sqlite")
def test_calls_refused_for_money_fire_whatever_is_left(alerts, database, users):
    set_balance(database, users["bob"], 9 * UNIT)
    alerts.rule("balance", below="5", names=["bob"])
    refused = {"outcome": "refused", "error_code": "insufficient_quota"}
    store(database, [call(database, "bob", **refused)])
    assert alerts.round() == ["bob: 9.0000 USD left, calls are refused"]


def test_a_key_is_sent_at_80_and_at_100_percent(applied, alerts, database, book, editor):
    editor.change("key", "alice/laptop", {"limit": "10", "limit_window": "day"})
    key_id, user_id = pick(database, ApiKey, ApiKey.id, ApiKey.user_id, name="laptop")[0]
    rule_id = alerts.rule("key", to=[alerts.hook, OWNER])
    for spent, sent in ((7, None), (8, "8.00"), (9, None), (10, "10.00"), (11, None)):
        spend(database, key_id, spent * UNIT)
        text = f"Key laptop of alice has used {sent} USD of 10.00 USD"
        assert alerts.round() == ([text] * 2 if sent else []), spent
    assert {receiver for receiver, _ in alerts.messages()} == {"ops", "alice"}
    assert alerts.state(rule_id) == "firing"
    own = alerts.rule("key", owner=user_id, to=[OWNER])
    assert len(alerts.round()) == 1 and alerts.state(own) == "firing"


def spend(db, key_id, nanos):
    from_account = quota_at(key_id, "day", database_ms(db))[0]
    row = {"account": from_account, "spent": nanos, "ends_ms": None}
    transaction(db, lambda: Quota.replace(row).execute(db))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"of": "user"}, "alice has spent 16.00 USD today"),
        ({"of": "user", "names": ["bob"]}, None),
        ({"of": "user", "above": "16"}, None),
        ({"of": "gateway", "above": "16.5"}, "The gateway has spent 17.00 USD today"),
        ({"of": "group", "window": "month"}, "Group default has spent 17.00 USD this month"),
        ({"of": "key", "names": ["alice/laptop"]}, "Key alice/laptop has spent 16.00 USD today"),
    ],
)
def test_spending_of_a_window(applied, alerts, database, settings, text):
    key_id = pick(database, ApiKey, ApiKey.id, name="laptop")[0][0]
    records = [call(database, key_id=key_id, cost_nanos=8 * UNIT) for _ in range(2)]
    store(database, [*records, call(database, "bob", cost_nanos=UNIT)])
    alerts.rule("spending", **settings)
    assert alerts.round() == ([text] if text else [])
    assert alerts.round() == [], "once a window"


def test_less_than_a_cent_is_not_called_nothing(applied, alerts, database):
    store(database, [call(database, cost_nanos=UNIT // 2000)])
    alerts.rule("spending", of="user", above="0")
    assert alerts.round() == ["alice has spent 0.0005 USD today"]


@pytest.mark.databases("sqlite")
def test_members_see_their_own_spending_alone(alerts, database, users):
    store(database, [call(database, name, cost_nanos=20 * UNIT) for name in ("alice", "bob")])
    alerts.rule("spending", owner=users["bob"], to=[OWNER])
    assert alerts.round() == ["bob has spent 20.00 USD today"]


def test_a_use_without_a_price_is_sent_once_a_day(applied, alerts, database):
    receipt = Receipt(None, Served("default"), (("web_search", 3),))
    store(database, [call(database, receipt=receipt, usage_source="reported")])
    alerts.rule("unpriced")
    assert alerts.round() == ["gpt-4.1: web_search is used without a price"]
    assert alerts.round() == []


def attempts(db, ok=0, failed=0, ago_ms=0):
    rows = []
    for error in [None] * ok + ["upstream_error"] * failed:
        tried = (AttemptRecord("openai-main", 200, error, 10),)
        outcome = {"outcome": "upstream_error", "error_code": error} if error else {}
        rows.append(call(db, ago_ms=ago_ms, attempts=tried, channel="openai-main", **outcome))
    store(db, rows)


def test_a_channel_that_is_down_for_long_enough(applied, alerts, database):
    alerts.rule("channel_down", minutes=2)
    attempts(database, failed=3, ago_ms=0)
    assert alerts.round() == [], "it has been down for a moment only"
    (text,) = alerts.round(later_ms=3 * MINUTE_MS)
    assert text.startswith("Channel openai-main has been down since ")
    assert alerts.round(later_ms=20 * MINUTE_MS) == [f"Over: {text}"]


@pytest.mark.databases("sqlite")
def test_degraded_counts_where_the_rule_says_so(applied, alerts, database):
    alerts.rule("channel_down", minutes=0, state="degraded")
    attempts(database, ok=18, failed=2)
    assert "openai-main has been degraded" in alerts.round()[0]


def test_the_share_of_errors_is_of_the_last_minutes(applied, alerts, database):
    alerts.rule("errors", percent=3, minutes=10, calls=50)
    attempts(database, ok=500)
    assert alerts.round(later_ms=-11 * MINUTE_MS) == [], "there is no sample of then"
    attempts(database, ok=74, failed=4)
    assert alerts.round() == ["openai-main: 4 of 78 calls failed in 10 minutes, 5.1%"]


@pytest.mark.databases("sqlite")
def test_samples_are_one_a_minute_and_few(database, applied):
    for minute in range(130):
        samples.take(database, 10**12 + minute * MINUTE_MS, [10])
        samples.take(database, 10**12 + minute * MINUTE_MS + 1, [10])
    assert len(pick(database, samples.AlertSample, samples.AlertSample.at_ms)) == 121


def test_an_upstream_key_that_is_put_aside(applied, alerts, database):
    channel_id = pick(database, Channel, Channel.id, name="openai-main")[0][0]
    mark = pick(database, ChannelKey, ChannelKey.fingerprint, channel_id=channel_id)[0][0]
    alerts.rule("upstream_key")
    at_ms = database_ms(database)
    suspend(database, SuspendedKey(channel_id, mark, at_ms, at_ms + 10_000, 1, "401"))
    text = f"openai-main: upstream key {mark[:8]} was suspended, 401"
    assert alerts.round() == [text]
    lift(database, (channel_id, mark))
    assert alerts.round() == [f"Over: {text}"]


@pytest.mark.databases("sqlite")
def test_nodes_journals_and_the_store(alerts, database):
    alerts.rule("trouble")
    at_ms = database_ms(database)
    rows = {"n1": (at_ms - 5 * MINUTE_MS, 0), "n2": (at_ms, 20 << 20)}
    for name, (seen_ms, backlog) in rows.items():
        journal = {"id": new_ulid(), "node": name, "offset": 0, "opened_ms": 0, "version": "v"}
        journal |= {"seen_ms": seen_ms, "backlog_bytes": backlog, "not_ready": "", "lead_ms": 0}
        transaction(database, lambda row=journal: JournalRow.insert(row).execute(database))
        node = {"name": name, "seen_ms": seen_ms}
        transaction(database, lambda row=node: Node.insert(row).execute(database))
    alter(database, UpkeepRow, UpkeepRow.name == "upkeep", trouble="disk full")
    texts = alerts.round(last_round_ms=at_ms - 10 * MINUTE_MS)
    assert sorted(text[:24] for text in texts) == [
        *("Journal of node n2: 20 M", "No node reached the stor", "Node n1 has been silent "),
        "Upkeep of the store fail",
    ]
    assert nodes.states(database)[0].name == "n1"
    assert alerts.round(last_round_ms=at_ms) == [], "the store's absence is over without a message"


def test_who_has_lost_the_lease_changes_nothing(alerts, database, users):
    alerts.rule("balance")
    assert lease.take(database, "A", "web-1", lease.ALERTS)
    with pytest.raises(lease.Lost):
        alerts.round(renew=lambda: lease.renew(database, "B", lease.ALERTS))
    assert alerts.messages() == [] and pick(database, AlertState, AlertState.object) == []
    assert len(alerts.round(renew=lambda: lease.renew(database, "A", lease.ALERTS))) == 2


@pytest.mark.databases("sqlite")
def test_what_finds_no_room_is_sent_later(alerts, database, users, monkeypatch):
    alerts.rule("balance")
    monkeypatch.setattr(evaluation, "MAX_NEW", 1)
    assert [len(alerts.round()) for _ in range(3)] == [1, 1, 0]
    set_balance(database, users["bob"], 9 * UNIT)
    alerts.round()
    monkeypatch.setattr(outbox, "MAX_WAITING", 0)
    alter(database, AlertState, fired_ms=0)
    set_balance(database, users["bob"], 0)
    assert alerts.round() == []
    monkeypatch.undo()
    assert alerts.round() == ["bob: 0 USD left"]


@pytest.mark.databases("sqlite")
def test_a_rule_that_is_off_or_of_a_disabled_user_fires_for_nothing(
    applied, alerts, database, editor
):
    user_id = pick(database, ApiKey, ApiKey.user_id, name="desk")[0][0]
    own = alerts.rule("balance", owner=user_id, to=[OWNER])
    assert len(alerts.round()) == 1
    rules.change(database, user_id, own, {"enabled": False}, "bob")
    assert alerts.state(own) == "off" and alerts.round() == []
    rules.change(database, user_id, own, {"enabled": True}, "bob")
    editor.change("user", "bob", {"enabled": "false"})
    assert alerts.round() == []


def test_rules_of_members_share_what_they_read(alerts, database, monkeypatch):
    statements, execute_sql = [], database.execute_sql
    counting = lambda *args: statements.append(1) or execute_sql(*args)  # noqa: E731 - short
    counts = []
    for name in ("alice", "bob", "carol", "dave"):
        user_id = add_user(database, name)
        for kind in ("balance", "key"):
            alerts.rule(kind, owner=user_id, to=[OWNER])
        set_balance(database, user_id, 9 * UNIT)
        with monkeypatch.context() as patched:
            patched.setattr(database, "execute_sql", counting)
            assert alerts.round() == []
        counts.append(len(statements))
        statements.clear()
    assert len(set(counts)) == 1, "a round costs the same whatever the number of members"
    set_balance(database, user_id, UNIT)
    assert alerts.round() == ["dave: 1.0000 USD left"]
