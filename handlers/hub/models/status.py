"""Channel status as JSON: each model in the groups of a user, and the channels for administrators;
and, shared with the pages of models, the filter of models and the reasons why a model is
unavailable."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import peewee

from adapters.registry import LOSSES
from handlers.hub.web.base import Api, invalid
from handlers.hub.web.parts import At
from operations.availability import Availability, ModelLookup
from operations.availability import to_plain as why_to_plain
from operations.model_facts import TAKES
from store.channels import offers
from store.channels import status as statuses
from store.channels.figures import Figures
from store.channels.offers import Offer, Offering
from store.channels.status import AVAILABLE, DEGRADED, DISABLED, DOWN, Status, by_name, of_channels
from store.db.database import database_ms
from store.hub import membership
from store.hub.sessions import SignedIn
from store.values.errors import NotFound

API_MODELS, API_MODELS_MAX = 50, 200
NOT_OFFERED = "not_offered"
OFFERED = (AVAILABLE, DEGRADED, DOWN, DISABLED)
STATES = (*OFFERED, NOT_OFFERED)
SHAPES = {AVAILABLE: "ok", DEGRADED: "warn", DOWN: "bad", DISABLED: "idle", NOT_OFFERED: "none"}
ENTRIES = ("chat_completions", "responses", "messages", "generate_content")
CONTEXTS: Mapping[str, int] = {"128k": 128_000, "200k": 200_000, "400k": 400_000, "1m": 1_000_000}
"""The choices for the minimum context, in tokens."""
GROUP, CHANNEL = "group", "channel"


@dataclass(frozen=True, slots=True)
class StatusFilter:
    """A filter of models, for the page and the JSON. An empty field matches all."""

    group: str = ""
    model: str = ""
    text: str = ""
    state: str = ""
    entry: str = ""
    takes: str = ""
    context: str = ""

    def matches(self, model: str, state: str, entries: Collection[str]) -> bool:
        """Return whether a model matches, by its name, its state and the entries that can call
        it."""
        return (
            (not self.model or model == self.model)
            and self.text.lower() in model.lower()
            and (not self.state or state == self.state)
            and (not self.entry or self.entry in entries)
        )

    def fits(self, context_tokens: int | None, takes: Callable[[], Collection[str]]) -> bool:
        """Return whether a model has a sufficient context and accepts the kind of content. `takes`
        is only called if needed."""
        if (context_tokens or 0) < CONTEXTS.get(self.context, 0):
            return False
        return not self.takes or self.takes in takes()

    def chips(self) -> dict[str, str]:
        """Return the fields that filter the page's rows."""
        return {name: getattr(self, name) for name in CHIPS}


CHOICES: Mapping[str, Sequence[str]] = {
    "state": STATES,
    "entry": ENTRIES,
    "takes": TAKES[1:],
    "context": tuple(CONTEXTS),
}
"""The allowed values of the filter's fields that have a fixed set."""
CHIPS = ("group", "text", *CHOICES)


# ---- reasons -------------------------------------------------------------------------------------

Reason = tuple[str, dict[str, Any]]
"""The name of a text and the values in it."""

_EXPLAINED = frozenset(
    {
        *("failing", "timing_out", "errors", "slow", "rate_limited", "retry_after"),
        *("probe_failed", "fewer_channels", "no_channel", "model_disabled"),
    }
)
"""The status reasons that have a text."""


def reasons_of(status: Status, why: ModelLookup, day: Figures, at_ms: int) -> list[Reason]:
    """Return what is known about a degraded, down or disabled model: since when, why, when it is
    tried again, and in which groups it works."""
    if status.state not in (DEGRADED, DOWN, DISABLED):
        return []
    unserved = status.reason in (statuses.NO_CHANNEL, statuses.MODEL_DISABLED)
    reasons = [] if unserved else [_begin_of(status)]
    if status.reason in _EXPLAINED:
        counts = {"well": status.well, "serving": status.serving, "group": status.name}
        reasons.append((f"status.why_{status.reason}", counts))
    if day.failed and status.last_error and status.state != DISABLED:
        failures = {"failed": day.failed, "calls": day.calls, "error": status.last_error}
        reasons.append(("status.failed_24_h", failures))
    if status.retry_ms and status.retry_ms > at_ms:
        reasons.append(("status.retry", {"time": At(status.retry_ms, "time")}))
    if why.elsewhere:
        reasons.append(("status.works_in", {"groups": ", ".join(why.elsewhere)}))
    return reasons


def _begin_of(status: Status) -> Reason:
    if status.state == DISABLED:
        return "status.is_disabled", {"group": status.name}
    if status.since_ms is None:
        return f"status.{status.state}_now", {"group": status.name}
    since = {"group": status.name, "time": At(status.since_ms)}
    return f"status.{status.state}_since", since


@dataclass(frozen=True, slots=True)
class StatusPosition:
    """The end of a page: a model of a group or of a channel. An empty `kind` is before the
    first."""

    kind: str = ""
    name: str = ""
    model: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{quote(self.name, safe='')}/{self.model}"


def position_of(text: str) -> StatusPosition:
    """Return the position of a `next` cursor, or the first position. Raises Failure."""
    if not text:
        return StatusPosition()
    kind, *rest = text.split("/", 2)
    if kind not in (GROUP, CHANNEL) or len(rest) != 2:
        raise invalid("after", "after must be what `next` of a page said")
    return StatusPosition(kind, unquote(rest[0]), rest[1])


class _StatusRow(NamedTuple):
    """A model of a group (`offer`), a model of a channel (`status`), or a group without matches."""

    position: StatusPosition
    offer: Offer | None = None
    status: Status | None = None


def status_to_plain(
    db: peewee.Database,
    me: SignedIn,
    status_filter: StatusFilter,
    limit: int,
    after: StatusPosition,
) -> dict[str, Any]:
    """Return what the user's groups offer, and the channels for administrators: a page of `limit`
    models. Raises NotFound if the user does not have the group."""
    names = membership.groups_of(db, me.user_id, admin=me.admin)
    if status_filter.group and status_filter.group not in names:
        raise NotFound(f"there is no group {status_filter.group}")
    groups = [status_filter.group] if status_filter.group else names
    world = offers.load_offering(db, database_ms(db), names, LOSSES, figures_of=[])
    rows = _group_rows(world, groups, status_filter, after)
    if me.admin:
        rows = chain(rows, _channel_rows(db, world, groups, status_filter, after))
    page = [*islice(rows, limit + 1)]  # one more tells whether another page follows
    more, page = len(page) > limit, page[:limit]
    offered = [row.offer.status for row in page if row.offer is not None]
    statuses.add_model_figures(db, offered, world.channels, world.at_ms)
    served = [row.status for row in page if row.status is not None]
    statuses.add_channel_figures(db, served, world.at_ms)
    plain: dict[str, Any] = {"groups": _groups_to_plain(db, world, page, status_filter.model)}
    if me.admin:
        plain["channels"] = by_name(served)
    return {**plain, "next": str(page[-1].position) if more else None}


def _group_rows(
    world: Offering, groups: Sequence[str], status_filter: StatusFilter, after: StatusPosition
) -> Iterator[_StatusRow]:
    """Yield rows in the order of groups, including one for each group without a matching model."""
    if after.kind == CHANNEL:
        return
    if after.name and after.name not in groups:
        raise invalid("after", f"there is no group {after.name} now: begin again")
    for name in groups[groups.index(after.name) :] if after.name else groups:
        first = after.model if name == after.name else None
        empty = first is None
        for offer in world.offers(name):
            matches = status_filter.matches(offer.model, offer.status.state, offer.entries)
            if matches and (first is None or offer.model > first):
                empty = False
                yield _StatusRow(StatusPosition(GROUP, name, offer.model), offer=offer)
        if empty:
            yield _StatusRow(StatusPosition(GROUP, name))


def _channel_rows(
    db: peewee.Database,
    world: Offering,
    groups: Sequence[str],
    status_filter: StatusFilter,
    after: StatusPosition,
) -> Iterator[_StatusRow]:
    """Yield rows in the order of channels and models."""
    serving = {channel.name for channel in world.channels if channel.groups.intersection(groups)}
    last = (after.name, after.model) if after.kind == CHANNEL else ("", "")
    for status in of_channels(db, world.at_ms, LOSSES, figures=False):
        if status.name not in serving or (status.name, status.model) <= last:
            continue
        if status_filter.matches(status.model, status.state, status.entries or ()):
            position = StatusPosition(CHANNEL, status.name, status.model)
            yield _StatusRow(position, status=status)


def _groups_to_plain(
    db: peewee.Database, world: Offering, page: Sequence[_StatusRow], model: str
) -> list[dict[str, Any]]:
    """Return the groups of a page. With `model`, each has the reason why it cannot be called."""
    availability = Availability(world)
    groups = []
    group_rows = [row for row in page if row.position.kind == GROUP]
    for name, rows in groupby(group_rows, key=lambda row: row.position.name):
        offered = [row.offer for row in rows if row.offer is not None]
        with_bars = offers.with_uptime(db, world, offered)
        plain = offers.group_to_plain(world.groups[name], with_bars)
        if model:
            plain["why"] = why_to_plain(availability.look_up(name, model))
        groups.append(plain)
    return groups


_FIELDS = ("group", "model", "text", "state", "entry")


class StatusApi(Api):
    """GET /api/status."""

    async def get(self) -> None:
        query = {name: self.get_query_argument(name, "") for name in _FIELDS}
        for name, choices in (("state", OFFERED), ("entry", ENTRIES)):
            if query[name] not in ("", *choices):
                raise invalid(name, f"{name} must be one of {', '.join(choices)}")
        after = position_of(self.get_query_argument("after", ""))
        limit = self.number("limit", API_MODELS, API_MODELS_MAX)
        status_filter = StatusFilter(**query)
        self.answer(await self.store(status_to_plain, self.me, status_filter, limit, after))
