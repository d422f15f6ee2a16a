"""Search for one text among calls: an id of a call, a key, a model, or a part of an error message.

Ids are found by their indexes. Traces and texts have no index, so the newest calls are read for
them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import peewee
from peewee import fn

from store.calls.usage_queries import Filters, find
from store.calls.usage_stats import series
from store.db.database import has_words, select_rows
from store.db.partitions import pruned_before
from store.db.tables.catalog import Model
from store.db.tables.usage import UsageByDay
from store.db.tables.users import ApiKey
from store.values.ids import HOUR_MS, day_at, day_begin_ms, ulid_ms

READ_AT_MOST = 100_000
"""The most calls that a search without an index reads: the newest of its span."""

NAMES_MAX = 5
RUNNING_MS = HOUR_MS  # a call younger than this may still be running, or waiting to be stored
_TRACE = re.compile(r"[0-9a-fA-F]{32}", re.ASCII)
_ID = re.compile(r"(?=\S*\d)[A-Za-z0-9_.:-]{20,}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person who searches. If `user_id` and `user` are None, all users' calls are searched."""

    user_id: str | None
    user: str | None
    admin: bool


@dataclass(frozen=True, slots=True)
class Match:
    """The meaning of a text: a call (`kind` call, `value` its id), a filter of calls and its value,
    or `missing` for an id without a record, with the `reason` pruned, recent, or unknown."""

    kind: str
    value: str
    reason: str = ""


def match_of(db: peewee.Database, text: str, viewer: Viewer, at_ms: int) -> Match:
    """Return the meaning of a search text."""
    if match := _call(db, text, viewer):
        return match
    if _TRACE.fullmatch(text):
        return Match("trace_id", text.lower())
    if match := _name(db, text, viewer):
        return match
    if _ID.fullmatch(text):
        return Match("missing", text, reason_of(db, text, at_ms))
    return Match("text", text)


def _call(db: peewee.Database, text: str, viewer: Viewer) -> Match | None:
    rows = find(db, text)
    if viewer.user_id is not None:
        rows = [row for row in rows if row["user_id"] == viewer.user_id]
    if not viewer.admin:
        rows = [row for row in rows if text in (row["id"], row["client_request_id"])]
    if len(rows) == 1:
        return Match("call", rows[0]["id"])
    if not rows:
        return None
    by_client = rows[0]["client_request_id"] == text
    return Match("client_request_id" if by_client else "upstream_request_id", text)


def _name(db: peewee.Database, text: str, viewer: Viewer) -> Match | None:
    """Return the key or the model of this name, ignoring case."""
    key = (ApiKey.id == text) | (fn.LOWER(ApiKey.name) == text.lower())
    owner = () if viewer.user_id is None else (ApiKey.user_id == viewer.user_id,)
    query = ApiKey.select(ApiKey.id).where(key, *owner).limit(2)
    ids = [key_id for (key_id,) in select_rows(db, query)]
    if len(ids) == 1:
        return Match("key_id", ids[0])
    for column in (Model.name, UsageByDay.model):
        query = column.model.select(column).where(fn.LOWER(column) == text.lower()).limit(1)
        for (name,) in select_rows(db, query):
            return Match("model", name)
    return None


def reason_of(db: peewee.Database, text: str, at_ms: int) -> str:
    """Return why an id has no record, as far as the time in one of our own ids shows."""
    try:
        begun_ms = ulid_ms(text)
    except ValueError:
        return "unknown"
    if day_at(begun_ms) < pruned_before(db):
        return "pruned"
    return "recent" if 0 <= at_ms - begun_ms < RUNNING_MS else "unknown"


def models_like(db: peewee.Database, text: str) -> list[str]:
    """Return the names of a few offered models that contain this text."""
    query = Model.select(Model.name).where(has_words(Model.name, text)).order_by(Model.name)
    return [name for (name,) in select_rows(db, query.limit(NAMES_MAX))]


def newest_since(db: peewee.Database, filters: Filters, most: int = READ_AT_MOST) -> int | None:
    """Return the time (ms, on the hour) since which the span and user of these filters have at most
    `most` calls. The newest hour is included even if it has more. None if the whole span has no
    more than `most`."""
    span = Filters(user=filters.user, since_ms=filters.since_ms, until_ms=filters.until_ms)
    left = most
    for day, calls in sorted(series(db, ("day",), span, ("calls",)), reverse=True):
        if calls > left:
            return _hour_in(db, span, day, left, first=left == most)
        left -= calls
    return None


def _hour_in(db: peewee.Database, span: Filters, day: int, left: int, *, first: bool) -> int:
    begin_ms = day_begin_ms(day)
    end_ms = begin_ms + 24 * HOUR_MS
    since_ms = max(begin_ms, (span.since_ms or 0) // HOUR_MS * HOUR_MS)
    until_ms = min(end_ms, span.until_ms or end_ms)
    until_ms += -until_ms % HOUR_MS
    of_day = replace(span, since_ms=since_ms, until_ms=until_ms)
    rows: Sequence[tuple[int, ...]] = series(db, ("hour",), of_day, ("calls",))
    bound_ms = end_ms
    for _, hour, calls in sorted(rows, reverse=True):
        if calls > left and not first:
            break
        bound_ms, left, first = begin_ms + int(hour) * HOUR_MS, left - calls, False
    return bound_ms
