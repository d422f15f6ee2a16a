"""A store with alert rules, a webhook of the gateway, and rounds of evaluation."""

import pytest

from store.alerts import destinations, evaluation, rules
from store.alerts.conditions import Scope
from store.alerts.rules import GATEWAY
from store.db.database import database_ms, select_rows, transaction
from store.db.tables.alerts import AlertMessage, AlertRule
from store.db.tables.money import LedgerLine
from store.db.tables.users import User
from store.values.ids import new_ulid

HOOK = {"name": "ops", "kind": "webhook", "address": "https://hooks.example.com/sluice"}


class Alerts:
    """Rules of the gateway that go to one webhook."""

    def __init__(self, db, cipher):
        self.db = db
        self.hook = destinations.create(db, GATEWAY, HOOK, cipher, "nadia")[0]

    def _move_money(self):
        """Insert a ledger line for every user."""
        columns = ("kind", "reason"), ("amount", "balance_after", "at_ms")
        row = {**dict.fromkeys(columns[0], "x"), **dict.fromkeys(columns[1], 0)}
        for (user_id,) in select_rows(self.db, User.select(User.id)):
            line = {"id": new_ulid(), "user_id": user_id, **row}
            transaction(self.db, lambda line=line: LedgerLine.insert(line).execute(self.db))

    def rule(self, kind, owner=GATEWAY, to=None, again=60, **settings):
        self._move_money()
        to = ([] if owner else [self.hook]) if to is None else to
        fields = {"kind": kind, "settings": settings, "destinations": to, "again_minutes": again}
        return rules.create(self.db, owner, fields, "nadia")

    def round(self, later_ms=0, last_round_ms=None, renew=lambda: None):
        """Run one round; return the texts that it adds to the outbox, oldest first."""
        before = self.messages()
        at_ms = database_ms(self.db) + later_ms
        evaluation.run(self.db, Scope(at_ms, "USD", last_round_ms), renew)
        return [text for _, text in self.messages()[len(before) :]]

    def messages(self):
        query = AlertMessage.select(AlertMessage.receiver, AlertMessage.text)
        return select_rows(self.db, query.order_by(AlertMessage.id))

    def state(self, rule_id):
        owner = select_rows(
            self.db, AlertRule.select(AlertRule.owner_id).where(AlertRule.id == rule_id)
        )
        return rules.show(self.db, owner[0][0], rule_id).state


@pytest.fixture
def alerts(database, cipher):
    return Alerts(database, cipher)
