"""The roll-up usage_by_rate: calls of a UTC day by model and rate, and their unpriced uses.

A charged call is counted in the row of its rate with an empty `meter`. Each meter or feature of it
that had no price is counted in a row of its own, with the calls, the uses and no cost. The rate is
the text of its conditions (`tier=flex,input_over=272000`), empty for the plain rate. Written,
rebuilt and verified with the other roll-ups, by rollups.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import peewee
from peewee import SQL, fn

from store.db.database import (
    executemany,
    first_row,
    is_mysql,
    raw_rows,
    select_rows,
    upsert_texts,
)
from store.db.migrations import RATES_SINCE
from store.db.tables.fields import MODEL
from store.db.tables.system import Version
from store.db.tables.usage import UsageByRate, UsageRow
from store.values.pricing import rate_of_text
from store.values.usage_record import UsageRecord, record_day

KEY = ("model", "rate", "meter")
SUMS = ("calls", "uses", "cost_nanos")
PAGE_ROWS = 1000

RateKey = tuple[int, str, str, str]
"""The day, then the columns of KEY."""
Sums = dict[RateKey, list[int]]
_NOTHING = (0, 0, 0)
_TABLE = "usage_by_rate"
_DAY_KEY = ("day", *KEY)

_UPSERT = upsert_texts(
    _TABLE, (*_DAY_KEY, *SUMS), _DAY_KEY, {name: f'"{name}" + {{{name}}}' for name in SUMS}
)
_CHARGED = UsageRow.usage_source != "none"
# Most receipts have neither, and the database sums those calls up.
_SPECIAL = UsageRow.receipt.contains('"rate":') | UsageRow.receipt.contains('"unpriced":')
_MODEL = fn.SUBSTR(fn.COALESCE(UsageRow.model, ""), 1, MODEL)


def add_records(db: peewee.Database, records: Iterable[UsageRecord]) -> None:
    """Add records inside the caller's transaction. Driver errors propagate."""
    sums: Sums = {}
    for record in records:  # runs for each call: keep it fast
        if record.usage_source == "none":
            continue
        receipt, model = record.receipt, record.call.model or ""
        rate = _name_of_text(receipt.rate) if receipt.rate else ""
        names = (record_day(record.id), model[:MODEL], rate)
        _add(sums, names, record.cost_nanos, receipt.unpriced)
    _write(db, sums)


@functools.lru_cache(maxsize=1024)
def _name_of_text(text: str) -> str:
    return rate_name(dict(rate_of_text(text).when))


def rate_name(conditions: Mapping[str, Any]) -> str:
    """Return the text of a rate in this table. `conditions` are in the order of CONDITIONS."""
    return ",".join(f"{name}={value}" for name, value in conditions.items())


def _add(
    sums: Sums,
    names: tuple[int, str, str],
    cost_nanos: int,
    unpriced: Iterable[tuple[str, int]],
) -> None:
    key = (*names, "")
    row = sums.get(key)
    if row is None:
        row = sums[key] = [0, 0, 0]
    row[0] += 1
    row[2] += cost_nanos
    for meter, count in unpriced:
        row = sums.setdefault((*names, meter), [0, 0, 0])
        row[0] += 1
        row[1] += count


def _write(db: peewee.Database, sums: Sums) -> None:
    if sums:
        # In order of their key, so that concurrent writers wait for each other instead of
        # deadlocking.
        executemany(db, _UPSERT[is_mysql(db)], [(*key, *sums[key]) for key in sorted(sums)])


@dataclass(frozen=True, slots=True)
class RateUse:
    """The charged calls of a model by rate, and its uses without a price by meter."""

    calls: dict[str, int] = field(default_factory=dict)
    unpriced: dict[str, int] = field(default_factory=dict)


def use_of_model(db: peewee.Database, model: str, days: Sequence[int]) -> RateUse:
    """Return the use of a model in these UTC days (yyyymmdd). The query names each day, because the
    key starts with the day and a range would read the rows of all models."""
    table = UsageByRate
    query = table.select(table.rate, table.meter, fn.SUM(table.calls), fn.SUM(table.uses)).where(
        (table.day << list(days)) & (table.model == model[:MODEL])
    )
    use = RateUse()
    for rate, meter, calls, uses in select_rows(db, query.group_by(table.rate, table.meter)):
        if meter:
            use.unpriced[meter] = use.unpriced.get(meter, 0) + int(uses)
        else:
            use.calls[rate] = int(calls)
    return use


def rebuild_day(db: peewee.Database, day: int) -> None:
    """Rebuild the rows of a day from its records, in the caller's transaction."""
    UsageByRate.delete().where(UsageByRate.day == day).execute(db)
    _write(db, _of_records(db, day))


def note_rebuilt(db: peewee.Database) -> None:
    """Note that all days with records have been rebuilt."""
    Version.delete().where(Version.name == RATES_SINCE).execute(db)


def exact_since(db: peewee.Database) -> int:
    """Return the UTC day (yyyymmdd) since which the rows are complete. Calls recorded by older
    versions are missing until a rebuild. 0 if all are complete."""
    row = first_row(db, Version.select(Version.version).where(Version.name == RATES_SINCE))
    return int(row[0]) if row else 0


def day_faults(db: peewee.Database, day: int, limit: int) -> Iterator[str]:
    """Yield the differences between the rows of a day and its records, in the caller's snapshot."""
    right, table = _of_records(db, day), UsageByRate
    query = table.select(*(getattr(table, name) for name in (*KEY, *SUMS))).where(table.day == day)
    stored: Sums = {
        (day, model, rate, meter): list(map(int, sums))
        for model, rate, meter, *sums in raw_rows(db, query)
    }
    wrong = sorted(key for key in right.keys() | stored.keys() if right.get(key) != stored.get(key))
    for key in wrong[:limit]:
        pairs = zip(SUMS, stored.get(key, _NOTHING), right.get(key, _NOTHING), strict=True)
        texts = (f"{name} {a}, by the records {b}" for name, a, b in pairs if a != b)
        yield f"{_TABLE} of {day}, {' '.join(filter(None, key[1:]))}: {', '.join(texts)}"


def _of_records(db: peewee.Database, day: int) -> Sums:
    """Sum up a day's records. Memory: the sums, and a page of records."""
    charged = (UsageRow.day == day) & _CHARGED
    plain = charged & (UsageRow.receipt.is_null() | ~_SPECIAL)
    query = UsageRow.select(
        _MODEL.alias("by_model"), fn.COUNT(SQL("*")), fn.SUM(UsageRow.cost_nanos)
    )
    rows = raw_rows(db, query.where(plain).group_by(SQL("by_model")))
    sums: Sums = {(day, model, "", ""): [calls, 0, int(cost)] for model, calls, cost in rows}
    after = ""
    query = UsageRow.select(UsageRow.id, _MODEL, UsageRow.receipt, UsageRow.cost_nanos)
    query = query.order_by(UsageRow.id).limit(PAGE_ROWS)
    while page := raw_rows(db, query.where(charged & _SPECIAL & (UsageRow.id > after))):
        after = page[-1][0]
        for _, model, text, cost_nanos in page:
            rate, unpriced = _of_receipt(text)
            _add(sums, (day, model, rate), cost_nanos, unpriced)
    return sums


@functools.lru_cache(maxsize=256)
def _of_receipt(text: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    receipt = msgspec.json.decode(text)
    unpriced = ((part["meter"], part["count"]) for part in receipt.get("unpriced", ()))
    return rate_name(receipt.get("rate", {})), tuple(unpriced)
