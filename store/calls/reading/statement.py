"""The statement of a wallet for a UTC calendar month: opening balance, each movement, charges by
model, closing balance.

The ledger is its source. The charges of a day belong to the month of that day, any other line to
the month in which it was booked. So a month's closing balance is the next one's opening balance,
and the last one is the current balance. The costs of models are from the roll-ups, regardless of
who paid; the ledger has the wallet's part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import peewee
from peewee import fn

from store.calls.usage_queries import Filters
from store.calls.usage_stats import stats
from store.db.database import first_row, in_snapshot, select_rows
from store.db.tables.money import LedgerLine
from store.money import ledger
from store.money.ledger import CHARGES, Line
from store.values.errors import Refused
from store.values.ids import day_at, day_begin_ms
from store.values.pricing import format_money, parse_money
from store.values.usage_record import rfc3339

FIRST_MONTH, LAST_MONTH = 2000_01, 9998_12
MAX_LINES = 10_000  # besides those of charges
REFUND = "refund"


@dataclass(frozen=True, slots=True)
class ModelCharge:
    """The calls of a model and their cost. `model` is empty for calls that named none."""

    model: str
    calls: int
    cost_nanos: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A month (yyyymm) of a wallet. `lines` are all movements except charges and refunds, in order.
    `charged_nanos` was taken from the wallet for calls. `models` are the costs of calls, regardless
    of who paid, the greatest first."""

    user: str
    month: int
    opening_nanos: int
    lines: Sequence[Line]
    refunds: Sequence[Line]
    charged_nanos: int
    models: Sequence[ModelCharge]

    @property
    def moved_nanos(self) -> int:
        """Return the sum of `lines`."""
        return sum(line.amount_nanos for line in self.lines)

    @property
    def refunded_nanos(self) -> int:
        """Return the sum of the refunds."""
        return sum(line.amount_nanos for line in self.refunds)

    @property
    def closing_nanos(self) -> int:
        """Return the balance at the end of the month. For the current month it is the balance
        now."""
        paid_in = self.moved_nanos + self.refunded_nanos
        return self.opening_nanos + paid_in - self.charged_nanos

    @property
    def cost_nanos(self) -> int:
        """Return the cost of all calls."""
        return sum(model.cost_nanos for model in self.models)

    @property
    def plans_nanos(self) -> int:
        """Return the part of the cost that the wallet did not pay. It is negative if calls that
        were charged are missing from the roll-ups."""
        return self.cost_nanos - self.charged_nanos


def month_at(at_ms: int) -> int:
    """Return the month (yyyymm) of a time."""
    return day_at(at_ms) // 100


def month_after(month: int, by: int = 1) -> int:
    """Return the month that is `by` months later."""
    months = month // 100 * 12 + month % 100 - 1 + by
    return months // 12 * 100 + months % 12 + 1


def parse_month(text: str) -> int:
    """Parse a month like 2026-11. Raises ValueError."""
    year, dash, number = text.partition("-")
    digits = text.isascii() and year.isdigit() and number.isdigit()
    if not (digits and dash and (len(year), len(number)) == (4, 2) and 1 <= int(number) <= 12):
        raise ValueError("must be a month like 2026-11")
    month = int(year) * 100 + int(number)
    if not FIRST_MONTH <= month <= LAST_MONTH:
        raise ValueError("must be a month from 2000-01 to 9998-12")
    return month


def format_month(month: int) -> str:
    """Format a month as 2026-11."""
    return f"{month // 100}-{month % 100:02d}"


@in_snapshot
def statement_of(db: peewee.Database, user_id: str, user: str, month: int) -> Statement:
    """Return the statement of a user. Raises Refused if there are more than MAX_LINES movements."""
    begin_ms = day_begin_ms(month * 100 + 1)
    end_ms = day_begin_ms(month_after(month) * 100 + 1)
    first_day, end_day = month * 100 + 1, month_after(month) * 100 + 1
    row, charges = LedgerLine, LedgerLine.kind == CHARGES
    own = row.user_id == user_id
    before = (charges & (row.day < first_day)) | (~charges & (row.at_ms < begin_ms))
    opening = first_row(db, row.select(fn.SUM(row.amount)).where(own, before))
    within = charges & (row.day >= first_day) & (row.day < end_day)
    charged = first_row(db, row.select(fn.SUM(row.amount)).where(own, within))
    moved = ~charges & (row.at_ms >= begin_ms) & (row.at_ms < end_ms)
    query = row.select(*ledger.COLUMNS).where(own, moved).order_by(row.at_ms, row.id)
    lines = [Line(*columns) for columns in select_rows(db, query.limit(MAX_LINES + 1))]
    if len(lines) > MAX_LINES:
        raise Refused([f"more than {MAX_LINES} movements in a month; export the ledger"])
    return Statement(
        user=user,
        month=month,
        opening_nanos=_sum(opening),
        lines=[line for line in lines if line.kind != REFUND],
        refunds=[line for line in lines if line.kind == REFUND],
        charged_nanos=-_sum(charged),
        models=_models(db, Filters(user=user, since_ms=begin_ms, until_ms=end_ms)),
    )


def _sum(row: tuple[Any, ...] | None) -> int:
    return int(row[0] or 0) if row else 0


def _models(db: peewee.Database, filters: Filters) -> list[ModelCharge]:
    models = [
        ModelCharge(row["model"] or "", row["calls"], parse_money(row["cost"]))
        for row in stats(db, ("model",), filters)
    ]
    models = [model for model in models if model.cost_nanos]
    return sorted(models, key=lambda model: (-model.cost_nanos, model.model))


def public(statement: Statement, currency: str) -> dict[str, Any]:
    """Return a statement as JSON. Amounts that leave the wallet are negative."""
    return {
        "user": statement.user,
        "month": format_month(statement.month),
        "currency": currency,
        "opening_balance": format_money(statement.opening_nanos),
        "movements": [ledger.to_public(line) for line in statement.lines],
        "refunds": [ledger.to_public(line) for line in statement.refunds],
        "models": [
            {
                "model": model.model or None,
                "calls": model.calls,
                "cost": format_money(model.cost_nanos),
            }
            for model in statement.models
        ],
        "cost": format_money(statement.cost_nanos),
        "paid_by_plans": format_money(max(0, statement.plans_nanos)),
        "charges": format_money(-statement.charged_nanos),
        "closing_balance": format_money(statement.closing_nanos),
    }


CSV_COLUMNS = ("entry", "at", "model", "calls", "amount", "reference", "reason")


def csv_rows(statement: Statement) -> list[dict[str, str]]:
    """Return the rows of a statement for CSV. The amounts of opening_balance, movements, refunds
    and charges add up to closing_balance. Those of `cost` are regardless of who paid."""

    def row(entry: str, nanos: int, **more: str) -> dict[str, str]:
        empty = dict.fromkeys(CSV_COLUMNS, "")
        return {**empty, "entry": entry, "amount": format_money(nanos), **more}

    def moved(line: Line) -> dict[str, str]:
        plain = ledger.to_public(line)
        reference = str(plain["reference"] or "")
        at = rfc3339(line.at_ms)
        return row(line.kind, line.amount_nanos, at=at, reference=reference, reason=line.reason)

    return [
        row("opening_balance", statement.opening_nanos),
        *map(moved, statement.lines),
        *map(moved, statement.refunds),
        *(
            row("cost", model.cost_nanos, model=model.model, calls=str(model.calls))
            for model in statement.models
        ),
        row("charges", -statement.charged_nanos),
        row("closing_balance", statement.closing_nanos),
    ]
