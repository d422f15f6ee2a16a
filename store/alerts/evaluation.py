"""One round of all rules: what starts or stops firing becomes states and messages.

State and messages of a rule change in one transaction, which also renews the lease of the round, so
that a process that has lost the lease changes nothing. There is one message for a rule, object and
window; its end is sent once. Objects that find no room in the outbox, or are beyond MAX_NEW, remain
new for the next round.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import peewee

from store.alerts import kinds, outbox, rules, samples
from store.alerts.conditions import Fact, Scope, SharedFacts, facts_of
from store.alerts.rules import Rule
from store.db.database import database_ms, transaction
from store.db.tables.alerts import OBJECT, AlertRule, AlertState
from store.values.errors import StoreError, StoreUnavailable

log = logging.getLogger(__name__)

MAX_NEW = 50
"""The most objects of a rule that start firing in one round."""

Renew = Callable[[], None]
"""Renews the lease of the round in the caller's transaction. Raises if it is lost."""


def run(db: peewee.Database, scope: Scope, renew: Renew) -> None:
    """Evaluate all active rules. Raises StoreUnavailable, and what `renew` raises. A rule that
    fails otherwise is logged and skipped."""
    in_force = rules.enabled(db)
    spans = {rule.settings["minutes"] for rule in in_force if rule.kind == kinds.ERRORS}
    if spans:
        scope = replace(scope, attempts=samples.take(db, scope.at_ms, spans))
    scope = replace(scope, shared=SharedFacts(db, in_force, scope.at_ms))
    firing = rules.firing(db)
    for rule in in_force:
        if rule.kind == kinds.ERRORS and rule.settings["minutes"] not in scope.attempts:
            continue  # there is no sample of the span's start yet
        try:
            facts = facts_of(db, rule, scope)
        except StoreUnavailable:
            raise
        except StoreError as error:
            log.error("alert rule %s failed: %s", rule.id, error)
            continue
        if facts or rule.id in firing:  # few rules have either
            transaction(db, functools.partial(_take, db, rule, facts, renew))


def _take(db: peewee.Database, rule: Rule, facts: Sequence[Fact], renew: Renew) -> None:
    renew()
    at_ms = database_ms(db)
    # A concurrent change or removal of the rule waits, or is finished.
    current = (AlertRule.id == rule.id) & (AlertRule.changed_ms == rule.changed_ms)
    if not AlertRule.update(id=rule.id).where(current).execute(db):
        return
    query = AlertState.select().where(AlertState.rule_id == rule.id).bind(db)
    states: dict[str, AlertState] = {row.object: row for row in query}
    room, new, fired = outbox.room(db, rule.owner_id), 0, False
    lasting = set()
    for fact in facts:
        name = kinds.object_name(fact.object)[:OBJECT]
        lasting.add(name)
        state = states.get(name)
        quiet = _is_quiet(rule, state, fact, at_ms)
        lasts = state is not None and state.firing and state.window == fact.window
        if lasts and (quiet or states[name].sent):
            continue  # a quiet object is sent if it still fires when the quiet time ends
        if not quiet and (new == MAX_NEW or room < len(rule.destinations)):
            continue
        if not quiet:
            new, fired = new + 1, True
            room -= _send(db, rule, outbox.FIRING, fact, at_ms)
        _keep(db, rule, name, fact, state, sent_ms=None if quiet else at_ms)
    for name, state in states.items():
        if state.firing and name not in lasting:
            _end(db, rule, state, at_ms)
    if fired:
        AlertRule.update(fired_ms=at_ms).where(AlertRule.id == rule.id).execute(db)


def _is_quiet(rule: Rule, state: Any, fact: Fact, at_ms: int) -> bool:
    """Return whether the object had its message: for this window, or within the last `again_ms`."""
    if state is None:
        return False
    if fact.window:
        return bool(state.window == fact.window)
    return bool(at_ms - state.fired_ms < rule.again_ms)


def _keep(
    db: peewee.Database, rule: Rule, name: str, fact: Fact, state: Any, *, sent_ms: int | None
) -> None:
    columns = {
        "window": fact.window,
        "firing": True,
        "sent": sent_ms is not None,
        "since_ms": fact.since_ms,
        "fired_ms": sent_ms or (state.fired_ms if state is not None else 0),
        "text": fact.text,
        "link": fact.link,
        "subject": dict(fact.object),
        "user_id": fact.owner_id,
    }
    own = (AlertState.rule_id == rule.id) & (AlertState.object == name)
    if state is None:
        AlertState.insert({"rule_id": rule.id, "object": name, **columns}).execute(db)
    else:
        AlertState.update(columns).where(own).execute(db)


def _end(db: peewee.Database, rule: Rule, state: Any, at_ms: int) -> None:
    own = (AlertState.rule_id == rule.id) & (AlertState.object == state.object)
    AlertState.update(firing=False, sent=False).where(own).execute(db)
    if state.sent and not state.window:
        text = f"Over: {state.text}"
        fact = Fact(state.subject, text, state.since_ms, state.link, state.user_id)
        _send(db, rule, outbox.OVER, fact, at_ms)


def _send(db: peewee.Database, rule: Rule, state: str, fact: Fact, at_ms: int) -> int:
    """Put a message for each destination of a rule into the outbox. Return how many."""
    owner_id = fact.owner_id or rule.owner_id
    receivers = outbox.receivers(db, rule.owner_id, rule.destinations, owner_id)
    for receiver in receivers:
        message = {
            "owner_id": rule.owner_id,
            "rule_id": rule.id,
            "kind": rule.kind,
            "state": state,
            "since_ms": fact.since_ms,
            "object": dict(fact.object),
            "text": fact.text,
            # The owner of the firing object cannot open pages of administrators.
            "link": kinds.OWN_PAGES.get(rule.kind, fact.link) if receiver["user_id"] else fact.link,
            **receiver,
        }
        outbox.add(db, message, at_ms)
    return len(receivers)


def send_test(db: peewee.Database, rule: Rule, user_id: str) -> int:
    """Put a sample message of a rule, which need not be stored, into the outbox for each of its
    destinations. `user_id` receives those for "owner". Return how many. Raises Refused."""
    at_ms = database_ms(db)
    text = "This is a test of an alert rule"
    fact = Fact({"test": rule.kind}, text, at_ms, "/alerts", user_id)

    def work() -> int:
        outbox.require_room(db, rule.owner_id, len(rule.destinations))
        return _send(db, rule, outbox.TEST, fact, at_ms)

    return transaction(db, work)
