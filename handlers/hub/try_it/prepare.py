"""The preparation of a call of Try it: its settings from a form or JSON, the key, the model and its
entry.

Only reads. The calls are made in try_it.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import peewee

from adapters.family.traits import ALL_EFFORTS, Traits
from adapters.registry import LOSSES
from handlers.hub.keys.keys import REVOKED, WORKING, state_of
from handlers.hub.web.base import invalid
from handlers.hub.web.formats import UNKNOWN
from operations.chat import Chat, ChatTurn, encode_chat
from operations.client_settings import SampleRequest
from operations.model_facts import traits_at
from store.channels.offers import Offer, Offering, load_offering
from store.channels.serving import NATIVE
from store.channels.status import AVAILABLE, DEGRADED
from store.hub import own_keys
from store.hub.own_keys import OwnKey
from store.money import subscriptions, wallet
from store.values.ids import now_ms
from store.values.pricing import format_multiplier

MAX_TOKENS, MAX_TOKENS_MAX = 1024, 1_000_000
MAX_TEMPERATURE = 2.0
MAX_TEXT_CHARS = 400_000
TEXTS = ("key", "model", "with", "entry", "system", "effort", "further", "max_tokens")
NUMBERS = ("temperature", "top_p")
SWITCHES = ("stream", "search")


@dataclass(frozen=True, slots=True)
class TrySettings:
    """The settings of a call. Empty texts and None are not set. `other`: the second model of a
    comparison; `further`: additional fields as JSON."""

    key: str = ""
    model: str = ""
    other: str = ""
    entry: str = ""
    system: str = ""
    max_tokens: str = str(MAX_TOKENS)
    temperature: float | None = None
    top_p: float | None = None
    effort: str = ""
    stream: bool = True
    search: bool = False
    further: str = ""

    def plain(self) -> "TrySettings":
        """Return the settings without those that a model may refuse."""
        return replace(self, temperature=None, top_p=None, effort="", search=False, further="")

    def chat(self, model: str, turns: Sequence[ChatTurn]) -> Chat:
        """Return the conversation with a model. Raises Failure for an invalid setting."""
        if self.effort and self.effort not in ALL_EFFORTS:
            raise invalid("effort", f"effort is one of {', '.join(ALL_EFFORTS)}")
        for name, value, most in (
            ("temperature", self.temperature, MAX_TEMPERATURE),
            ("top_p", self.top_p, 1.0),
        ):
            if value is not None and not 0 <= value <= most:
                raise invalid(name, f"{name} is from 0 to {most:g}")
        if sum(len(turn.text) for turn in turns) + len(self.system) > MAX_TEXT_CHARS:
            raise invalid("prompt", f"the conversation is longer than {MAX_TEXT_CHARS} characters")
        return Chat(
            model,
            turns,
            system=self.system,
            max_tokens=self._bound(),
            temperature=self.temperature,
            top_p=self.top_p,
            effort=cast(Any, self.effort or None),
            stream=self.stream,
            search=self.search,
            further=self._fields(),
        )

    def _bound(self) -> int | None:
        text = self.max_tokens.strip()
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_TOKENS_MAX):
            raise invalid("max_tokens", f"the longest answer is 1 to {MAX_TOKENS_MAX} tokens")
        return int(text)

    def _fields(self) -> dict[str, Any]:
        if not self.further.strip():
            return {}
        try:
            fields = json.loads(self.further)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise invalid("further", 'further fields are a JSON object, like {"seed": 7}')
        return fields


def settings_of(fields: Mapping[str, Any]) -> TrySettings:
    """Return the settings in a JSON body. Raises Failure for a field of the wrong type."""
    chosen: dict[str, Any] = {}
    for name, kinds in (
        *((name, (str,)) for name in TEXTS),
        *((name, (int, float)) for name in NUMBERS),
        *((name, (bool,)) for name in SWITCHES),
    ):
        value = fields.get(name)
        if name == "max_tokens" and type(value) is int:
            value = str(value)
        if name == "further" and isinstance(value, dict):
            value = json.dumps(value)
        if value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise invalid(name, f"{name} has the wrong type")
        chosen["other" if name == "with" else name] = value
    return TrySettings(**chosen)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model on the page: its offer, and how it is called at the chosen entry."""

    offer: Offer
    entry: str
    traits: Traits
    takes_search: bool
    group_searches: bool

    @property
    def native(self) -> bool:
        """Return whether the entry is native to the model."""
        return self.offer.entries.get(self.entry) == NATIVE

    @property
    def efforts(self) -> Sequence[str]:
        """Return the reasoning levels that the model accepts."""
        return () if self.traits.thinking == "none" else self.traits.efforts

    def price(self, meter: str) -> str | None:
        """Return the price of a meter in the key's group."""
        return self.offer.price(meter)

    def price_text(self, meter: str) -> str:
        """Return the price with at least two decimals, or "–" without a price."""
        price = self.price(meter)
        whole, _, fraction = (price or "").partition(".")
        return f"{whole}.{fraction:0<2}" if price else UNKNOWN


@dataclass(frozen=True, slots=True)
class Payer:
    """The payer of the next call: a plan, or "" for the wallet; and the money left."""

    plan: str
    left_nanos: int


@dataclass(frozen=True, slots=True)
class TryView:
    """The choices of the page. `key` None: no key works; `stopped`: how many of these are not
    revoked; `model` None: the key's group offers none."""

    settings: TrySettings
    keys: Sequence[OwnKey]
    key: OwnKey | None = None
    payer: Payer | None = None
    offers: Sequence[Offer] = ()
    model: ModelChoice | None = None
    other: ModelChoice | None = None
    multipliers: Mapping[str, str] = field(default_factory=dict)
    stopped: int = 0

    @property
    def shown_models(self) -> Sequence[ModelChoice]:
        """Return the models to call: one, or two for a comparison."""
        return [choice for choice in (self.model, self.other) if choice is not None]

    def request(self, choice: ModelChoice, turns: Sequence[ChatTurn]) -> SampleRequest:
        """Return the request for a model. Raises Failure."""
        chat = self.settings.chat(choice.offer.model, turns)
        return encode_chat(choice.entry, chat, choice.traits)


def load_view(db: peewee.Database, user_id: str, settings: TrySettings, base_url: str) -> TryView:
    """Read the choices of a user. What is not chosen or not available is replaced by the first that
    works."""
    at_ms = now_ms()
    own = own_keys.owned(db, user_id, at_ms)
    states = [state_of(key, at_ms, base_url) for key in own]
    keys = [key for key, state in zip(own, states, strict=True) if state in WORKING]
    if not keys:
        return TryView(settings, (), stopped=len(own) - states.count(REVOKED))
    key = next((key for key in keys if key.id == settings.key), keys[0])
    world = load_offering(db, at_ms, [key.group], LOSSES, figures_of=())
    offers = world.callable_offers(key.group, key.models)
    model = _choice(world, offers, settings.model, settings.entry)
    other = None
    if settings.other:
        other = _choice(world, offers, settings.other, settings.entry, unlike=model)
    chosen = replace(
        settings,
        key=key.id,
        model=model.offer.model if model else "",
        other=other.offer.model if other else "",
        entry=model.entry if model else "",
    )
    return TryView(
        settings=chosen,
        keys=keys,
        key=key,
        payer=_payer(db, user_id, at_ms),
        offers=offers,
        model=model,
        other=other,
        multipliers={key.group: format_multiplier(key.multiplier_ppm) for key in keys},
    )


def _payer(db: peewee.Database, user_id: str, at_ms: int) -> Payer:
    payers = subscriptions.payers_of(db, user_id, at_ms)
    left = {held.plan: held.left_nanos for held in payers.subscriptions}
    for name in payers.order:
        if left.get(name):
            return Payer(name, left[name])
    return Payer("", wallet.balances(db, [user_id]).get(user_id, 0))


def _choice(
    world: Offering,
    offers: Sequence[Offer],
    name: str,
    entry: str,
    unlike: ModelChoice | None = None,
) -> ModelChoice | None:
    """Return the model with a name, or the first that is available. `unlike`: a model to avoid."""
    if not offers:
        return None
    first = unlike.offer.model if unlike else None
    ready = [offer for offer in offers if offer.status.state in (AVAILABLE, DEGRADED)]
    rest = [offer for offer in (*ready, *offers) if offer.model != first]
    offer = next((offer for offer in offers if offer.model == name), None) or (rest or offers)[0]
    natively = [family for family, how in offer.entries.items() if how == NATIVE]
    if entry not in offer.entries:
        entry = next(iter((*natively, *offer.entries)))
    traits = traits_at(world, offer, entry)
    return ModelChoice(
        offer,
        entry,
        traits,
        _takes_search(entry, traits),
        "web_search" in offer.group.features,
    )


def _takes_search(entry: str, traits: Traits) -> bool:
    bodies = [
        encode_chat(entry, Chat("m", [ChatTurn("user", "?")], search=search), traits).body
        for search in (False, True)
    ]
    return bodies[0] != bodies[1]
