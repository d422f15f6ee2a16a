"""The ledger: each movement of a wallet is a line, with the balance after it.

Commands add a line for each movement (wallet, codes). The writer adds the cost of calls to one line
for each user and UTC day. Every writer of a line holds the row lock of the wallet and changes its
balance in the same transaction.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

import peewee
from peewee import fn

from store.db import database
from store.db.database import execute, executemany, first_row, is_mysql, portions, select_rows
from store.db.tables.money import LedgerLine, Wallet
from store.values.errors import Refused
from store.values.ids import new_ulid
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

log = logging.getLogger(__name__)

CHARGES = "charges"
"""The kind of the line that sums up the charges of one user and UTC day."""

_CURSOR = re.compile(r"([0-9]{1,15})-([0-9]{1,8})-([0-9A-Z]{26})", re.ASCII)

COLUMNS = (
    *(LedgerLine.id, LedgerLine.user_id, LedgerLine.kind, LedgerLine.amount),
    *(LedgerLine.balance_after, LedgerLine.reference, LedgerLine.idempotency_id),
    *(LedgerLine.reason, LedgerLine.at_ms),
)

# Raw SQL, since the writer updates all users of a batch at once.
_LOCK = 'SELECT "user_id", "balance" FROM "wallets" WHERE "user_id" IN ({}) ORDER BY "user_id"'
_SET_BALANCE = database.upsert_texts(
    "wallets", ("user_id", "balance"), ("user_id",), {"balance": "{balance}"}
)
_CHARGE_COLUMNS = (
    *("id", "user_id", "kind", "amount", "balance_after", "idempotency_id", "reason", "at_ms"),
    "day",
)
_CHARGE = {"amount": '"amount" + {amount}', "balance_after": "{balance_after}", "at_ms": "{at_ms}"}
_ADD_CHARGES = database.upsert_texts("ledger", _CHARGE_COLUMNS, ("idempotency_id",), _CHARGE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a ledger. The amount is signed. `again` is true if the requested movement had
    already been booked, as this line, under the same id."""

    id: str
    user_id: str
    kind: str
    amount_nanos: int
    balance_after_nanos: int
    reference: str | None
    idempotency_id: str | None
    reason: str
    at_ms: int
    again: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Page:
    """Lines of a ledger, the newest first. `next` is the cursor of the next page, or None."""

    lines: Sequence[Line]
    next: str | None


def lines_of(db: peewee.Database, user_id: str) -> list[Line]:
    """Return all lines of a user in order of time, in the caller's transaction."""
    query = LedgerLine.select(*COLUMNS).where(LedgerLine.user_id == user_id)
    query = query.order_by(LedgerLine.at_ms, LedgerLine.day, LedgerLine.id)
    return [Line(*row) for row in select_rows(db, query)]


def page_of(db: peewee.Database, user_id: str, limit: int, after: str | None) -> Page:
    """Return lines of a user, the newest first, at most `limit`. `after`: the `next` of the page
    before. A day's charges are sorted by the time of the last booking. Raises Refused for an
    invalid cursor."""
    # Charges of several days may be booked at the same time. The later day then has the later
    # balance.
    place = (LedgerLine.at_ms, fn.COALESCE(LedgerLine.day, 0), LedgerLine.id)
    query = LedgerLine.select(*COLUMNS, place[1]).where(LedgerLine.user_id == user_id)
    if after is not None:
        at_ms, day, line_id = _place(after)
        same = place[0] == at_ms
        query = query.where(
            (place[0] < at_ms)
            | (same & (place[1] < day))
            | (same & (place[1] == day) & (place[2] < line_id))
        )
    query = query.order_by(*(column.desc() for column in place)).limit(limit + 1)
    rows = select_rows(db, query)
    more = len(rows) > limit
    rows = rows[:limit]
    lines = [Line(*row[:-1]) for row in rows]
    cursor = f"{lines[-1].at_ms}-{rows[-1][-1]}-{lines[-1].id}" if more else None
    return Page(lines, cursor)


def _place(cursor: str) -> tuple[int, int, str]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise Refused([f'"{cursor}" is not the end of a page of the ledger'])
    return int(match[1]), int(match[2]), match[3]


def charges_by_day(db: peewee.Database, user_id: str, since_day: int) -> dict[int, int]:
    """Return the charges to a wallet by UTC day (yyyymmdd), without days that have none."""
    line = LedgerLine
    query = line.select(line.day, line.amount).where(
        line.user_id == user_id, line.kind == CHARGES, line.day >= since_day
    )
    return {int(day): -int(amount) for day, amount in select_rows(db, query)}


def charged_day(line: Line) -> int | None:
    """Return the UTC day (yyyymmdd) whose charges a line sums up, or None for a line of another
    kind."""
    if line.kind != CHARGES or line.idempotency_id is None:
        return None
    return int(line.idempotency_id.rpartition(":")[2])


def to_public(line: Line) -> dict[str, Any]:
    """Return a line as people and scripts see it."""
    return {
        "at": rfc3339(line.at_ms),
        "kind": line.kind,
        "amount": format_money(line.amount_nanos),
        "balance_after": format_money(line.balance_after_nanos),
        # callers know a movement by their own id
        "reference": line.reference or line.idempotency_id,
        "reason": line.reason,
    }


def find_line(db: peewee.Database, line_id: str, own_id: str | None = None) -> Line | None:
    """Return the line with this id, else the one with this idempotency id, or None."""
    for column, value in ((LedgerLine.id, line_id), (LedgerLine.idempotency_id, own_id)):
        if value is not None:
            row = first_row(db, LedgerLine.select(*COLUMNS).where(column == value))
            if row is not None:
                return Line(*row)
    return None


def lines_with_id(db: peewee.Database, own_id: str) -> list[Line]:
    """Return the lines whose idempotency id is this one, or this one followed by a colon and more,
    the oldest first."""
    column, after = LedgerLine.idempotency_id, chr(ord(":") + 1)
    longer = (column > f"{own_id}:") & (column < f"{own_id}{after}")
    query = LedgerLine.select(*COLUMNS).where((column == own_id) | longer)
    return [Line(*row) for row in select_rows(db, query.order_by(LedgerLine.at_ms, LedgerLine.id))]


def add_line(db: peewee.Database, line: Line) -> None:
    """Write a line and the balance after it in the caller's transaction. The caller holds the row
    lock of the wallet and has computed `balance_after_nanos` under it."""
    wallet = Wallet.user_id == line.user_id
    Wallet.update(balance=line.balance_after_nanos).where(wallet).execute(db)
    row = dict(zip(COLUMNS, astuple(line), strict=False))  # `again` is not a column
    LedgerLine.insert(row).execute(db)


def charges_id(user_id: str, day: int) -> str:
    """Return the idempotency id of the charges line of a user and day."""
    return f"{CHARGES}:{user_id}:{day}"


def charge_wallets(db: peewee.Database, charges: Mapping[tuple[str, int], int], at_ms: int) -> None:
    """Deduct charges, by user id and day, from wallets and add them to the charges lines, in the
    caller's transaction. A user without a wallet (because removed) is not charged."""
    if not charges:
        return
    mysql = is_mysql(db)
    # The row locks of the wallets, taken in order of id, also protect their charges lines.
    balances = _locked_balances(db, sorted({user_id for user_id, _ in charges}))
    lines = []
    # Days in order, so that the later day's line shows the later balance.
    for (user_id, day), amount in sorted(charges.items()):
        if user_id not in balances:
            log.warning("user %s has no wallet: %s not charged", user_id, format_money(amount))
            continue
        balances[user_id] -= amount
        key = charges_id(user_id, day)
        reason = f"usage of {day // 10_000}-{day // 100 % 100:02d}-{day % 100:02d}"
        after = balances[user_id]
        lines.append((new_ulid(), user_id, CHARGES, -amount, after, key, reason, at_ms, day))
    if lines:
        executemany(db, _SET_BALANCE[mysql], list(balances.items()))
        executemany(db, _ADD_CHARGES[mysql], lines)


def _locked_balances(db: peewee.Database, user_ids: Sequence[str]) -> dict[str, int]:
    lock = " FOR UPDATE" if is_mysql(db) else ""
    balances: dict[str, int] = {}
    for portion in portions(user_ids):
        query = _LOCK.format(", ".join("?" * len(portion))) + lock
        balances.update(execute(db, query, portion).fetchall())
    return balances
