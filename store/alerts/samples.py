"""Samples of the attempts of channels, one a minute. The difference of two samples gives the share
that failed in between, which the sums behind the status have for only five minutes.

A sample has the attempts of each of the last hours. status_sums moves rows from minutes to hours,
which does not change the sum of an hour.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import peewee
from peewee import fn

from store.channels.status_sums import CHANNEL, HOUR, HOUR_S, MINUTE
from store.db.database import insert_rows, raw_rows, select_rows, transaction
from store.db.tables.alerts import AlertSample
from store.db.tables.channels import ChannelSums as Sums

EVERY_MS = 60_000
KEEP_MS = 2 * 3_600_000
_HOURS = 2  # besides the current one

Counted = Mapping[str, tuple[int, int]]
"""By "hour channel": attempts that counted, and those of them that failed."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """Attempts of a channel in a span."""

    calls: int
    failed: int


def take(
    db: peewee.Database, at_ms: int, spans_minutes: Collection[int]
) -> dict[int, dict[str, Attempts]]:
    """Return the attempts by channel for each of these spans, in minutes up to now, and store a
    sample of this minute. Spans without a sample of their start are missing."""
    now = _count(db, at_ms)
    newest = select_rows(db, AlertSample.select(fn.MAX(AlertSample.at_ms)))[0][0]
    if newest is None or at_ms - newest >= EVERY_MS or newest > at_ms:
        transaction(db, lambda: _keep(db, at_ms, now))
    spans: dict[int, dict[str, Attempts]] = {}
    for minutes in spans_minutes:
        begun = AlertSample.at_ms <= at_ms - minutes * EVERY_MS
        query = AlertSample.select(AlertSample.sums).where(begun)
        rows = select_rows(db, query.order_by(AlertSample.at_ms.desc()).limit(1))
        if rows:
            spans[minutes] = _difference(now, rows[0][0])
    return spans


def _count(db: peewee.Database, at_ms: int) -> dict[str, tuple[int, int]]:
    since_s = (at_ms // 1000 // HOUR_S - _HOURS) * HOUR_S
    recent = (Sums.scope == CHANNEL) & (Sums.span << (MINUTE, HOUR)) & (Sums.at_s >= since_s)
    columns = (Sums.at_s, Sums.name, fn.SUM(Sums.ok), fn.SUM(Sums.failed))
    counted: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    query = Sums.select(*columns).where(recent).group_by(Sums.at_s, Sums.name)
    for at_s, name, ok, failed in raw_rows(db, query):
        key = f"{at_s // HOUR_S} {name}"
        calls, bad = counted[key]
        counted[key] = (calls + int(ok) + int(failed), bad + int(failed))
    return dict(counted)


def _keep(db: peewee.Database, at_ms: int, now: Counted) -> None:
    outside = (AlertSample.at_ms < at_ms - KEEP_MS) | (AlertSample.at_ms > at_ms)
    AlertSample.delete().where(outside).execute(db)
    insert_rows(db, AlertSample, [{"at_ms": at_ms, "sums": now}], replace=("sums",))


def _difference(now: Counted, before: Counted) -> dict[str, Attempts]:
    totals: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for key, (calls, failed) in now.items():
        old_calls, old_failed = before.get(key, (0, 0))
        name = key.partition(" ")[2]
        total = totals[name]
        totals[name] = (total[0] + calls - old_calls, total[1] + failed - old_failed)
    return {name: Attempts(max(0, calls), max(0, bad)) for name, (calls, bad) in totals.items()}
