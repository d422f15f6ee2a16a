"""Wallets as commands see them: show, credit, debit, ledger; explicit transactions on the store.

What running calls reserve is in funds, what they cost comes in through books. Every movement is a
ledger line with the balance after it, under the row lock of the wallet.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import peewee

from store import audit
from store.books import CHARGES
from store.database import execute, is_mysql, snapshot_read, transaction
from store.errors import Conflict, NotFound, OutcomeUnknown, Refused, StoreUnavailable
from store.ids import new_ulid, now_ms
from store.pricing import MAX_BIGINT, format_money

CREDIT = "credit"
DEBIT = "debit"

ID_LIMIT_CHARS = 128
REASON_LIMIT_CHARS = 1000
COMMIT_ATTEMPTS = 3
COMMIT_PAUSE_S = 0.3

_LINE_COLUMNS = (
    '"id", "user_id", "kind", "amount", "balance_after", "reference", "idempotency_id",'
    ' "reason", "at_ms"'
)


@dataclass(frozen=True, slots=True)
class View:
    """A wallet: its balance, the part that running calls hold, the part lent to processes."""

    user: str
    balance_nanos: int
    held_nanos: int
    leased_nanos: int


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a ledger; the amount is signed."""

    id: str
    user_id: str
    kind: str
    amount_nanos: int
    balance_after_nanos: int
    reference: str | None
    idempotency_id: str | None
    reason: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Movement:
    """Money an operator moves: amount above 0; with an idempotency id it counts once."""

    amount_nanos: int
    reason: str
    idempotency_id: str | None = None
    actor: str = "cli"
    reference: str | None = None


def show(db: peewee.Database, user: str) -> View:
    """The wallet of a user by name; NotFound."""
    query = (
        'SELECT w."balance" FROM "users" u JOIN "wallets" w ON w."user_id" = u."id"'
        ' WHERE u."name" = ?'
    )
    row = snapshot_read(db, lambda: execute(db, query, (user,)).fetchone())
    if row is None:
        raise _no_wallet(user)
    return View(user, row[0], 0, 0)


def balance_of(db: peewee.Database, user_id: str) -> int:
    """The balance of a user by id, 0 without a wallet; what Funds loads."""
    query = 'SELECT "balance" FROM "wallets" WHERE "user_id" = ?'
    row = snapshot_read(db, lambda: execute(db, query, (user_id,)).fetchone())
    return 0 if row is None else int(row[0])


def ledger(db: peewee.Database, user: str) -> list[Line]:
    """All lines of a user's ledger in order of time; NotFound. A day's charges are one line."""
    query = (
        f'SELECT {_LINE_COLUMNS} FROM "ledger" WHERE "user_id" = ? ORDER BY "at_ms", "day", "id"'
    )

    def read() -> list[Line]:
        user_id = _user_id(db, user)
        return [Line(*row) for row in execute(db, query, (user_id,)).fetchall()]

    return snapshot_read(db, read)


def credit(db: peewee.Database, user: str, movement: Movement) -> Line:
    """Add money to a wallet; the ledger line, the first one when the id has been used for the same.

    Raises NotFound, and Refused for an amount, reason or id that cannot be taken. Idempotent with
    an id; without one it counts once for each call, also when the connection is lost meanwhile.
    """
    return _move(db, user, CREDIT, movement)


def debit(db: peewee.Database, user: str, movement: Movement) -> Line:
    """Take money from a wallet, as `credit`; Refused when the balance is lower than the amount."""
    return _move(db, user, DEBIT, movement)


def _move(db: peewee.Database, user: str, kind: str, movement: Movement) -> Line:
    _check(movement)
    # Made here, so that after a lost connection it can be looked up whether it was booked.
    line_id = new_ulid()

    def work() -> Line:
        user_id = _user_id(db, user)
        balance = _lock_balance(db, user_id)
        booked = _find(db, "id", line_id)
        if booked is None and movement.idempotency_id is not None:
            booked = _find(db, "idempotency_id", movement.idempotency_id)
        if booked is not None:
            return _same(booked, user_id, kind, movement)
        if balance is None:
            raise _no_wallet(user)
        line = _new_line(line_id, user_id, kind, movement, balance)
        post_line(db, line)
        act = audit.Act(
            movement.actor,
            kind,
            "wallet",
            user,
            {"balance": format_money(balance)},
            {"balance": format_money(line.balance_after_nanos), "reason": movement.reason},
        )
        audit.write(db, act)
        return line

    return _until_known(lambda: transaction(db, work))


def _until_known(attempt: Callable[[], Line]) -> Line:
    unknown: OutcomeUnknown | None = None
    for _ in range(COMMIT_ATTEMPTS):
        try:
            return attempt()
        except OutcomeUnknown as error:
            # The line's own id tells at the next attempt.
            unknown = error
        except Conflict:
            # Another command has just used the same idempotency id: it is found now.
            pass
        except StoreUnavailable as error:
            if unknown is None:
                raise
            unknown = OutcomeUnknown(f"{error}; look into the ledger whether it was booked")
        time.sleep(COMMIT_PAUSE_S)
    raise unknown or Refused(["the id is being used by other commands again and again"])


def post_line(db: peewee.Database, line: Line) -> None:
    """Write a ledger line and the balance after it, in the caller's transaction, which holds the
    row lock of the wallet and has computed `balance_after_nanos` under it.
    """
    update = 'UPDATE "wallets" SET "balance" = ? WHERE "user_id" = ?'
    execute(db, update, (line.balance_after_nanos, line.user_id))
    insert = f'INSERT INTO "ledger" ({_LINE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)'
    values = (
        *(line.id, line.user_id, line.kind, line.amount_nanos, line.balance_after_nanos),
        *(line.reference, line.idempotency_id, line.reason, line.at_ms),
    )
    execute(db, insert, values)


def _check(movement: Movement) -> None:
    faults = []
    if not 0 < movement.amount_nanos <= MAX_BIGINT:
        faults.append("the amount must be greater than 0")
    if not movement.reason or len(movement.reason) > REASON_LIMIT_CHARS:
        faults.append(f"the reason must have 1 to {REASON_LIMIT_CHARS} characters")
    own_id = movement.idempotency_id
    if own_id is not None:
        if not 0 < len(own_id) <= ID_LIMIT_CHARS or not own_id.isprintable():
            faults.append(f"the id must have 1 to {ID_LIMIT_CHARS} printable characters")
        if own_id.startswith(f"{CHARGES}:"):
            faults.append(f"ids that begin with {CHARGES}: are the gateway's own")
    if faults:
        raise Refused(faults)


def _new_line(line_id: str, user_id: str, kind: str, movement: Movement, balance: int) -> Line:
    signed = movement.amount_nanos if kind == CREDIT else -movement.amount_nanos
    after = balance + signed
    if kind == DEBIT and after < 0:
        raise Refused([f"the balance is {format_money(balance)}, less than the amount"])
    if after > MAX_BIGINT:
        raise Refused(["the balance would be too large"])
    return Line(
        *(line_id, user_id, kind, signed, after),
        *(movement.reference, movement.idempotency_id, movement.reason, now_ms()),
    )


def _same(booked: Line, user_id: str, kind: str, movement: Movement) -> Line:
    wanted = (user_id, kind, movement.amount_nanos, movement.reason)
    if (booked.user_id, booked.kind, abs(booked.amount_nanos), booked.reason) != wanted:
        raise Refused([f"the id {movement.idempotency_id} is used by another movement"])
    return booked


def _find(db: peewee.Database, column: str, value: str) -> Line | None:
    query = f'SELECT {_LINE_COLUMNS} FROM "ledger" WHERE "{column}" = ?'
    row = execute(db, query, (value,)).fetchone()
    return None if row is None else Line(*row)


def _user_id(db: peewee.Database, user: str) -> str:
    row = execute(db, 'SELECT "id" FROM "users" WHERE "name" = ?', (user,)).fetchone()
    if row is None:
        raise NotFound(f"there is no user {user}")
    return str(row[0])


def _lock_balance(db: peewee.Database, user_id: str) -> int | None:
    lock = " FOR UPDATE" if is_mysql(db) else ""
    query = f'SELECT "balance" FROM "wallets" WHERE "user_id" = ?{lock}'
    row = execute(db, query, (user_id,)).fetchone()
    return None if row is None else int(row[0])


def _no_wallet(user: str) -> NotFound:
    return NotFound(f"there is no user {user} with a wallet")
