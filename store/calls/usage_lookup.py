"""One call looked up by an id that somebody has of it, and its cost line by line.

A record's own id, which is its request id, is its key; the client's id and the vendor's have an
index each. For commands and the Hub.
"""

from typing import Any

import peewee

from store.calls.usage_queries import Row, rows_where
from store.db.tables.usage import UsageRow
from store.values.ids import HOUR_MS, day_at, day_of, first_ulid
from store.values.pricing import PRICE_NAMES, TOKENS_PER_PRICE, format_money, prices_from_json

LOOK_BACK_MS = 7 * 24 * HOUR_MS
"""How far back is looked in the records themselves, unless a time is given."""

MATCHES_MAX = 20
_DECIMALS = 15  # a price has 9, and is for 10^6 tokens


def find(db: peewee.Database, wanted: str, since_ms: int = 0) -> list[Row]:
    """The calls with this id, newest first, at most MATCHES_MAX: by the record's, else by the
    client's or the vendor's among the calls begun since `since_ms`."""
    if rows := _of_record(db, wanted):
        return rows
    matches: dict[str, Row] = {}
    for column in (UsageRow.client_request_id, UsageRow.upstream_request_id):
        terms = [column == wanted, UsageRow.day >= day_at(since_ms)]
        terms.append(UsageRow.id >= first_ulid(since_ms))
        newest = (UsageRow.day.desc(), UsageRow.id.desc())
        matches |= {row["id"]: row for row in rows_where(db, terms, newest, MATCHES_MAX)}
    return [matches[call_id] for call_id in sorted(matches, reverse=True)][:MATCHES_MAX]


def _of_record(db: peewee.Database, wanted: str) -> list[Row]:
    try:
        day = day_of(wanted)
    except ValueError:
        return []
    return rows_where(db, [UsageRow.day == day, UsageRow.id == wanted])


def cost_lines(row: Row) -> list[dict[str, Any]]:
    """Return the parts of the cost of a record, before its multiplier: class, tokens (None for
    `call`), price and amount (exact decimal strings). Empty for a record that was not charged."""
    if row["usage_source"] == "none" or row["prices"] is None:
        return []
    prices = prices_from_json(row["prices"])
    lines = []
    for name in PRICE_NAMES:
        price = getattr(prices, name)
        tokens = None if name == "call" else row[f"{name}_tokens"]
        units = price * (TOKENS_PER_PRICE if tokens is None else tokens)
        if units or tokens:
            amount = _exact(units)
            lines.append(
                {"class": name, "tokens": tokens, "price": format_money(price), "amount": amount}
            )
    return lines


def _exact(units: int) -> str:
    """Units of 10^-15 as a decimal string."""
    whole, fraction = divmod(units, 10**_DECIMALS)
    return f"{whole}.{fraction:0{_DECIMALS}d}".rstrip("0").rstrip(".")
