"""Channel status: each model in the groups of a user, its prices, how its calls went, and why it is
not available; names that were asked for and that nobody offers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode

import peewee

from adapters.registry import LOSSES
from handlers.hub.overview.asked import ASKED_DAYS, NOT_FOUND, AskedFor, asked_for
from handlers.hub.overview.reasons import Reason, reasons_of
from handlers.hub.web.base import Page
from handlers.hub.web.formats import UNKNOWN, code_word, is_upstream_fault, money, seconds
from operations.availability import Availability, Why
from store.catalog.catalog import Group
from store.channels import offers
from store.channels.entries import NATIVE
from store.channels.figures import Figures
from store.channels.offers import Offer
from store.channels.status import AVAILABLE, DEGRADED, DISABLED, DOWN
from store.channels.uptime import Slot, Uptime
from store.db.database import database_ms
from store.hub import membership, own_keys
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.errors import NotFound
from store.values.ids import DAY_MS, HOUR_MS
from store.values.pricing import format_multiplier
from store.values.usage_record import OUTCOMES

PAGE_MODELS = 25
UPSTREAMS_FAULT = ",".join(one for one in OUTCOMES if is_upstream_fault(one))
GROUP_COLUMNS = 5  # of the chosen group and others; the rest is told when it is chosen
ASKED_ROWS = 20
NOT_OFFERED = "not_offered"
OFFERED = (AVAILABLE, DEGRADED, DOWN, DISABLED)
STATES = (*OFFERED, NOT_OFFERED)
SHAPES = {AVAILABLE: "ok", DEGRADED: "warn", DOWN: "bad", DISABLED: "idle", NOT_OFFERED: "none"}
MOST_SEGMENTS = 6  # groups side by side; more are a menu
LEAST_CALLS = 20  # of a percentile
POOR_SHARE = 0.95
PRICE_DECIMALS = 3
LEGEND = (
    *(("good", 18, "good"), ("good", 14.4, "ok"), ("warn", 10.8, "warn"), ("bad", 5.4, "bad")),
    *(("probes", 18, "probes"), ("foot", 2, "foot")),
)
"""Kinds of bars, their heights, and their words."""
ENTRIES = ("chat_completions", "responses", "messages", "generate_content")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the page is asked for: the fields of its address."""

    group: str = ""
    text: str = ""
    state: str = ""
    entry: str = ""
    after: str = ""

    def chips(self) -> dict[str, str]:
        """Fields that narrow the rows."""
        return {name: getattr(self, name) for name in ("group", "text", "state", "entry")}


Counts = list[tuple[int, int, int]]
"""Of each span: ok, failed, probes."""


def _counts(slots: Sequence[Slot]) -> Counts:
    return [(slot.ok, slot.failed, slot.probes) for slot in slots]


@dataclass(frozen=True, slots=True)
class Row:
    """A model: its state in each group that is shown; `offer` None: the chosen one has it not.
    `reasons`: sentences that say why it is not available, names of words with their values."""

    model: str
    state: str
    states: Sequence[str]
    why: Why
    offer: Offer | None
    day: Figures
    reasons: Sequence[Reason] = ()

    @property
    def hours(self) -> Counts:
        """Of the 24 hours."""
        return _counts(self._uptime.hours)

    @property
    def days(self) -> Counts:
        """Of the 30 days."""
        return _counts(self._uptime.days)

    @property
    def hour_times(self) -> tuple[int, int]:
        """When the first hour begins, and how long one is (ms)."""
        return self._uptime.hours[0].at_s * 1000, HOUR_MS

    @property
    def day_times(self) -> tuple[int, int]:
        """The same of days."""
        return self._uptime.days[0].at_s * 1000, DAY_MS

    @property
    def _uptime(self) -> Uptime:
        assert self.offer is not None and self.offer.uptime is not None
        return self.offer.uptime


@dataclass(frozen=True, slots=True)
class View:
    """All that the page shows, at one moment."""

    at_ms: int
    asked: Asked
    groups: Sequence[Group]
    chosen: Group | None = None
    columns: Sequence[Group] = ()
    rows: Sequence[Row] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    found: int = 0
    next: str = ""
    refused: Sequence[AskedFor] = ()
    nothing: Why | None = None  # why no model fits the text

    def link(self, **changes: str) -> str:
        """The address of this page with some fields changed, from its first row on."""
        fields = {**self.asked.chips(), "after": "", **changes}
        return "/status?" + urlencode({name: value for name, value in fields.items() if value})

    @property
    def feed(self) -> str:
        """The same as JSON."""
        fields = {**self.asked.chips(), "group": self.chosen.name if self.chosen else ""}
        fields["state"] = "" if self.asked.state == NOT_OFFERED else self.asked.state
        return "/api/status?" + urlencode({name: value for name, value in fields.items() if value})

    def usage(self, model: str, days: int = 1, *, failed: bool = False) -> str:
        """Where the calls of a model in the chosen group are."""
        assert self.chosen is not None
        fields = {"model": model, "group": self.chosen.name}
        fields["since"] = "24h" if days == 1 else f"{days}d"
        return "/usage?" + urlencode(fields | ({"outcome": UPSTREAMS_FAULT} if failed else {}))

    def multiplier_of(self, group: str) -> str:
        """Of a group by name."""
        [found] = [one for one in self.groups if one.name == group]
        return format_multiplier(found.multiplier_ppm)


def load(db: peewee.Database, me: SignedIn, asked: Asked) -> View:
    """The page of a user. Raises NotFound: the group is none of the user's."""
    at_ms = database_ms(db)
    names = membership.groups_of(db, me.user_id, admin=me.admin)
    if asked.group and asked.group not in names:
        raise NotFound(f"there is no group {asked.group}")
    if not names:
        return View(at_ms, asked, ())
    keys = own_keys.owned(db, me.user_id, at_ms)
    chosen = asked.group or _usual(keys, names)
    world = offers.load_world(db, at_ms, names, LOSSES, figures_of=[chosen])
    able = Availability(world)
    groups = [world.groups[name] for name in names]
    columns = _columns(groups, chosen)
    offered = {one.model: one for one in world.offers(chosen)}
    models = sorted({status.model for status in world.statuses})
    states = {model: _state(able, chosen, model) for model in models}
    fit = [model for model in models if _fits(asked, states[model], model, offered.get(model))]
    page = [model for model in fit if model > asked.after][: PAGE_MODELS + 1]
    shown = page[:PAGE_MODELS]
    barred = offers.with_uptime(db, world, [offered[one] for one in shown if one in offered])
    with_bars = {one.model: one for one in barred}
    rows = [_row(able, model, at_ms, (chosen, columns), with_bars.get(model)) for model in shown]
    return View(
        at_ms=at_ms,
        asked=asked,
        groups=groups,
        chosen=world.groups[chosen],
        columns=columns,
        rows=rows,
        counts=Counter(states.values()),
        found=len(fit),
        next=shown[-1] if len(page) > PAGE_MODELS else "",
        nothing=able.why(chosen, asked.text) if asked.text and not fit else None,
        refused=asked_for(db, me.user, {key.id: key for key in keys}, able, at_ms, most=ASKED_ROWS),
    )


def _usual(keys: Sequence[OwnKey], groups: Sequence[str]) -> str:
    """The group of most keys that work, else the first one."""
    used = Counter(key.group for key in keys if key.enabled and key.revoked_ms is None)
    return max(groups, key=lambda name: used[name])


def _columns(groups: Sequence[Group], chosen: str) -> list[Group]:
    """The chosen group among others, in their order."""
    others = [one for one in groups if one.name != chosen][: GROUP_COLUMNS - 1]
    return [one for one in groups if one.name == chosen or one in others]


def _state(able: Availability, group: str, model: str) -> str:
    status = able.status(group, model)
    return NOT_OFFERED if status is None else status.state


def _fits(asked: Asked, state: str, model: str, offer: Offer | None) -> bool:
    if asked.text and asked.text.lower() not in model.lower():
        return False
    if asked.state and asked.state != state:
        return False
    return not asked.entry or (offer is not None and asked.entry in offer.entries)


def _row(
    able: Availability,
    model: str,
    at_ms: int,
    where: tuple[str, Sequence[Group]],
    offer: Offer | None,
) -> Row:
    chosen, columns = where
    states = [_state(able, group.name, model) for group in columns]
    why = able.why(chosen, model)
    day = Figures() if offer is None else offer.status.windows()["24h"]
    reasons = [] if offer is None else reasons_of(offer.status, why, day, at_ms)
    return Row(model, _state(able, chosen, model), states, why, offer, day, reasons)


class EntryWords(NamedTuple):
    """The native entries of a model, how many others there are, and what these are."""

    native: list[str]
    translated: int
    title: str


class Status(Page):
    """/status."""

    async def get(self) -> None:
        given = {name: self.get_query_argument(name, "") for name in Asked.__slots__}
        view = await self.store(load, self.signed_in, Asked(**given))
        self.show(
            "overview/status.html",
            view=view,
            entries_of=self._entries,
            refused_query=refused_query,
            spoken=self._spoken,
            **PARTS,
        )

    def _spoken(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of a sentence, with the words of an error in the place of its code."""
        if "error" not in values:
            return {**values}
        return {**values, "error": code_word(self.words, values["error"])}

    def _entries(self, offer: Offer) -> EntryWords:
        """By which entries a model can be called, in words."""
        native, told = [], []
        for entry, how in offer.entries.items():
            name = self.words["status.entry_" + entry]
            if how == NATIVE:
                native.append(name)
            else:
                family = how.rpartition(" ")[2]
                told.append(self.words["status.translated"].format(entry=name, family=family))
        return EntryWords(native, len(told), "; ".join(told))


def price(offer: Offer, kind: str) -> str:
    """A price after the multiplier: three decimals, or as many as it has."""
    text = offer.price(kind)
    if text is None:
        return UNKNOWN
    return money(text, PRICE_DECIMALS if len(text.partition(".")[2]) <= PRICE_DECIMALS else None)


def first_byte(day: Figures, percent: int) -> str:
    """A percentile in seconds, of enough streams."""
    return seconds(day.first_byte_ms(percent)) if day.streams >= LEAST_CALLS else UNKNOWN


def multiplier(group: Group) -> str:
    """As text."""
    return format_multiplier(group.multiplier_ppm)


def refused_query(one: AskedFor) -> str:
    """The refused calls of a name that was asked for."""
    fields = {"model": one.model, "key_id": one.key.id, "error_code": NOT_FOUND}
    return urlencode(fields | {"since": f"{ASKED_DAYS}d"})


PARTS: Mapping[str, Any] = {
    **{"STATES": STATES, "SHAPES": SHAPES, "ENTRIES": ENTRIES, "PAGE_MODELS": PAGE_MODELS},
    **{"MOST_SEGMENTS": MOST_SEGMENTS, "LEAST_CALLS": LEAST_CALLS, "POOR_SHARE": POOR_SHARE},
    **{"LEGEND": LEGEND, "price": price, "first_byte": first_byte, "multiplier": multiplier},
}
"""What the template may use."""
