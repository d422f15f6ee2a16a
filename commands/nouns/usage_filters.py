"""The options that select usage records. A name that does not exist is an error.

Imported by the verbs of `usage`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import click
import peewee

from adapters.faults import CODES
from commands.output import note
from commands.times import Moment
from store.admin import listing
from store.calls.usage_queries import LOOK_BACK_MS, Filters
from store.db.database import database_ms
from store.values.errors import NotFound
from store.values.texts import nearest
from store.values.usage_record import OUTCOMES, rfc3339

F = TypeVar("F", bound=Callable[..., Any])

FILTERS: Mapping[str, tuple[type, str]] = {
    "user": (str, "Name of a user."),
    "group": (str, "Name of a group."),
    "key_id": (str, "Id of a key, or USER/NAME."),
    "model": (str, "Model as the client asked for it."),
    "endpoint": (str, "Path, like /v1/messages."),
    "channel": (str, "Name of the channel that answered."),
    "outcome": (str, "ok, refused, upstream_error, client_gone …"),
    "status": (int, "HTTP status the client got."),
    "error_code": (str, "Code of the error, as in docs/errors.md, or a word like client_gone."),
    "request_id": (str, "Id of one call: its x-request-id."),
    "client_request_id": (str, "The client's own X-Client-Request-Id."),
    "trace_id": (str, "Trace id of the client's traceparent, or one that the gateway made."),
}
# Neither an index nor the sums find calls by these.
UNINDEXED = ("status", "trace_id")

# Outcomes that are their own error code (interface: "A usage record").
_CODES_OF_OUTCOMES = ("client_gone", "gateway_lost", "upstream_truncated", "drained")
ERROR_CODES = tuple(sorted({*CODES.values(), *_CODES_OF_OUTCOMES}))


def filter_options(verb: F) -> F:
    """Add the options of FILTERS, --since and --until to a command, as keywords."""
    verb = click.option("--until", type=Moment(), help="Calls started before this time.")(verb)
    since = (
        "Calls started at this time or later: a time, a day, an age (24h), or the start of today,"
        " yesterday, this-month, last-month (UTC)."
    )
    verb = click.option("--since", type=Moment(), help=since)(verb)
    for name, (kind, text) in reversed(list(FILTERS.items())):
        verb = click.option("--" + name.replace("_", "-"), type=kind, help=text)(verb)
    return verb


def filters_of(db: peewee.Database, given: Mapping[str, Any]) -> Filters:
    """Return the filters of these options. Raises NotFound, with the nearest name, for names that
    do not exist. Models and endpoints may be any text, because clients ask for unknown ones."""
    options = dict(given)
    since_ms, until_ms = options.pop("since"), options.pop("until")
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise click.UsageError("--since must be before --until")
    filters = Filters(**options, since_ms=since_ms, until_ms=until_ms)
    for kind in ("user", "group", "channel"):
        if (name := options[kind]) is not None:
            listing.require_name(db, kind, name)
    _require_one_of("outcome", options["outcome"], OUTCOMES)
    _require_one_of("error code", options["error_code"], ERROR_CODES)
    if options["key_id"] is None:
        return filters
    return replace(filters, key_id=listing.key_id_of(db, options["key_id"]))


def bounded(db: peewee.Database, filters: Filters, why: str) -> Filters:
    """Return the filters with a start time. Without one, only the last days of records are
    searched, and the note `why` is printed."""
    if filters.since_ms is not None:
        return filters
    until_ms = filters.until_ms or database_ms(db)
    since_ms = max(0, until_ms - LOOK_BACK_MS)
    note(f"{why} {rfc3339(since_ms)}; for older ones: --since")
    return replace(filters, since_ms=since_ms)


def needs_bound(filters: Filters) -> bool:
    """Return whether the calls may be so rare that all records would be scanned."""
    if filters.request_id is not None:
        return False
    return any(getattr(filters, name) is not None for name in UNINDEXED)


def _require_one_of(kind: str, word: str | None, known: tuple[str, ...]) -> None:
    if word is not None and word not in known:
        hint = nearest(word, known) or f"; there are: {', '.join(known)}"
        raise NotFound(f'there is no {kind} "{word}"{hint}')
