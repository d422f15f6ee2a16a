"""What a request asks for: filters from its query, held to what the asking person may see.

A name that does not exist is refused with its field: an empty list would look like no calls.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import peewee

from adapters.faults import CODES
from handlers.hub.web.base import Failure
from store.admin import listing
from store.calls.usage_queries import Filters
from store.db.database import first_row, select_rows
from store.db.tables.usage import UsageByKey
from store.db.tables.users import ApiKey
from store.hub.membership import groups_of
from store.hub.sessions import SignedIn
from store.values.errors import NotFound
from store.values.ids import DAY_MS, HOUR_MS
from store.values.texts import nearest
from store.values.times import duration_s, moment_ms
from store.values.usage_record import OUTCOMES

_OWN_CODES = ("client_gone", "gateway_lost", "upstream_truncated", "drained")
ERROR_CODES = tuple(sorted({*CODES.values(), *_OWN_CODES}))

NAMES = ("user", "key", "key_id", "model", "endpoint", "channel", "group", "outcome", "error_code")
"""Filters that may have several values, separated by commas or given again."""

SINGLE = (
    *("status", "stream", "min_duration_ms", "text", "request_id", "client_request_id"),
    *("upstream_request_id", "trace_id", "since", "until"),
)
ADMIN_ONLY = ("user", "channel", "upstream_request_id")
VALUES_MAX = 50
TEXT_CHARS = 256
_TRACE = re.compile(r"[0-9a-f]{32}")
WHOLE_HOURS_FROM_S = 6 * 3600
WHOLE_DAYS_FROM_S = 3 * 86_400
"""Longer spans that are given as a length begin with a whole hour, from here on with a whole day
(UTC), as the sums do."""

Query = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of a request, whose calls are looked through (None: everybody's), and the query
    they came from, name by name."""

    filters: Filters
    user: str | None
    given: Mapping[str, list[str]] = field(default_factory=dict)


def asked(
    db: peewee.Database,
    me: SignedIn,
    query: Query,
    *,
    everybody: bool,
    others: tuple[str, ...] = (),
) -> Asked:
    """Reads a query; `others`: names in it that are not filters. Raises Failure, 400."""
    for name in query:
        if name not in (*NAMES, *SINGLE, *others) or (name in ADMIN_ONLY and not me.admin):
            raise refused(name, f"there is no filter {name}")
    given = {name: values for name, text in query.items() if (values := _values(name, text))}
    now_ms = time.time_ns() // 1_000_000
    found: dict[str, Any] = {}
    for name, values in given.items():
        if name in _READERS:
            found[_FIELDS.get(name, name)] = _READERS[name](name, values[0], now_ms)
        elif name in NAMES and name not in ("key", "key_id"):
            for value in values:
                _require(db, me, name, value)
            found[name] = values[0] if len(values) == 1 else tuple(values)
    if keys := _key_ids(db, me, given, everybody=everybody):
        found["key_id"] = keys[0] if len(keys) == 1 else tuple(keys)
    if not everybody:
        found["user"] = me.user
    filters = Filters(**found)
    begin, end = filters.since_ms, filters.until_ms
    if begin is not None and end is not None and begin >= end:
        raise refused("until", "until must be after since: no call is in between")
    return Asked(filters, None if everybody else me.user, given)


def refused(name: str, message: str) -> Failure:
    """The answer to a value that cannot be."""
    return Failure(HTTPStatus.BAD_REQUEST, "invalid", message, name)


def _values(name: str, texts: list[str]) -> list[str]:
    if name not in NAMES:
        return [text for text in texts[-1:] if text]
    values = dict.fromkeys(part for text in texts for part in text.split(",") if part)
    if len(values) > VALUES_MAX:
        raise refused(name, f"at most {VALUES_MAX} values")
    return [*values]


def _require(db: peewee.Database, me: SignedIn, name: str, value: str) -> None:
    """Refuses what does not exist; a model and an endpoint are any text."""
    try:
        if name == "group" and not me.admin:
            _require_seen(db, me, value)
        elif name in ("user", "group", "channel"):
            listing.require_name(db, name, value)
    except NotFound as error:
        # Names that are near are other people's.
        raise refused(name, str(error) if me.admin else f'there is no {name} "{value}"') from None
    known = {"outcome": OUTCOMES, "error_code": ERROR_CODES}.get(name)
    if known is not None and value not in known:
        hint = nearest(value, known) or f"; there are: {', '.join(known)}"
        raise refused(name, f'there is no {name} "{value}"{hint}')


def _require_seen(db: peewee.Database, me: SignedIn, group: str) -> None:
    """NotFound unless a member may use the group or has called by it: of others it learns not even
    that they are there."""
    called = (UsageByKey.user == me.user) & (UsageByKey.group == group)
    if group not in groups_of(db, me.user_id, admin=False) and not first_row(
        db, UsageByKey.select(UsageByKey.day).where(called)
    ):
        raise NotFound(f'there is no group "{group}"')


def _key_ids(
    db: peewee.Database, me: SignedIn, given: Mapping[str, list[str]], *, everybody: bool
) -> list[str]:
    """Ids of keys given by id or name; of a person alone the own ones."""
    found: dict[str, None] = {}
    for name in ("key", "key_id"):
        for value in given.get(name, ()):
            ids = _everybodys_key(db, value) if everybody else _own_key(db, me, value)
            if not ids:
                raise refused(name, f'there is no key "{value}"')
            found |= dict.fromkeys(ids)
    return [*found]


def _everybodys_key(db: peewee.Database, value: str) -> list[str]:
    try:
        return [listing.key_id_of(db, value)]
    except NotFound:
        return []


def _own_key(db: peewee.Database, me: SignedIn, value: str) -> list[str]:
    own = ApiKey.user_id == me.user_id
    named = (ApiKey.id == value) | (ApiKey.name == value)
    if ids := [key_id for (key_id,) in select_rows(db, ApiKey.select(ApiKey.id).where(own, named))]:
        return ids
    called = (UsageByKey.key_id == value) & (UsageByKey.user == me.user)
    return [value] if first_row(db, UsageByKey.select(UsageByKey.day).where(called)) else []


def _moment(name: str, text: str, now_ms: int) -> int:
    ago_s = duration_s(text)
    if ago_s is not None:
        at_ms = max(0, now_ms - ago_s * 1000)
        if ago_s > WHOLE_DAYS_FROM_S:
            return at_ms - at_ms % DAY_MS
        return at_ms - at_ms % HOUR_MS if ago_s >= WHOLE_HOURS_FROM_S else at_ms
    at = moment_ms(text)
    if at is None:
        raise refused(
            name, f"{text!r} is not a time; write 2026-11-21T14:00:00Z, 2026-11-21, or 24h"
        )
    return at


def _number(name: str, text: str, now_ms: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise refused(name, f"{name} must be a whole number")
    return int(text)


def _truth(name: str, text: str, now_ms: int) -> bool:
    if text not in ("true", "false"):
        raise refused(name, f"{name} must be true or false")
    return text == "true"


def _text(name: str, text: str, now_ms: int) -> str:
    if len(text) > TEXT_CHARS:
        raise refused(name, f"{name} must have at most {TEXT_CHARS} characters")
    return text


def _trace(name: str, text: str, now_ms: int) -> str:
    trace_id = text.lower()
    if not _TRACE.fullmatch(trace_id):
        raise refused(name, f"{name} must be the 32 hexadecimal digits of a trace")
    return trace_id


_FIELDS = {"since": "since_ms", "until": "until_ms"}
_READERS: Mapping[str, Callable[[str, str, int], Any]] = {
    "since": _moment,
    "until": _moment,
    "status": _number,
    "min_duration_ms": _number,
    "stream": _truth,
    "trace_id": _trace,
    **dict.fromkeys(("text", "request_id", "client_request_id", "upstream_request_id"), _text),
}
