"""The outbox: a message is claimed before it is sent, tried three times, and kept."""

from functools import partial

import pytest

from store.alerts import evaluation, outbox, rules
from store.alerts.outbox import CLAIM_MS, FAILED, NOT_SENT, SENT, WAITING, Result
from store.alerts.rules import GATEWAY, Rule
from store.db.database import database_ms, select_rows, transaction
from store.db.tables.alerts import AlertMessage, AlertRule, AlertState
from store.hub.membership import user_id_of
from store.upkeep import retention
from store.values.errors import NotFound, Refused
from tests.support.stores import at_once

BAD = Result(ok=False, text="503 busy")


def pick(db, table, *columns, **where):
    """Return rows of a table."""
    query = table.select(*columns)
    for name, value in where.items():
        query = query.where(getattr(table, name) == value)
    return select_rows(db, query)


@pytest.fixture
def sent(alerts, database, users):
    """Return the ids of two waiting messages."""
    alerts.rule("balance")
    alerts.round()
    return [row[0] for row in pick(database, AlertMessage, AlertMessage.id)]


def alter(db, **columns):
    transaction(db, lambda: AlertMessage.update(**columns).execute(db))


def statuses(db):
    return [one.status for one in outbox.listed(db, GATEWAY, 10)]


def test_each_message_is_claimed_by_one_process(sent, database):
    claims = [partial(outbox.claim, database, f"process-{number}") for number in range(8)]
    got = [message.id for message in at_once(database, *claims) if message is not None]
    while (message := outbox.claim(database, "last")) is not None:
        got.append(message.id)
    assert sorted(got) == sorted(sent)


def test_the_claim_of_a_process_that_died_is_free_again(sent, database):
    first = outbox.claim(database, "dead")
    alter(database, claimed_ms=AlertMessage.claimed_ms - CLAIM_MS - 1, next_ms=0)
    again = [outbox.claim(database, "other") for _ in sent]
    assert first.id in {message.id for message in again}, "by the same id"
    outbox.finish(database, first, "dead", Result(ok=True))
    assert statuses(database) == [WAITING, WAITING], "a late process ended the claim of another"


def test_three_tries_in_a_quarter_of_an_hour(sent, database):
    waits = []
    for _ in range(3):
        message = outbox.claim(database, "A", ())
        while message.id != sent[0]:
            message = outbox.claim(database, "A", ())
        outbox.finish(database, message, "A", BAD)
        row = next(row for row in rows(database) if row[0] == sent[0])
        waits.append((row[1], row[2] - database_ms(database) > 0))
        alter(database, next_ms=0, claimed_ms=0)
    assert waits == [(WAITING, True), (WAITING, True), (FAILED, False)]
    assert sum(outbox.RETRY_MS) <= 15 * 60_000
    outbox.send_again(database, GATEWAY, sent[0])
    assert statuses(database) == [WAITING, WAITING]
    with pytest.raises(NotFound):
        outbox.send_again(database, "somebody", sent[0])


def rows(db):
    return pick(db, AlertMessage, AlertMessage.id, AlertMessage.status, AlertMessage.next_ms)


@pytest.mark.databases("sqlite")
def test_users_delay_no_message_of_the_gateway(sent, alerts, database, users, monkeypatch):
    user_id = user_id_of(database, "alice")
    monkeypatch.setattr(outbox, "MAX_OWN_WAITING", 3)
    rule = Rule("", user_id, "balance", {}, ["owner"], 0, False, 0, "", None)
    for _ in range(outbox.MAX_OWN_WAITING):
        assert evaluation.send_test(database, rule, user_id) == 1
    with pytest.raises(Refused, match="too many messages wait"):
        evaluation.send_test(database, rule, user_id)
    waiting = outbox.listed(database, user_id, 1)[0]
    outbox.send_again(database, user_id, waiting.id)
    assert outbox.count(database, user_id) == outbox.MAX_OWN_WAITING
    query = AlertMessage.update(next_ms=1).where(AlertMessage.owner_id == user_id)
    # The user's own messages are overdue for longer.
    transaction(database, lambda: query.execute(database))
    first = [outbox.claim(database, "A").id for _ in sent]
    assert sorted(first) == sorted(sent)


@pytest.mark.databases("sqlite")
def test_what_no_try_would_mend_is_not_tried_again(sent, database):
    message = outbox.claim(database, "A")
    outbox.finish(database, message, "A", Result(ok=False, text="mail is not set up", again=False))
    other = outbox.claim(database, "A")
    outbox.finish(database, other, "A", Result(ok=True, took_ms=180))
    assert sorted(statuses(database)) == sorted([NOT_SENT, SENT])
    assert outbox.count(database, GATEWAY) == 2 and outbox.count(database, GATEWAY, SENT) == 1
    assert [row["result"] for row in map(outbox.public, outbox.listed(database, GATEWAY, 9))] != []


@pytest.mark.databases("sqlite")
def test_messages_are_kept_for_ninety_days(sent, alerts, database):
    message = outbox.claim(database, "A")
    outbox.finish(database, message, "A", Result(ok=True))
    alter(database, made_ms=AlertMessage.made_ms - outbox.KEEP_MS)
    retention.forget_alerts(database, database_ms(database) + 1000)
    assert statuses(database) == [WAITING], "what waits stays"
    (rule,) = rules.listed(database, GATEWAY)
    assert len(rule.firings) == 2
    query = AlertRule.delete()  # as when their user is removed
    transaction(database, lambda: query.execute(database))
    retention.forget_alerts(database, database_ms(database))
    assert pick(database, AlertState, AlertState.object) == []
