"""The page of one model in a group of the user, and its JSON: prices by rate, success and
first-byte times by day, entries, groups, what it accepts and returns, similar models, how to call
it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from adapters.registry import LOSSES
from handlers.hub.keys.setup import NO_SECRET, Piece, SnippetValues, cut
from handlers.hub.models.models import (
    LEAST_CALLS,
    NO_FIGURES,
    TEMPLATE_VALUES,
    channel_reasons,
    default_group,
    first_byte,
    in_words,
    key_for,
    model_link,
    multiplier,
    state_in,
    usage_link,
)
from handlers.hub.models.status import NOT_OFFERED, Reason, reasons_of
from handlers.hub.web.base import Api, Page
from handlers.hub.web.charts import Column
from handlers.hub.web.formats import address, conditions, money, price_word
from operations.availability import Availability, ModelLookup
from operations.base_url_check import KINDS
from operations.chat import PATHS, Chat, ChatTurn, encode_chat
from operations.chat_code import KEY_VARIABLE, code_of
from operations.client_settings import CLIENTS, CURL_TITLES, setups
from operations.model_facts import (
    ModelFacts,
    facts_of,
    like_it,
    native_entry,
    refused_features,
    traits_at,
)
from store.admin import listing
from store.calls import usage_stats
from store.calls.rate_sums import RateUse, rate_name, use_of_model
from store.calls.usage_queries import Filters
from store.catalog.catalog import Group, Model
from store.channels import offers, uptime
from store.channels import status as statuses
from store.channels.figures import Figures
from store.channels.offers import Offer, Offering
from store.channels.serving import NATIVE
from store.channels.status import of_channels
from store.channels.uptime import DAYS, DayFigures
from store.db.database import database_ms, in_snapshot
from store.hub import membership, own_keys
from store.hub.sessions import SignedIn
from store.values.errors import NotFound
from store.values.features import is_priced
from store.values.fields import Instant
from store.values.ids import DAY_MS, day_at
from store.values.meters import METERS
from store.values.pricing import Rate
from store.values.usage_record import rfc3339

PRICE_COLUMNS = ("input", "cache_read", "cache_write", "output")
SAY_HELLO = "Say hello in one word."
TOOLS = ("codex", "claude-code", "gemini-cli")
TOOLS_SHOWN = 2
MAX_TOKENS = 100
TICK_DAYS = 3
LOW_SHARE = 0.99  # the worst day is named if it is below this
MODEL_PATH = "/v1beta/models/…"


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group of the user, the model's state in it, and the model's offer if the group has it."""

    group: Group
    state: str
    offer: Offer | None


@dataclass(frozen=True, slots=True)
class ModelView:
    """The values of the page at one point in time. `offer` None: the chosen group does not have the
    model. `yours`: the number and cost of the user's own calls in the last days. `unpriced`: meters
    and features that calls used without a price."""

    at_ms: int
    model: Model
    chosen: Group
    groups: Sequence[GroupState]
    offer: Offer | None
    why: ModelLookup
    facts: ModelFacts
    history: Sequence[Mapping[str, Any]]
    key: str
    yours: tuple[int, str]
    use: RateUse = field(default_factory=RateUse)
    month: Figures = NO_FIGURES
    day: Figures = NO_FIGURES
    days: Sequence[DayFigures] = ()
    reasons: Sequence[Reason] = ()
    unpriced: Sequence[str] = ()
    refused: Sequence[str] = ()
    like: Sequence[Offer] = ()
    request: Any = None

    @property
    def state(self) -> str:
        """Return the state in the chosen group."""
        return self.offer.status.state if self.offer else NOT_OFFERED

    @property
    def entry(self) -> str | None:
        """Return the entry that is best for calling the model."""
        return native_entry(self.offer) if self.offer else None

    def rate_share(self, rate: Rate) -> float | None:
        """Return the share of the model's charged calls that had a rate. None: no such calls."""
        calls = sum(self.use.calls.values())
        return self.use.calls.get(rate_name(dict(rate.when)), 0) / calls if calls else None

    @property
    def worst(self) -> DayFigures | None:
        """Return the day with the lowest success rate, if it was below LOW_SHARE."""
        days = [day for day in self.days if day.figures.calls >= LEAST_CALLS]
        worst = min(days, key=lambda day: day.figures.success or 0, default=None)
        return worst if worst and (worst.figures.success or 0) < LOW_SHARE else None

    def link(self, **query: str) -> str:
        """Return the URL of this page with another group or snippet."""
        return model_link(self.model.name, **{"group": self.chosen.name, **query})

    def usage(self, days: int = DAYS, *, failed: bool = False) -> str:
        """Return the URL of the model's calls in the chosen group."""
        return usage_link(self.model.name, self.chosen.name, days, failed=failed)


@in_snapshot
def load_model(db: peewee.Database, me: SignedIn, name: str, group: str) -> ModelView:
    """Read the page of a model for a user. Raises NotFound if the user does not have the group, or
    no group of the user has the model; the message names similar models."""
    at_ms = database_ms(db)
    names = membership.groups_of(db, me.user_id, admin=me.admin)
    if group and group not in names:
        raise NotFound(f"there is no group {group}")
    world = offers.load_offering(db, at_ms, names, LOSSES, figures_of=[])
    availability = Availability(world)
    keys = own_keys.owned(db, me.user_id, at_ms)
    having = [group for group in names if availability.status(group, name) is not None]
    if not having:
        nearest = availability.nearest(names[0], name) if names else []
        raise UnknownModel(name, nearest)
    preferred = default_group(keys, names)
    chosen = group or (preferred if preferred in having else having[0])
    offered = {place: world.offers(place, [name]) for place in having}
    in_chosen = world.offers(chosen)
    offer = next((each for each in in_chosen if each.model == name), None)
    view = ModelView(
        at_ms=at_ms,
        model=world.models[name],
        chosen=world.groups[chosen],
        groups=[
            GroupState(
                world.groups[place],
                state_in(availability, place, name),
                next(iter(offered.get(place, ())), None),
            )
            for place in names
        ],
        offer=offer,
        why=availability.look_up(chosen, name),
        facts=facts_of(world, name, chosen),
        history=listing.price_history(db, name),
        key=key_for(keys, chosen, name, at_ms),
        yours=_yours(db, me, name, at_ms),
    )
    return replace(view, **_calls_of(db, me, world, offer, in_chosen)) if offer else view


class UnknownModel(NotFound):
    """No group of the user has a model of this name. `nearest`: similar names."""

    def __init__(self, name: str, nearest: Sequence[str]) -> None:
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        super().__init__(f'there is no model "{name}"{hint}')
        self.name, self.nearest = name, nearest


def _yours(db: peewee.Database, me: SignedIn, model: str, at_ms: int) -> tuple[int, str]:
    since_ms = at_ms - at_ms % DAY_MS - (DAYS - 1) * DAY_MS
    filters = Filters(user=me.user, model=model, since_ms=since_ms)
    rows = usage_stats.stats(db, ("model",), filters)
    return (rows[0]["calls"], rows[0]["cost"]) if rows else (0, "0")


def _calls_of(
    db: peewee.Database,
    me: SignedIn,
    world: Offering,
    offer: Offer,
    in_group: Sequence[Offer],
) -> dict[str, Any]:
    """Return the page's values about an offer's calls, and similar models."""
    like = like_it(world, in_group, offer)
    served = [each.status for each in (offer, *like)]
    statuses.add_model_figures(db, served, world.channels, world.at_ms)
    windows = offer.status.windows()
    days = [day_at(world.at_ms - ago * DAY_MS) for ago in range(DAYS)]
    use = use_of_model(db, offer.model, days)
    why = Availability(world).look_up(offer.group.name, offer.model)
    reasons = reasons_of(offer.status, why, windows["24h"], world.at_ms)
    if reasons and me.admin:
        channels = of_channels(db, world.at_ms, figures=False)
        reasons = [*reasons, *channel_reasons(channels, offer.model)]
    refused = refused_features(offer)
    prices = offer.prices
    entry = native_entry(offer)
    bound = MAX_TOKENS if entry == "messages" else None  # messages requires it
    chat = Chat(offer.model, [ChatTurn("user", SAY_HELLO)], stream=False, max_tokens=bound)
    [with_days] = offers.with_uptime(db, world, [offer])
    return {
        "offer": with_days,
        "use": use,
        "month": windows["30d"],
        "day": windows["24h"],
        "days": uptime.model_days(db, world.at_ms, offer.group.name, offer.model),
        "reasons": reasons,
        "unpriced": [
            meter for meter in use.unpriced if prices is None or not is_priced(meter, prices)
        ],
        "refused": refused,
        "like": like,
        "request": encode_chat(entry, chat, traits_at(world, offer, entry)) if entry else None,
    }


# ---- parts of the page ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EntryRow:
    """An entry that can call the model: its path, and the name of the texts about how base URLs for
    it end."""

    family: str
    title: str
    path: str
    native: bool
    ends: str


def entry_rows(offer: Offer) -> list[EntryRow]:
    """Return the entries of an offer, native ones first."""
    rows = []
    for family, how in offer.entries.items():
        kind = family if family in KINDS else "openai"
        title, path = CURL_TITLES[family], PATHS.get(family, MODEL_PATH)
        rows.append(EntryRow(family, title, path, how == NATIVE, kind))
    return rows


def further_prices(offer: Offer) -> list[tuple[str, Rate, str]]:
    """Return the prices that are not in the table of rates: meter, rate, price after the
    multiplier. For rates other than the plain one, only prices that differ from it."""
    lines = []
    for name in METERS:
        plain = offer.price(name)
        for rate in offer.rates:
            price = offer.price(name, rate)
            differs = rate.prices.get(name) if not rate.when else price != plain
            if price is not None and name in rate.own and name not in PRICE_COLUMNS and differs:
                lines.append((name, rate, price))
    return lines


@dataclass(frozen=True, slots=True)
class UseSample:
    """A snippet that calls the model: its name in the URL, its tab, its title, its pieces."""

    name: str
    tab: str
    title: str
    pieces: Sequence[Piece]
    rule: str = ""


def samples_of(view: ModelView, base_url: str, words: Mapping[str, str]) -> list[UseSample]:
    """Return the snippets of a model: code for the SDK of its best entry, then coding tools."""
    entry, offer = view.entry, view.offer
    if entry is None or offer is None:
        return []
    model = offer.model
    values = SnippetValues(base_url, KEY_VARIABLE, lambda _: model)
    samples = [
        UseSample(
            code.language,
            words["try.language_" + code.language],
            words["models.sdk"].format(
                sdk=code.title or "curl",
                entry=CURL_TITLES[entry],
                how=words[
                    "models.native" if offer.entries[entry] == NATIVE else "models.translated"
                ],
            ),
            cut(code.text, values),
            words["try.base_" + entry],
        )
        for code in code_of(entry, base_url, model, view.request)
    ]
    tools = [CLIENTS[name] for name in TOOLS if CLIENTS[name].family in offer.entries]
    tools.sort(key=lambda client: offer.entries[client.family] != NATIVE)
    for client in tools[:TOOLS_SHOWN]:
        values = SnippetValues(base_url, NO_SECRET, lambda _: model)
        snippets = setups(client.name, base_url, NO_SECRET, values.model_of)[0].snippets
        text = "\n\n".join(
            f"# {snippet.title}\n{snippet.text}" if len(snippets) > 1 else snippet.text
            for snippet in snippets
        )
        rule = words[f"setup.rule_{KINDS[client.kind].rule}_head"]
        title = snippets[0].title
        samples.append(UseSample(client.name, client.title, title, cut(text, values), rule))
    return samples


def first_byte_columns(view: ModelView, words: Mapping[str, str]) -> list[Column]:
    """Return the columns of the chart of first-byte times: p50 and p95 of each day, in seconds."""
    columns = []
    for place, day in enumerate(view.days):
        enough = day.figures.streams >= LEAST_CALLS
        parts = [
            (day.figures.first_byte_ms(percent) or 0) / 1000 if enough else 0.0
            for percent in (50, 95)
        ]
        date = day_at(day.at_s * 1000)
        text = f"{date // 10_000}-{date // 100 % 100:02d}-{date % 100:02d}"
        title = words["models.day_title"].format(
            day=text, p50=first_byte(day.figures, 50), p95=first_byte(day.figures, 95)
        )
        until_end = len(view.days) - 1 - place
        tick = str(date % 100) if until_end % TICK_DAYS == 0 else ""
        columns.append(Column(parts, tick, title))
    return columns


class OneModelPage(Page):
    """/models/NAME."""

    async def get(self, name: str) -> None:
        group = self.get_query_argument("group", "")
        view = await self.store(_load_or_nearest, self.me, name, group)
        if isinstance(view, UnknownModel):
            self.set_status(404)
            self.show("models/unknown.html", name=name, nearest=view.nearest, model_link=model_link)
            return
        samples = samples_of(view, self.site.base_url, self.words)
        chosen = self.get_query_argument("use", "python")
        sample = next((each for each in samples if each.name == chosen), None)
        self.show(
            "models/one.html",
            view=view,
            samples=samples,
            sample=sample or next(iter(samples), None),
            entries=entry_rows(view.offer) if view.offer else (),
            columns=first_byte_columns(view, self.words),
            rate_words=lambda rate: conditions(self.words, dict(rate.when)),
            further=further_prices(view.offer) if view.offer else (),
            feature_words=self._features,
            policy=self.site.settings.money.unpriced,
            compare_link=self._compare,
            in_words=lambda values: in_words(self.words, values),
            figure_price=figure_price,
            PRICE_COLUMNS=PRICE_COLUMNS,
            ms=Instant().parse,
            **TEMPLATE_VALUES,
        )

    def _features(self, names: Sequence[str]) -> str:
        """Return features or meters as text."""
        words = self.words
        return ", ".join(
            words.get(f"meter.{name}", words.get(f"features.{name}", name)) for name in names
        )

    def _compare(self, view: ModelView, other: str) -> str:
        fields = {"key": view.key, "model": view.model.name, "with": other}
        return address("/try", **fields)


def _load_or_nearest(
    db: peewee.Database, me: SignedIn, name: str, group: str
) -> ModelView | UnknownModel:
    try:
        return load_model(db, me, name, group)
    except UnknownModel as error:
        return error


def figure_price(text: str | None) -> str:
    """Format a price as a figure: two decimals, or all if it has more."""
    if text is None:
        return price_word(text)
    return money(text, 2 if len(text.partition(".")[2]) <= 2 else None)


# ---- JSON ----------------------------------------------------------------------------------------


def model_to_plain(view: ModelView) -> dict[str, Any]:
    """Return a model in a group as JSON. If the group does not have it, only what is true in any
    group."""
    offer = view.offer
    plain: dict[str, Any] = {"model": view.model.name, "state": view.state}
    if offer is not None:
        plain = offers.to_plain(offer)
        shares = [view.rate_share(rate) for rate in offer.rates]
        plain["rates"] = [
            {**rate, "share": part} for rate, part in zip(plain["rates"], shares[1:], strict=True)
        ]
        plain["plain_share"] = shares[0] if shares else None
        plain["first_bytes"] = [
            [day.figures.first_byte_ms(percent) if day.figures.streams >= LEAST_CALLS else None
             for percent in (50, 95)]
            for day in view.days
        ]  # fmt: skip
    calls, cost = view.yours
    return {
        **plain,
        "group": {"name": view.chosen.name, "multiplier": multiplier(view.chosen)},
        "groups": [_group_to_plain(place) for place in view.groups],
        "context_tokens": view.model.context_tokens,
        "max_output_tokens": view.model.max_output_tokens,
        "takes": list(view.facts.takes),
        "gives": list(view.facts.gives),
        "efforts": list(view.facts.efforts),
        "sampling": view.facts.sampling,
        "unpriced": list(view.unpriced),
        "refused_features": list(view.refused),
        "like": [
            {"model": near.model, "state": near.status.state, "prices": _plain_prices(near)}
            for near in view.like
        ],
        "yours": {"calls": calls, "cost": cost},
        "at": rfc3339(view.at_ms),
    }


def _group_to_plain(place: GroupState) -> dict[str, Any]:
    since = place.offer.status.since_ms if place.offer else None
    return {
        "name": place.group.name,
        "multiplier": multiplier(place.group),
        "state": place.state,
        "since": rfc3339(since) if since else None,
        "prices": _plain_prices(place.offer) if place.offer else None,
    }


def _plain_prices(offer: Offer) -> dict[str, str | None] | None:
    return offer.price_table(offer.prices.plain) if offer.prices else None


class OneModelApi(Api):
    """GET /api/models/NAME."""

    async def get(self, name: str) -> None:
        group = self.get_query_argument("group", "")
        view = await self.store(load_model, self.me, name, group)
        self.answer(model_to_plain(view))
