"""A gateway process without threads: Funds, and a writer that works immediately on the loop."""

import asyncio
import functools

from store.calls.booking import account_charges
from store.catalog.keys import KeyEntry, Subscription
from store.db.database import transaction
from store.money import leases
from store.money.accounts import payment_of
from store.money.funds import Funds
from store.money.leases import Answer, Verdict
from store.values.ids import HOUR_MS, new_ulid, now_ms
from store.values.pricing import cost_nanos
from store.values.usage_record import Charge
from tests.support.prices import rate_of
from tests.support.stores import change, insert, select
from tests.support.usage_records import BookedJournal, open_line, usage_record


def key_of(user_id, order="plan_first", **fields):
    """Return the cached entry of a key of this user."""
    known = dict.fromkeys(("name", "user", "group"), "x") | {"id": new_ulid(), "user_id": user_id}
    open_to_all = {"disabled": False, "revoked": False, "models": None, "networks": ()}
    dates = {"expires_ms": None, "valid_until_ms": None, "spend_order": order}
    return KeyEntry(**(known | open_to_all | dates | fields))


def limited_payment(db, user_id, key=None, user=None, **fields):
    """Return the payment of calls of a stored key; the key and its user have spend limits of this
    many nanos without a window. None: no limit."""
    for whose, nanos in (("", key), ("user_", user)):
        if nanos is not None:
            fields[f"{whose}limit_window"] = "never"
    known = key_of(user_id, **fields)
    row = dict.fromkeys(("group_id", "prefix", "last_four"), "k") | {"name": known.id}
    row |= {"models": "[]", "networks": "[]", "limit_window": "never", "created_ms": 0}
    insert(db, "api_keys", id=known.id, user_id=user_id, limit_nanos=key, **row)
    if user is not None:
        change(db, 'UPDATE "users" SET "limit_nanos" = ? WHERE "id" = ?', user, user_id)
    return payment_of(known, now_ms())


def subscribe(db, user_id, quota, plan="gold", window="month"):
    """Return a user's subscription, an hour old, to a new plan; both have the same id."""
    begins, ends = now_ms() - HOUR_MS, now_ms() + HOUR_MS
    own = f"S-{plan}"
    insert(db, "plans", id=own, name=plan, quota=quota, window=window, days=30, created_ms=0)
    times = {"starts_ms": begins, "expires_ms": ends, "created_ms": 0}
    insert(db, "subscriptions", id=own, user_id=user_id, plan_id=own, **times)
    return Subscription(own, plan, window, begins, ends)


PRICES = rate_of(10**9, 2 * 10**9, 0, 0, 0, 0, 0)


def _facts(call_id, user_id):
    money = {"prices": PRICES.text, "multiplier_ppm": 10**6}
    return {"id": call_id, "user_id": user_id, "user": "alice", "key_id": user_id, **money}


def opened(call_id, user_id):
    return open_line(**_facts(call_id, user_id), input_tokens=10)


def closed(call_id, user_id, tokens=1, **fields):
    """Return the record of a call whose output costs 2000 nanos a token, paid by the wallet."""
    record = usage_record(
        **_facts(call_id, user_id), output_tokens=tokens, usage_source="reported", **fields
    )
    record.cost_nanos = cost_nanos(record.usage, PRICES, 10**6)
    record.charges = (Charge("wallet", record.cost_nanos),) if record.cost_nanos else ()
    return record


def lease_rows(db):
    """Return (account, journal) -> amount."""
    rows = select(db, 'SELECT "account", "journal_id", "amount" FROM "leases"')
    return {(account, journal): amount for account, journal, amount in rows}


class Process:
    """A process. `store`: "up"; "away": it cannot be reached; "mute": it executes orders, and the
    answer is lost; "slow": nothing happens until `serve` is called."""

    def __init__(self, db, clock=None):
        self.db = db
        self.noted = {}
        more = {} if clock is None else {"clock": clock}
        self.funds = Funds(self._send, self.noted.__setitem__, **more)
        self.store = "up"
        self.orders = []
        self.served = []
        self.closed = []
        self._offset = 0
        self._journal = BookedJournal(db)
        self.id = self._journal.id

    def _send(self, order):
        if self.store == "away":
            return False
        self.orders.append(order)
        if self.store != "slow":
            asyncio.get_running_loop().call_soon(self.serve)
        return True

    def serve(self):
        """Execute the waiting orders."""
        orders, self.orders = self.orders, []
        for order in orders:
            self.served.append(order)
            work = functools.partial(leases.carry_out, self.db, self.id, [order])
            [answer] = transaction(self.db, work)
            self.funds.answered(order, Answer(Verdict.AWAY) if self.store == "mute" else answer)

    async def hold(self, payment, amount, least=None):
        return await self.funds.hold(payment, amount, amount if least is None else least)

    async def spend(self, payment, amount, cost=0):
        """Make a hold and settle it at once; return the charges."""
        return self.funds.settle(await self.hold(payment, amount), cost)

    def look(self):
        """Look for recalled leases, as the writer does every quarter of a second."""
        if wanted := leases.recalled(self.db, self.id):
            self.funds.recalled(wanted)

    def end(self, hold, cost, user_id, call_id=None):
        """End the call: its record waits to be booked."""
        charges = self.funds.settle(hold, cost)
        key_limit, user_limit = hold.limit_accounts
        record = usage_record(
            id=call_id or new_ulid(),
            started_ms=now_ms(),
            user_id=user_id,
            key_id=user_id,
            cost_nanos=cost,
            charges=charges,
            limit_account=key_limit,
            user_limit_account=user_limit,
        )
        self.closed.append(record)
        return record

    def book(self, limit=None):
        """Book closed calls, and report the result to the funds."""
        records, self.closed = self.closed[:limit], self.closed[len(self.closed[:limit]) :]
        if not records:
            return
        left = self._journal.book(records, self._offset, self._offset + 1, now_ms())
        self._offset += 1
        self.funds.applied(left, account_charges(records))

    def end_process(self):
        """Do what a process does at its exit, or the adopter of its journal."""
        self.book()
        self.store = "away"
        self.orders.clear()
        transaction(self.db, lambda: leases.give_all_back(self.db, self.id))

    def lease(self, account_id):
        return self.funds._states[account_id].lease

    def free(self, account_id):
        return self.funds._states[account_id].free
