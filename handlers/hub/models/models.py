"""Models: each model in a group of the user, with its prices and the results of its calls, why it
is not available, and which other groups have it; as a page and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import peewee

from adapters.registry import LOSSES
from handlers.hub.models.status import (
    API_MODELS,
    API_MODELS_MAX,
    CHIPS,
    CHOICES,
    NOT_OFFERED,
    SHAPES,
    STATES,
    Reason,
    StatusFilter,
    reasons_of,
)
from handlers.hub.web.base import Api, HubHandler, Page, invalid
from handlers.hub.web.formats import (
    UNKNOWN,
    address,
    code_word,
    conditions,
    is_upstream_fault,
    price_word,
    seconds,
)
from operations.availability import (
    MODEL_NOT_FOUND,
    UNOFFERED_DAYS,
    Availability,
    ModelLookup,
    UnofferedModel,
    unoffered_models,
)
from operations.availability import to_plain as why_to_plain
from operations.model_facts import facts_of
from store.catalog.catalog import Group
from store.channels import offers
from store.channels.figures import Figures
from store.channels.offers import Offer, Offering
from store.channels.serving import NATIVE
from store.channels.status import AVAILABLE, Status, of_channels
from store.db.database import database_ms
from store.hub import membership, own_keys
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.errors import NotFound
from store.values.ids import DAY_MS
from store.values.pricing import format_multiplier
from store.values.usage_record import OUTCOMES

PAGE_MODELS = 25
UPSTREAM_FAULTS = ",".join(outcome for outcome in OUTCOMES if is_upstream_fault(outcome))
UNOFFERED_SHOWN = 20
MOST_SEGMENTS = 6  # groups shown side by side; more become a menu
LEAST_CALLS = 20  # for a percentile
POOR_SHARE = 0.95
ROW_PRICES = ("input", "output", "cache_read")
LEGEND = (
    *(("good", 18, "good"), ("good", 14.4, "ok"), ("warn", 10.8, "warn"), ("bad", 5.4, "bad")),
    *(("probes", 18, "probes"), ("foot", 2, "foot")),
)
"""Kinds of bars, their heights and their texts."""
NO_FIGURES = Figures()


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model in the chosen group. `offer` None: the group does not have it; `other` is then the
    offer of the cheapest group that does. `key`: the id of an own key that can call it, or ""."""

    model: str
    state: str
    why: ModelLookup
    offer: Offer | None
    takes: Sequence[str]
    context_tokens: int | None
    day: Figures = NO_FIGURES
    month: Figures = NO_FIGURES
    other: Offer | None = None
    reasons: Sequence[Reason] = ()
    key: str = ""

    @property
    def rates(self) -> int:
        """Return the number of rates besides the plain one."""
        return max(len(self.offer.rates) - 1, 0) if self.offer else 0


@dataclass(frozen=True, slots=True)
class ModelsView:
    """The values of the page at one point in time. `matching`: the number of matching models on all
    pages."""

    at_ms: int
    filter: StatusFilter
    after: str
    groups: Sequence[Group]
    chosen: Group | None = None
    rows: Sequence[ModelRow] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    matching: int = 0
    next: str = ""
    unoffered: Sequence[UnofferedModel] = ()
    nothing: ModelLookup | None = None  # why no model matches the text

    def link(self, **changes: str) -> str:
        """Return the URL of this page with changed fields, starting at its first row."""
        fields = {**self.filter.chips(), "after": "", **changes}
        return address("/models", **fields)

    @property
    def feed(self) -> str:
        """Return the URL of the same models as JSON."""
        fields = {**self.filter.chips(), "group": self.chosen.name if self.chosen else ""}
        return address("/api/models", **fields)

    def usage(self, model: str, days: int = 1, *, failed: bool = False) -> str:
        """Return the URL of a model's calls in the chosen group."""
        assert self.chosen is not None
        return usage_link(model, self.chosen.name, days, failed=failed)


def usage_link(model: str, group: str, days: int, *, failed: bool = False) -> str:
    """Return the URL of a model's calls in a group."""
    fields = {"model": model, "group": group, "since": "24h" if days == 1 else f"{days}d"}
    return address("/usage", **fields, outcome=UPSTREAM_FAULTS if failed else "")


def model_link(model: str, **query: str) -> str:
    """Return the URL of a model's page."""
    return address(f"/models/{quote(model, safe='')}", **query)


def load_models(
    db: peewee.Database, me: SignedIn, status_filter: StatusFilter, after: str, limit: int
) -> ModelsView:
    """Read a page of the models of a user. Raises NotFound if the user does not have the group."""
    at_ms = database_ms(db)
    names = membership.groups_of(db, me.user_id, admin=me.admin)
    if status_filter.group and status_filter.group not in names:
        raise NotFound(f"there is no group {status_filter.group}")
    if not names:
        return ModelsView(at_ms, status_filter, after, ())
    keys = own_keys.owned(db, me.user_id, at_ms)
    chosen = status_filter.group or default_group(keys, names)
    world = offers.load_offering(db, at_ms, names, LOSSES, figures_of=[chosen])
    availability = Availability(world)
    offered = {offer.model: offer for offer in world.offers(chosen)}
    models = sorted({status.model for status in world.statuses})
    states = {model: state_in(availability, chosen, model) for model in models}
    matching = [
        model
        for model in models
        if status_filter.matches(
            model, states[model], offered[model].entries if model in offered else ()
        )
        and status_filter.fits(
            world.models[model].context_tokens, partial(takes_of, world, model, chosen)
        )
    ]
    page = [model for model in matching if model > after][: limit + 1]
    visible = page[:limit]
    with_bars = offers.with_uptime(
        db, world, [offered[name] for name in visible if name in offered]
    )
    reader = _RowReader(world, availability, chosen, keys)
    bars_of = {offer.model: offer for offer in with_bars}
    rows = [reader.row(model, bars_of.get(model)) for model in visible]
    if me.admin:
        rows = with_channels(db, rows, at_ms)
    text = status_filter.text
    return ModelsView(
        at_ms=at_ms,
        filter=status_filter,
        after=after,
        groups=[world.groups[name] for name in names],
        chosen=world.groups[chosen],
        rows=rows,
        counts=Counter(states.values()),
        matching=len(matching),
        next=visible[-1] if len(page) > limit else "",
        nothing=availability.look_up(chosen, text) if text and not matching else None,
        unoffered=unoffered_models(
            db, me.user, {key.id: key for key in keys}, availability, at_ms, limit=UNOFFERED_SHOWN
        ),
    )


def takes_of(world: Offering, model: str, group: str) -> Sequence[str]:
    """Return the kinds of content that a model accepts."""
    return facts_of(world, model, group).takes


def default_group(keys: Sequence[OwnKey], groups: Sequence[str]) -> str:
    """Return the group with the most enabled keys, or the first group."""
    used = Counter(key.group for key in keys if key.enabled and key.revoked_ms is None)
    return max(groups, key=lambda name: used[name])


def state_in(availability: Availability, group: str, model: str) -> str:
    """Return the state of a model in a group, NOT_OFFERED if the group does not have it."""
    status = availability.status(group, model)
    return NOT_OFFERED if status is None else status.state


def key_for(keys: Sequence[OwnKey], group: str, model: str, at_ms: int) -> str:
    """Return the id of the first key that can call a model in a group, or ""."""
    usable = (
        key.id
        for key in keys
        if key.group == group
        and key.enabled
        and key.revoked_ms is None
        and (key.expires_ms is None or key.expires_ms > at_ms)
        and (not key.models or model in key.models)
    )
    return next(usable, "")


@dataclass(frozen=True, slots=True)
class _RowReader:
    """The facts shared by all rows."""

    world: Offering
    availability: Availability
    chosen: str
    keys: Sequence[OwnKey]

    def row(self, model: str, offer: Offer | None) -> ModelRow:
        """Return the row of a model."""
        world, chosen = self.world, self.chosen
        why = self.availability.look_up(chosen, model)
        row = ModelRow(
            model,
            state_in(self.availability, chosen, model),
            why,
            offer,
            takes_of(world, model, chosen),
            world.models[model].context_tokens,
        )
        if offer is None:
            cheapest = [
                offer for name in why.elsewhere[:1] for offer in world.offers(name, [model])
            ]
            return replace(row, other=next(iter(cheapest), None))
        windows = offer.status.windows()
        day = windows["24h"]
        return replace(
            row,
            day=day,
            month=windows["30d"],
            reasons=reasons_of(offer.status, why, day, world.at_ms),
            key=key_for(self.keys, chosen, model, world.at_ms),
        )


def with_channels(db: peewee.Database, rows: Sequence[ModelRow], at_ms: int) -> list[ModelRow]:
    """Add the unavailable channels to the rows' reasons, for administrators."""
    if not any(row.reasons for row in rows):
        return list(rows)
    channels = of_channels(db, at_ms, figures=False)
    return [
        replace(row, reasons=[*row.reasons, *channel_reasons(channels, row.model)])
        if row.reasons
        else row
        for row in rows
    ]


def channel_reasons(channels: Sequence[Status], model: str) -> list[Reason]:
    """Return the unavailable channels that serve a model, by state."""
    lacking = [c for c in channels if c.model == model and c.state != AVAILABLE]
    lacking.sort(key=lambda channel: (channel.state, channel.name))
    return [
        (f"status.channels_{state}", {"channels": ", ".join(channel.name for channel in group)})
        for state, group in groupby(lacking, key=lambda channel: channel.state)
    ]


# ---- the page ------------------------------------------------------------------------------------


class EntryNames(NamedTuple):
    """A model's native entries, the number of its translated entries, and a title that names
    these."""

    native: list[str]
    translated: int
    title: str


class ModelsPage(Page):
    """/models and its former path /status."""

    async def get(self) -> None:
        status_filter = requested_filter(self)
        after = self.get_query_argument("after", "")
        view = await self.store(load_models, self.me, status_filter, after, PAGE_MODELS)
        self.show(
            "models/list.html",
            view=view,
            entries_of=self._entries,
            takes_words=self._takes,
            rates_title=self._rates,
            unoffered_query=unoffered_query,
            in_words=lambda values: in_words(self.words, values),
            **TEMPLATE_VALUES,
        )

    def _takes(self, takes: Sequence[str]) -> str:
        return ", ".join(self.words["models.takes_" + kind] for kind in takes)

    def _rates(self, offer: Offer) -> str:
        """Return the conditions of an offer's rates other than the plain one."""
        return "; ".join(conditions(self.words, dict(rate.when)) for rate in offer.rates[1:])

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


def requested_filter(handler: HubHandler) -> StatusFilter:
    """Return the filter in the query. Invalid values are ignored."""
    query = {name: handler.get_query_argument(name, "") for name in CHIPS}
    for name, choices in CHOICES.items():
        if query[name] not in choices:
            query[name] = ""
    return StatusFilter(**query)


def in_words(words: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a reason, with the error code replaced by its text."""
    if "error" not in values:
        return {**values}
    return {**values, "error": code_word(words, values["error"])}


def price(offer: Offer, kind: str) -> str:
    """Format a price after the multiplier: three decimals, or all if it has more."""
    return price_word(offer.price(kind))


def first_byte(day: Figures, percent: int) -> str:
    """Format a percentile of first-byte times in seconds; "–" with too few streams."""
    return seconds(day.first_byte_ms(percent)) if day.streams >= LEAST_CALLS else UNKNOWN


def multiplier(group: Group) -> str:
    """Format the multiplier of a group."""
    return format_multiplier(group.multiplier_ppm)


def unoffered_query(model: UnofferedModel) -> str:
    """Return the query for the refused calls of a model that nobody offers."""
    fields = {"model": model.model, "key_id": model.key.id, "error_code": MODEL_NOT_FOUND}
    return urlencode(fields | {"since": f"{UNOFFERED_DAYS}d"})


TEMPLATE_VALUES: Mapping[str, Any] = {
    **{"STATES": STATES, "SHAPES": SHAPES, "PAGE_MODELS": PAGE_MODELS},
    **{"DAY_MS": DAY_MS, "MOST_SEGMENTS": MOST_SEGMENTS, "CHOICES": CHOICES},
    **{"LEAST_CALLS": LEAST_CALLS, "POOR_SHARE": POOR_SHARE, "LEGEND": LEGEND},
    **{"price": price, "price_word": price_word, "first_byte": first_byte},
    **{"ROW_PRICES": ROW_PRICES, "multiplier": multiplier, "model_link": model_link},
}


# ---- JSON ----------------------------------------------------------------------------------------


def row_to_plain(row: ModelRow) -> dict[str, Any]:
    """Return a model of a group as JSON. If the group does not have it, `why` says which groups
    do."""
    plain: dict[str, Any] = {"model": row.model, "state": row.state}
    if row.offer is not None:
        plain = offers.to_plain(row.offer)
    return {
        **plain,
        "context_tokens": row.context_tokens,
        "takes": list(row.takes),
        "why": why_to_plain(row.why),
    }


class ModelsApi(Api):
    """GET /api/models."""

    async def get(self) -> None:
        query = {name: self.get_query_argument(name, "") for name in CHIPS}
        for name, choices in CHOICES.items():
            if query[name] not in ("", *choices):
                raise invalid(name, f"{name} must be one of {', '.join(choices)}")
        limit = self.number("limit", API_MODELS, API_MODELS_MAX)
        after = self.get_query_argument("after", "")
        view = await self.store(load_models, self.me, StatusFilter(**query), after, limit)
        group = view.chosen
        self.answer(
            {
                "group": group and {"name": group.name, "multiplier": multiplier(group)},
                "items": [row_to_plain(row) for row in view.rows],
                "next": view.next or None,
            }
        )
