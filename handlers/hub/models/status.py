"""Channel status: each model in the groups of a user, its prices, the results of its calls, and why
it is not available; as a page and, with the channels for administrators, as JSON."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode

import peewee

from adapters.registry import LOSSES
from handlers.hub.web.base import Api, Page, invalid
from handlers.hub.web.formats import (
    UNKNOWN,
    code_word,
    conditions,
    is_upstream_fault,
    money,
    seconds,
)
from handlers.hub.web.parts import At
from operations.availability import (
    MODEL_NOT_FOUND,
    UNOFFERED_DAYS,
    Availability,
    ModelLookup,
    UnofferedModel,
    unoffered_models,
)
from operations.availability import to_plain as why_to_plain
from store.catalog.catalog import Group
from store.channels import offers
from store.channels import status as statuses
from store.channels.figures import Figures
from store.channels.offers import Offer, Offering
from store.channels.serving import NATIVE
from store.channels.status import AVAILABLE, DEGRADED, DISABLED, DOWN, Status, by_name, of_channels
from store.db.database import database_ms
from store.hub import membership, own_keys
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.errors import NotFound
from store.values.ids import DAY_MS, HOUR_MS
from store.values.meters import METERS
from store.values.pricing import Rate, format_multiplier
from store.values.usage_record import OUTCOMES

PAGE_MODELS = 25
API_MODELS, API_MODELS_MAX = 50, 200
UPSTREAM_FAULTS = ",".join(outcome for outcome in OUTCOMES if is_upstream_fault(outcome))
GROUP_COLUMNS = 5  # of the chosen group and others; the remaining ones can be chosen
UNOFFERED_SHOWN = 20
NOT_OFFERED = "not_offered"
OFFERED = (AVAILABLE, DEGRADED, DOWN, DISABLED)
STATES = (*OFFERED, NOT_OFFERED)
SHAPES = {AVAILABLE: "ok", DEGRADED: "warn", DOWN: "bad", DISABLED: "idle", NOT_OFFERED: "none"}
MOST_SEGMENTS = 6  # groups side by side; more are a menu
LEAST_CALLS = 20  # of a percentile
POOR_SHARE = 0.95
PRICE_DECIMALS = 3
ROW_PRICES = ("input", "output", "cache_read")
LEGEND = (
    *(("good", 18, "good"), ("good", 14.4, "ok"), ("warn", 10.8, "warn"), ("bad", 5.4, "bad")),
    *(("probes", 18, "probes"), ("foot", 2, "foot")),
)
"""Kinds of bars, their heights, and their texts."""
ENTRIES = ("chat_completions", "responses", "messages", "generate_content")
GROUP, CHANNEL = "group", "channel"


@dataclass(frozen=True, slots=True)
class StatusFilter:
    """The models of the page and of the JSON; an empty field takes all."""

    group: str = ""
    model: str = ""
    text: str = ""
    state: str = ""
    entry: str = ""

    def matches(self, model: str, state: str, entries: Collection[str]) -> bool:
        """Return whether a model matches, by its state and the entries that can call it."""
        return (
            (not self.model or model == self.model)
            and self.text.lower() in model.lower()
            and (not self.state or state == self.state)
            and (not self.entry or self.entry in entries)
        )

    def chips(self) -> dict[str, str]:
        """Return the fields that narrow the rows of the page."""
        return {name: getattr(self, name) for name in ("group", "text", "state", "entry")}


# ---- reasons -------------------------------------------------------------------------------------

Reason = tuple[str, dict[str, Any]]
"""The name of a sentence, and the values of its braces."""

_EXPLAINED = frozenset(
    {
        *("failing", "timing_out", "errors", "slow", "rate_limited", "told_to_wait"),
        *("probe_failed", "fewer_channels", "no_channel", "model_disabled"),
    }
)
"""The reasons of a status for which there is a sentence."""


def reasons_of(status: Status, why: ModelLookup, day: Figures, at_ms: int) -> list[Reason]:
    """Return the known facts of a model that is degraded, down or disabled: since when, why, when
    it is tried again, where it works."""
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
class ModelRow:
    """A model: its state in each group of the columns; `offer` None: the chosen group lacks it."""

    model: str
    state: str
    states: Sequence[str]
    why: ModelLookup
    offer: Offer | None
    day: Figures
    reasons: Sequence[Reason] = ()


@dataclass(frozen=True, slots=True)
class StatusView:
    """The values of the page, at one moment; `matching`: the models of all pages."""

    at_ms: int
    filter: StatusFilter
    after: str
    groups: Sequence[Group]
    chosen: Group | None = None
    columns: Sequence[Group] = ()
    rows: Sequence[ModelRow] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    matching: int = 0
    next: str = ""
    unoffered: Sequence[UnofferedModel] = ()
    nothing: ModelLookup | None = None  # why no model matches the text

    def link(self, **changes: str) -> str:
        """Return the address of this page with some fields changed, from its first row on."""
        fields = {**self.filter.chips(), "after": "", **changes}
        return "/status?" + urlencode({name: value for name, value in fields.items() if value})

    @property
    def feed(self) -> str:
        """The address of the same as JSON."""
        fields = {**self.filter.chips(), "group": self.chosen.name if self.chosen else ""}
        fields["state"] = "" if self.filter.state == NOT_OFFERED else self.filter.state
        return "/api/status?" + urlencode({name: value for name, value in fields.items() if value})

    def usage(self, model: str, days: int = 1, *, failed: bool = False) -> str:
        """Return the address of the calls of a model in the chosen group."""
        assert self.chosen is not None
        fields = {"model": model, "group": self.chosen.name}
        fields["since"] = "24h" if days == 1 else f"{days}d"
        return "/usage?" + urlencode(fields | ({"outcome": UPSTREAM_FAULTS} if failed else {}))

    def multiplier_of(self, name: str) -> str:
        """Return the multiplier of a group."""
        [group] = [group for group in self.groups if group.name == name]
        return format_multiplier(group.multiplier_ppm)


def load_status(
    db: peewee.Database, me: SignedIn, status_filter: StatusFilter, after: str
) -> StatusView:
    """Read the page of a user. Raises NotFound: the group is none of the user's."""
    at_ms = database_ms(db)
    names = membership.groups_of(db, me.user_id, admin=me.admin)
    if status_filter.group and status_filter.group not in names:
        raise NotFound(f"there is no group {status_filter.group}")
    if not names:
        return StatusView(at_ms, status_filter, after, ())
    keys = own_keys.owned(db, me.user_id, at_ms)
    chosen = status_filter.group or _default_group(keys, names)
    world = offers.load_offering(db, at_ms, names, LOSSES, figures_of=[chosen])
    availability = Availability(world)
    groups = [world.groups[name] for name in names]
    columns = _columns(groups, chosen)
    offered = {offer.model: offer for offer in world.offers(chosen)}
    models = sorted({status.model for status in world.statuses})
    states = {model: _state(availability, chosen, model) for model in models}
    matching = [
        model
        for model in models
        if status_filter.matches(
            model, states[model], offered[model].entries if model in offered else ()
        )
    ]
    page = [model for model in matching if model > after][: PAGE_MODELS + 1]
    visible = page[:PAGE_MODELS]
    with_bars = offers.with_uptime(
        db, world, [offered[name] for name in visible if name in offered]
    )
    bars = {offer.model: offer for offer in with_bars}
    own = {key.id: key for key in keys}
    text = status_filter.text
    return StatusView(
        at_ms=at_ms,
        filter=status_filter,
        after=after,
        groups=groups,
        chosen=world.groups[chosen],
        columns=columns,
        rows=[
            _row(availability, model, at_ms, (chosen, columns), bars.get(model))
            for model in visible
        ],
        counts=Counter(states.values()),
        matching=len(matching),
        next=visible[-1] if len(page) > PAGE_MODELS else "",
        nothing=availability.look_up(chosen, text) if text and not matching else None,
        unoffered=unoffered_models(db, me.user, own, availability, at_ms, limit=UNOFFERED_SHOWN),
    )


def _default_group(keys: Sequence[OwnKey], groups: Sequence[str]) -> str:
    """Return the group of most keys that work, else the first one."""
    used = Counter(key.group for key in keys if key.enabled and key.revoked_ms is None)
    return max(groups, key=lambda name: used[name])


def _columns(groups: Sequence[Group], chosen: str) -> list[Group]:
    """Return the chosen group among others, in their order."""
    neighbours = [group.name for group in groups if group.name != chosen][: GROUP_COLUMNS - 1]
    return [group for group in groups if group.name == chosen or group.name in neighbours]


def _state(availability: Availability, group: str, model: str) -> str:
    status = availability.status(group, model)
    return NOT_OFFERED if status is None else status.state


def _row(
    availability: Availability,
    model: str,
    at_ms: int,
    groups: tuple[str, Sequence[Group]],
    offer: Offer | None,
) -> ModelRow:
    chosen, columns = groups
    states = [_state(availability, group.name, model) for group in columns]
    why = availability.look_up(chosen, model)
    day = Figures() if offer is None else offer.status.windows()["24h"]
    reasons = [] if offer is None else reasons_of(offer.status, why, day, at_ms)
    return ModelRow(model, _state(availability, chosen, model), states, why, offer, day, reasons)


class EntryNames(NamedTuple):
    """The native entries of a model, the number of translated ones, and the title with these."""

    native: list[str]
    translated: int
    title: str


class StatusPage(Page):
    """/status."""

    async def get(self) -> None:
        query = {
            name: self.get_query_argument(name, "") for name in ("group", "text", "state", "entry")
        }
        after = self.get_query_argument("after", "")
        view = await self.store(load_status, self.me, StatusFilter(**query), after)
        self.show(
            "status.html",
            view=view,
            entries_of=self._entries,
            unoffered_query=unoffered_query,
            in_words=self._in_words,
            **TEMPLATE_VALUES,
        )

    def _in_words(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of a sentence, with the text of an error in the place of its code."""
        if "error" not in values:
            return {**values}
        return {**values, "error": code_word(self.words, values["error"])}

    def _entries(self, offer: Offer) -> EntryNames:
        """Return the names of the entries that can call a model."""
        native, translated = [], []
        for entry, way in offer.entries.items():
            name = self.words["status.entry_" + entry]
            if way == NATIVE:
                native.append(name)
            else:
                family = way.rpartition(" ")[2]
                text = self.words["status.translated"].format(entry=name, family=family)
                translated.append(text)
        return EntryNames(native, len(translated), "; ".join(translated))


def price(offer: Offer, kind: str) -> str:
    """Format a price after the multiplier: three decimals, or as many as it has."""
    text = offer.price(kind)
    if text is None:
        return UNKNOWN
    return money(text, PRICE_DECIMALS if len(text.partition(".")[2]) <= PRICE_DECIMALS else None)


@dataclass(frozen=True, slots=True)
class FurtherPrices:
    """The prices of a model beside those of its row, after the multiplier: a column a rate, a line
    a meter; `count`: how many meters and rates these are."""

    count: int
    rates: Sequence[str]
    lines: Sequence[tuple[str, Sequence[str]]]


def further_prices(offer: Offer, words: Mapping[str, str]) -> FurtherPrices | None:
    """Return the prices of an offer that its row does not show; None: it shows them all."""
    if offer.prices is None:
        return None
    priced = {name for rate in offer.rates for name in rate.own if name != "call" or rate.call}
    further = len(priced - {*ROW_PRICES}) + len(offer.prices.rates)
    if not further:
        return None
    rates = [conditions(words, dict(rate.when)) for rate in offer.rates[1:]]
    lines = [
        (name, [_price_in(offer, name, rate) for rate in offer.rates])
        for name in METERS
        if name in priced
    ]
    return FurtherPrices(further, [words["usage.plain_rate"], *rates], lines)


def _price_in(offer: Offer, meter: str, rate: Rate) -> str:
    return money(offer.price(meter, rate), None) if meter in rate.prices else UNKNOWN


def first_byte(day: Figures, percent: int) -> str:
    """Format a percentile in seconds, of enough streams."""
    return seconds(day.first_byte_ms(percent)) if day.streams >= LEAST_CALLS else UNKNOWN


def multiplier(group: Group) -> str:
    """Format the multiplier of a group."""
    return format_multiplier(group.multiplier_ppm)


def unoffered_query(model: UnofferedModel) -> str:
    """Return the query of the refused calls of a model that nobody offers."""
    fields = {"model": model.model, "key_id": model.key.id, "error_code": MODEL_NOT_FOUND}
    return urlencode(fields | {"since": f"{UNOFFERED_DAYS}d"})


TEMPLATE_VALUES: Mapping[str, Any] = {
    **{"STATES": STATES, "SHAPES": SHAPES, "ENTRIES": ENTRIES, "PAGE_MODELS": PAGE_MODELS},
    **{"HOUR_MS": HOUR_MS, "DAY_MS": DAY_MS, "MOST_SEGMENTS": MOST_SEGMENTS},
    **{"LEAST_CALLS": LEAST_CALLS, "POOR_SHARE": POOR_SHARE},
    **{"LEGEND": LEGEND, "price": price, "further_prices": further_prices},
    **{"ROW_PRICES": ROW_PRICES, "first_byte": first_byte, "multiplier": multiplier},
}


@dataclass(frozen=True, slots=True)
class StatusPosition:
    """The end of a page: a model of a group or a channel; no kind: before all of them."""

    kind: str = ""
    name: str = ""
    model: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{quote(self.name, safe='')}/{self.model}"


def position_of(text: str) -> StatusPosition:
    """Return the position of a `next`, or the first one. Raises Failure."""
    if not text:
        return StatusPosition()
    kind, *rest = text.split("/", 2)
    if kind not in (GROUP, CHANNEL) or len(rest) != 2:
        raise invalid("after", "after must be what `next` of a page said")
    return StatusPosition(kind, unquote(rest[0]), rest[1])


class _StatusRow(NamedTuple):
    """A model of a group (`offer`), of a channel (`status`), or a group without a match."""

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
    """Return what the groups of a user offer; for administrators the channels, too: a page of
    `limit` models. Raises NotFound: no such group for this user."""
    names = membership.groups_of(db, me.user_id, admin=me.admin)
    if status_filter.group and status_filter.group not in names:
        raise NotFound(f"there is no group {status_filter.group}")
    groups = [status_filter.group] if status_filter.group else names
    world = offers.load_offering(db, database_ms(db), names, LOSSES, figures_of=[])
    rows = _group_rows(world, groups, status_filter, after)
    if me.admin:
        rows = chain(rows, _channel_rows(db, world, groups, status_filter, after))
    page = [*islice(rows, limit + 1)]  # the one beyond tells whether another page follows
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
    """Yield rows in order of groups, also a row for a group without a model."""
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
    """Yield rows in order of channels and models."""
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
    """Return the groups of a page; for a single model also why it cannot be called."""
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


class StatusApi(Api):
    """GET /api/status."""

    async def get(self) -> None:
        query = {name: self.get_query_argument(name, "") for name in StatusFilter.__slots__}
        for name, choices in (("state", OFFERED), ("entry", ENTRIES)):
            if query[name] not in ("", *choices):
                raise invalid(name, f"{name} must be one of {', '.join(choices)}")
        after = position_of(self.get_query_argument("after", ""))
        limit = self.number("limit", API_MODELS, API_MODELS_MAX)
        status_filter = StatusFilter(**query)
        self.answer(await self.store(status_to_plain, self.me, status_filter, limit, after))
