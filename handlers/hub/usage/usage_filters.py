"""The filters of a request for calls, restricted to what its user may see.

A filter for a name that does not exist is refused, since an empty list would look as if there were
no calls.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import peewee

from adapters.faults import CODES
from handlers.hub.web.base import HubHandler, invalid
from store.admin import listing
from store.calls.usage_queries import Filters
from store.hub import own_keys
from store.hub.membership import groups_of, has_called_in
from store.hub.sessions import SignedIn
from store.values.errors import NotFound
from store.values.ids import DAY_MS, HOUR_MS, now_ms, ulid_ms
from store.values.texts import nearest
from store.values.times import duration_ms, duration_s, moment_ms
from store.values.usage_record import OUTCOMES

_OWN_CODES = ("client_gone", "gateway_lost", "upstream_truncated", "drained")
ERROR_CODES = tuple(sorted({*CODES.values(), *_OWN_CODES}))

NAMES = ("user", "key", "key_id", "model", "endpoint", "channel", "group", "outcome", "error_code")
"""Filters that accept several values, separated by commas or repeated."""

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
"""Spans given as a length start at a full hour from WHOLE_HOURS_FROM_S on, and at a full UTC day if
longer than this, as the sums do."""

Query = Mapping[str, list[str]]


def cursor_of(handler: HubHandler) -> str | None:
    """Return the id of the call after which the page starts. None: the first page. Raises
    Failure."""
    after = handler.get_query_argument("after", "") or None
    try:
        if after is not None:
            ulid_ms(after)
    except ValueError:
        raise invalid("after", "after must be what `next` of a page said") from None
    return after


@dataclass(frozen=True, slots=True)
class UsageFilters:
    """The filters of a request. `user`: whose calls are read, None for everybody's; `query`: the
    filters' texts by name."""

    filters: Filters
    user: str | None
    query: Query = field(default_factory=dict)


def read_filters(
    db: peewee.Database,
    me: SignedIn,
    query: Query,
    *,
    everybody: bool,
    other_names: tuple[str, ...] = (),
) -> UsageFilters:
    """Read the filters of a query. `other_names`: names in it other than filters. Raises Failure
    400."""
    for name in query:
        if name not in (*NAMES, *SINGLE, *other_names) or (name in ADMIN_ONLY and not me.admin):
            raise invalid(name, f"there is no filter {name}")
    query = {name: values for name, texts in query.items() if (values := _values(name, texts))}
    at_ms = now_ms()
    fields: dict[str, Any] = {}
    for name, values in query.items():
        if name in _READERS:
            fields[_FIELDS.get(name, name)] = _READERS[name](name, values[0], at_ms)
        elif name in NAMES and name not in ("key", "key_id"):
            for value in values:
                _require(db, me, name, value)
            fields[name] = values[0] if len(values) == 1 else tuple(values)
    if keys := _key_ids(db, me, query, everybody=everybody):
        fields["key_id"] = keys[0] if len(keys) == 1 else tuple(keys)
    if not everybody:
        fields["user"] = me.user
    filters = Filters(**fields)
    begin, end = filters.since_ms, filters.until_ms
    if begin is not None and end is not None and begin >= end:
        raise invalid("until", "until must be after since: no call is in between")
    return UsageFilters(filters, None if everybody else me.user, query)


def _values(name: str, texts: list[str]) -> list[str]:
    if name not in NAMES:
        return [text for text in texts[-1:] if text]
    values = dict.fromkeys(part for text in texts for part in text.split(",") if part)
    if len(values) > VALUES_MAX:
        raise invalid(name, f"at most {VALUES_MAX} values")
    return [*values]


def _require(db: peewee.Database, me: SignedIn, name: str, value: str) -> None:
    """Raise Failure for a name that does not exist. Models and endpoints may be any text."""
    try:
        if name == "group" and not me.admin:
            _require_own_group(db, me, value)
        elif name in ("user", "group", "channel"):
            listing.require_name(db, name, value)
    except NotFound as error:
        # The message lists similar names, which may be other people's.
        raise invalid(name, str(error) if me.admin else f'there is no {name} "{value}"') from None
    choices = {"outcome": OUTCOMES, "error_code": ERROR_CODES}.get(name)
    if choices is not None and value not in choices:
        hint = nearest(value, choices) or f"; there are: {', '.join(choices)}"
        raise invalid(name, f'there is no {name} "{value}"{hint}')


def _require_own_group(db: peewee.Database, me: SignedIn, group: str) -> None:
    """Raise NotFound unless a member may use the group or has called in it. Other groups stay
    hidden."""
    own = groups_of(db, me.user_id, admin=False)
    if group not in own and not has_called_in(db, me.user, group):
        raise NotFound(f'there is no group "{group}"')


def _key_ids(db: peewee.Database, me: SignedIn, query: Query, *, everybody: bool) -> list[str]:
    """Return the ids of keys given by id or name, only own keys unless `everybody`."""
    ids: dict[str, None] = {}
    for name in ("key", "key_id"):
        for value in query.get(name, ()):
            if everybody:
                key_ids = _any_key(db, value)
            else:
                key_ids = own_keys.ids_of(db, me.user_id, me.user, value)
            if not key_ids:
                raise invalid(name, f'there is no key "{value}"')
            ids |= dict.fromkeys(key_ids)
    return [*ids]


def _any_key(db: peewee.Database, value: str) -> list[str]:
    try:
        return [listing.key_id_of(db, value)]
    except NotFound:
        return []


def _moment(name: str, text: str, now_ms: int) -> int:
    ago_s = duration_s(text)
    if ago_s is not None:
        at_ms = max(0, now_ms - ago_s * 1000)
        if ago_s > WHOLE_DAYS_FROM_S:
            return at_ms - at_ms % DAY_MS
        return at_ms - at_ms % HOUR_MS if ago_s >= WHOLE_HOURS_FROM_S else at_ms
    at = moment_ms(text)
    if at is None:
        remedy = "write 2026-11-21T14:00:00Z, 2026-11-21, or 24h"
        raise invalid(name, f"{text!r} is not a time; {remedy}")
    return at


def _number(name: str, text: str, now_ms: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise invalid(name, f"{name} must be a whole number")
    return int(text)


def _duration(name: str, text: str, now_ms: int) -> int:
    ms = duration_ms(text)
    if ms is None:
        raise invalid(name, f"{text!r} is not a duration; write 500 ms or 1.5 s")
    return ms


def _boolean(name: str, text: str, now_ms: int) -> bool:
    if text not in ("true", "false"):
        raise invalid(name, f"{name} must be true or false")
    return text == "true"


def _text(name: str, text: str, now_ms: int) -> str:
    if len(text) > TEXT_CHARS:
        raise invalid(name, f"{name} must have at most {TEXT_CHARS} characters")
    return text


def _trace(name: str, text: str, now_ms: int) -> str:
    trace_id = text.lower()
    if not _TRACE.fullmatch(trace_id):
        raise invalid(name, f"{name} must be the 32 hexadecimal digits of a trace")
    return trace_id


_FIELDS = {"since": "since_ms", "until": "until_ms"}
_READERS: Mapping[str, Callable[[str, str, int], Any]] = {
    "since": _moment,
    "until": _moment,
    "status": _number,
    "min_duration_ms": _duration,
    "stream": _boolean,
    "trace_id": _trace,
    **dict.fromkeys(("text", "request_id", "client_request_id", "upstream_request_id"), _text),
}
