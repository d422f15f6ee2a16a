"""Leases: the parts of accounts' free money that processes may spend. The database side.

Free = balance (of a quota: its limit less what was spent) - all leases. The lender holds the lock
of the account's row (in wallets or quotas) until the end of the transaction, so nothing is lent
twice. Returning money needs no lock. The lock is an update of the row, so that a cluster detects
two hosts that lend at once (ADR 0042). A lease belongs to the journal of its process. It shrinks in
the transactions that book that journal's charges. The rest is returned by the process itself, or by
the one that adopted and booked its journal, since only these know what was spent.

The memory side is funds. The SQL is raw because the writer carries out orders and books under
locks.
"""

import enum
from collections.abc import Mapping, Sequence

import msgspec
import peewee

from store.db import database
from store.db.database import execute, executemany, in_snapshot, in_transaction, is_mysql, portions
from store.money.accounts import KEY_LIMIT, SUBSCRIPTION, USER_LIMIT, Account, owner_id
from store.values.usage_record import WALLET

AHEAD_SHARE = 4
"""At most 1/AHEAD_SHARE of the money that is free beyond the waiting calls is lent ahead."""

QUOTA_KEPT_MS = 60 * 86_400_000

_LENT = """SELECT COALESCE(SUM("amount"), 0),
  COALESCE(SUM(CASE WHEN "journal_id" = ? THEN "amount" ELSE 0 END), 0)
  FROM "leases" WHERE "account" = ?"""
_RECALL = """UPDATE "leases" SET "recall" = 1
  WHERE "account" = ? AND "journal_id" <> ? AND "amount" > 0"""
_LEASE = ("account", "journal_id")
_SET = database.upsert_texts("leases", (*_LEASE, "amount", "held"), _LEASE, {"amount": "{amount}"})
_SPEND = """UPDATE "leases" SET "amount" = CASE WHEN "amount" > ? THEN "amount" - ? ELSE 0 END
  WHERE "account" = ? AND "journal_id" = ?"""
_QUOTA = database.upsert_texts(
    "quotas", ("account", "spent", "ends_ms"), ("account",), {"spent": '"spent" + {spent}'}
)
_LOCK_QUOTA = database.upsert_texts(
    "quotas", ("account", "spent", "ends_ms"), ("account",), {"locks": '"locks" + 1'}
)
# The balance is returned as `lastrowid`, since an UPDATE returns no rows.
_LOCK_WALLET = """UPDATE "wallets" SET "locks" = "locks" + 1
  WHERE "user_id" = ? AND LAST_INSERT_ID("balance") IS NOT NULL"""
_BALANCE = 'SELECT "balance" FROM "wallets" WHERE "user_id" = ?'
_SPENT = 'SELECT "spent" FROM "quotas" WHERE "account" = ?'
_CREDIT = {
    SUBSCRIPTION: """SELECT p."quota" FROM "subscriptions" s JOIN "plans" p ON p."id" = s."plan_id"
      WHERE s."id" = ? AND s."disabled" = 0 AND p."disabled" = 0""",
    **{
        kind: f'SELECT "limit_nanos" FROM "{table}" WHERE "id" = ? AND "limit_nanos" IS NOT NULL'
        for kind, table in ((KEY_LIMIT, "api_keys"), (USER_LIMIT, "users"))
    },
}


class Verdict(enum.Enum):
    """The outcome of an order. SHORT: recalled from other processes. DRY: they have too little as
    well. AWAY: unknown, the store is unreachable."""

    DONE = enum.auto()
    SHORT = enum.auto()
    DRY = enum.auto()
    AWAY = enum.auto()


class Order(msgspec.Struct, frozen=True):
    """An order of the loop for a lease, in nanos: to borrow, or, if `give` is above 0, to return.

    `need` is the amount that waiting calls lack. `least` is the smallest amount with which one of
    them can go on; it is recalled from other processes if necessary, unless it is 0. `ahead` is for
    calls to come. `rest` are further payers, in order, which lend what `account` lacks. If these
    accounts have too little free for `least`, but other processes could return enough, none of them
    lends. Otherwise two waiting processes, each with a part of what both need, would pass it back
    and forth.
    """

    account: Account
    need: int = 0
    least: int = 0
    ahead: int = 0
    give: int = 0
    rest: tuple[Account, ...] = ()

    @property
    def accounts(self) -> tuple[Account, ...]:
        return (self.account, *self.rest)


class Answer(msgspec.Struct, frozen=True):
    """The answer to an order: the lease after it, the amount granted, and whether nothing more is
    free. `further` are the answers for the order's further accounts, empty if the verdict is
    AWAY."""

    verdict: Verdict
    lease: int = 0
    granted: int = 0
    empty: bool = False
    further: "tuple[Answer, ...]" = ()


class _Seen(msgspec.Struct, frozen=True):
    """An account under its lock: its balance, all leases on it, and this process's own."""

    account: Account
    balance: int
    lent: int
    own: int

    @property
    def free(self) -> int:
        return max(0, self.balance - self.lent)

    @property
    def within_reach(self) -> int:
        """Return the amount that would be free if the others returned everything."""
        return max(0, self.balance - self.own)


def carry_out(db: peewee.Database, journal_id: str, orders: Sequence[Order]) -> list[Answer]:
    """Carry out orders in the caller's transaction. Return an answer for each."""
    accounts = {account.id: account for order in orders for account in order.accounts}
    # Wallets are locked before quotas, each in order of id, as in books.
    locked = sorted(accounts.values(), key=lambda account: (account.kind != WALLET, account.id))
    balances = {account.id: _locked_balance(db, account) for account in locked}
    return [(_give if order.give else _take)(db, journal_id, balances, order) for order in orders]


def _take(
    db: peewee.Database, journal_id: str, balances: Mapping[str, int], order: Order
) -> Answer:
    seen = [_look(db, journal_id, balances, account) for account in order.accounts]
    verdict = Verdict.DONE
    if sum(lease.free for lease in seen) < order.least:
        if sum(lease.within_reach for lease in seen) >= order.least:
            for lease in seen:
                execute(db, _RECALL, (lease.account.id, journal_id))
            answers = [Answer(Verdict.SHORT, lease.own, empty=not lease.free) for lease in seen]
            return _joined(answers)
        # Lend anyway: an amount too small for these calls may do for a smaller one.
        verdict = Verdict.DRY
    left, answers = order.need, []
    for place, lease in enumerate(seen):
        granted = min(lease.free, left)
        if left or place == 0:
            granted += min((lease.free - granted) // AHEAD_SHARE, order.ahead)
        left = max(0, left - granted)
        if granted:
            values = (lease.account.id, journal_id, lease.own + granted, 0)
            execute(db, _SET[is_mysql(db)], values)
        answers.append(Answer(verdict, lease.own + granted, granted, empty=granted == lease.free))
    return _joined(answers)


def _joined(answers: Sequence[Answer]) -> Answer:
    return msgspec.structs.replace(answers[0], further=tuple(answers[1:]))


def _give(
    db: peewee.Database, journal_id: str, balances: Mapping[str, int], order: Order
) -> Answer:
    own = _look(db, journal_id, balances, order.account).own
    left = max(0, own - order.give)
    update = 'UPDATE "leases" SET "amount" = ?, "recall" = 0'
    if not left:
        update = 'DELETE FROM "leases"'
    where = ' WHERE "account" = ? AND "journal_id" = ?'
    execute(db, update + where, ((left,) if left else ()) + (order.account.id, journal_id))
    return Answer(Verdict.DONE, left)


def _look(
    db: peewee.Database, journal_id: str, balances: Mapping[str, int], account: Account
) -> _Seen:
    lent, own = map(int, execute(db, _LENT, (journal_id, account.id)).fetchone())
    return _Seen(account, balances[account.id], lent, own)


def _locked_balance(db: peewee.Database, account: Account) -> int:
    """Return the balance, leases included, under the row lock, or 0 for an unknown account."""
    if account.kind != WALLET:
        execute(db, _LOCK_QUOTA[is_mysql(db)], (account.id, 0, account.ends_ms))
    elif is_mysql(db):
        locked = execute(db, _LOCK_WALLET, (account.id,))
        # MySQL returns the number as unsigned.
        return (locked.lastrowid + 2**63) % 2**64 - 2**63 if locked.rowcount else 0
    return _balance(db, account)


def _balance(db: peewee.Database, account: Account) -> int:
    if account.kind == WALLET:
        return _number(db, _BALANCE, account.id)
    spent = _number(db, _SPENT, account.id)
    return _number(db, _CREDIT[account.kind], owner_id(account.id)) - spent


def _number(db: peewee.Database, query: str, row_id: str) -> int:
    row = execute(db, query, (row_id,)).fetchone()
    return 0 if row is None else int(row[0])


@in_snapshot
def balance(db: peewee.Database, account: Account) -> int:
    """Return the balance, leases included, without a lock: 0 for an unknown account, below 0 if
    more was spent. Raises StoreUnavailable."""
    return _balance(db, account)


def charge_quotas(db: peewee.Database, spent: Mapping[str, int]) -> None:
    """Add spending to quotas, by account id, in the caller's transaction."""
    rows = [(account_id, amount, None) for account_id, amount in sorted(spent.items())]
    if rows:
        executemany(db, _QUOTA[is_mysql(db)], rows)


def spend(db: peewee.Database, journal_id: str, charged: Mapping[str, int]) -> None:
    """Take charges, by account id, out of a journal's leases. The caller holds their locks."""
    rows = [(amount, amount, account_id, journal_id) for account_id, amount in charged.items()]
    if rows:
        executemany(db, _SPEND, rows)


@in_snapshot
def own_leases(db: peewee.Database, journal_id: str, account_ids: Sequence[str]) -> dict[str, int]:
    """Return the leases of a journal on these accounts; 0 where there is none."""
    balances = dict.fromkeys(account_ids, 0)
    for portion in portions(account_ids):
        places = ", ".join("?" * len(portion))
        query = (
            'SELECT "account", "amount" FROM "leases"'
            f' WHERE "journal_id" = ? AND "account" IN ({places})'
        )
        balances.update(execute(db, query, (journal_id, *portion)).fetchall())
    return balances


@in_snapshot
def recalled(db: peewee.Database, journal_id: str) -> list[str]:
    """Return the accounts of which others want back what this journal's process does not hold."""
    query = 'SELECT "account" FROM "leases" WHERE "journal_id" = ? AND "recall" = 1'
    return [row[0] for row in execute(db, query, (journal_id,)).fetchall()]


def write_held(db: peewee.Database, journal_id: str, held: Mapping[str, int]) -> None:
    """Store the holds of running calls, for display, in the caller's transaction."""
    update = 'UPDATE "leases" SET "held" = ? WHERE "account" = ? AND "journal_id" = ?'
    executemany(db, update, [(amount, account, journal_id) for account, amount in held.items()])


@in_transaction
def forget_ended(db: peewee.Database, at_ms: int) -> None:
    """Remove quotas whose windows ended more than QUOTA_KEPT_MS ago, so that no call can belong to
    them."""
    execute(db, 'DELETE FROM "quotas" WHERE "ends_ms" < ?', (at_ms - QUOTA_KEPT_MS,))


def give_all_back(db: peewee.Database, journal_id: str) -> None:
    """Release all leases of a journal whose charges are all booked, in the caller's transaction."""
    execute(db, 'DELETE FROM "leases" WHERE "journal_id" = ?', (journal_id,))


def lent(db: peewee.Database, account_id: str) -> tuple[int, int]:
    """Return (lent, held) of an account over all processes: the sum of its leases, and the part of
    it that running calls reserve. In the caller's transaction."""
    query = (
        'SELECT COALESCE(SUM("amount"), 0), COALESCE(SUM("held"), 0) FROM "leases"'
        ' WHERE "account" = ?'
    )
    amount, held = execute(db, query, (account_id,)).fetchone()
    return int(amount), int(held)


def recall(db: peewee.Database, account_id: str) -> None:
    """Ask all processes to return what they do not hold of an account, in the caller's
    transaction."""
    execute(db, _RECALL, (account_id, ""))
