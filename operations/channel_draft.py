"""A new channel before it is saved: its account, the models chosen from the vendor's list with
their prices, their tests, and what the operator pays. A draft serves no calls.

The fields of the account are checked like those of an edit over HTTP, whoever makes the draft.
Prices are kept as the texts that were typed until the draft is saved.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import peewee

from adapters.registry import FAMILY_NAMES, VENDORS, address_of
from adapters.vendor_cards import CARDS, LISTS
from handlers.relay.upstream.addressing import Target
from operations.draft_models import (
    CHAT,
    NEEDED,
    DraftModel,
    price_problems,
    problems,
    propose,
    public_names,
)
from operations.edits import editor
from store.admin import listing
from store.admin.document import Entry
from store.admin.edits import entry_of_values, faults_by_field
from store.admin.kinds import DEFAULT_GROUP, PPM_PER_ONE
from store.admin.objects import Sealing
from store.admin.plan import origin_of
from store.catalog.catalog import Channel, Route
from store.db.database import transaction
from store.hub import drafts
from store.values.channel_fields import body_edits
from store.values.cipher import Cipher
from store.values.errors import Conflict, NotFound, Refused
from store.values.pricing import cost_nanos, format_money, parse_price, plain_rate
from store.values.usage import Usage

MAX_MODELS = 1000
MAX_CHOSEN = 25  # chosen at first, and in one test: each is a real call
SECRETS = ("keys", "extra_headers", "proxy")
DEMO = "demo"
PAYS = ("factor", "models", "unknown")


@dataclass(slots=True)
class Draft:
    """A new channel. `channel`: the unsealed fields of its account as in the document; `pay`: one
    of PAYS; `status`, `error`: the vendor's answer to the request for its list."""

    channel: dict[str, Any]
    models: list[DraftModel] = field(default_factory=list)
    pay: str = PAYS[0]
    factor: str = "1"
    priority: int = 0
    weight: int = 1
    status: int | None = None
    error: str | None = None

    @property
    def chosen(self) -> list[DraftModel]:
        """Return the models that would be saved."""
        return [model for model in self.models if model.chosen]

    def model(self, upstream: str) -> DraftModel:
        """Return a model by its name at the vendor. Raises Refused."""
        for model in self.models:
            if model.upstream == upstream:
                return model
        raise Refused([f'the draft has no model "{upstream}"'], ["models"])


def of_content(content: drafts.Content) -> Draft:
    """Return the draft that was stored as JSON."""
    models = [DraftModel(**model) for model in content["models"]]
    return Draft(**{**content, "models": models})


def load(db: peewee.Database, cipher: Cipher, owner: str) -> Draft | None:
    """Return the draft of a session or token, or None."""
    content = drafts.load(db, cipher, owner)
    return None if content is None else of_content(content)


def edit(
    db: peewee.Database, cipher: Cipher, owner: str, change: Callable[[Draft | None], Draft | None]
) -> Draft:
    """Change a draft. `change` gets the stored one or None, and returns the new one, or None to
    keep it. Raises NotFound if there is no draft afterwards, and whatever `change` raises."""
    stored: list[Draft] = []

    def work(content: drafts.Content | None) -> drafts.Content:
        before = None if content is None else of_content(content)
        after = change(before) or before
        if after is None:
            raise NotFound("there is no draft of a channel, or it is older than a day")
        stored[:] = [after]
        return asdict(after)

    drafts.change(db, cipher, owner, work)
    return stored[0]


# ---- the account


def check_account(
    db: peewee.Database,
    sealing: Sealing,
    actor: str,
    before: Draft | None,
    values: Mapping[str, Any],
) -> Draft:
    """Return the draft with new fields of its account, checked like those of a channel that is
    created over HTTP. Secrets that are not among them are kept if requests go to the same place.
    Raises Conflict, or Refused with the fields of the faults."""
    channel = dict(values)
    if before is not None and before.channel.get("vendor") != DEMO:  # its key is not kept
        channel = _with_secrets(before.channel, channel)
    with faults_by_field():
        entry = entry_of_values("channel", channel, None)
        name = entry.identity[0]
        if listing.existing(db, "channel", [name]):
            raise Conflict(f'channel "{name}" exists')
        groups = _missing_groups(db, channel.get("groups", ()))
        editor(db, sealing, actor, remote=True).apply([*groups, entry], dry_run=True)
    if before is None or any(before.channel.get(f) != channel.get(f) for f in ("vendor", "family")):
        return Draft(channel)
    before.channel = channel
    return before


def _with_secrets(before: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    stored = {name: before[name] for name in SECRETS if before.get(name) and name not in values}
    moved = [
        name
        for name in ("base_url", "proxy")
        if name in values and origin_of(values[name]) != origin_of(before.get(name))
    ]
    secret = [name for name in ("keys", "extra_headers") if name in stored]
    if moved and secret:
        message = f"{' and '.join(moved)} would send stored secrets to another place; give"
        raise Refused([f"{message} {' and '.join(secret)} again"], ["keys"])
    return {**stored, **values}


def _missing_groups(db: peewee.Database, names: Sequence[str]) -> list[Entry]:
    """Return the default group if the names include it and the gateway has no group yet."""
    if DEFAULT_GROUP not in names or listing.names(db, "group", 1):
        return []
    return [entry_of_values("group", {"name": DEFAULT_GROUP}, None)]


def channel_of(draft: Draft) -> Channel:
    """Return the channel for the gateway's own calls, with the chosen models by their names at the
    vendor. Its proxy is guarded like one that was set over HTTP. Raises Refused."""
    entry = entry_of_values("channel", draft.channel, None)
    fields = dict(entry.fields)
    proxy = fields.get("proxy")
    return Channel(
        id="",
        name=entry.identity[0],
        vendor=fields["vendor"],
        family=fields["family"],
        base_url=fields["base_url"],
        keys=tuple(fields.get("keys", ())),
        groups=frozenset(),
        models={model.upstream: model.upstream for model in draft.models},
        priority=0,
        weight=1,
        enabled=False,
        extra_headers=fields.get("extra_headers", {}),
        remove_headers=frozenset(fields.get("remove_headers", ())),
        body=body_edits(fields.get("body")),
        options=fields.get("options", {}),
        route=Route(proxy, None, True) if proxy else None,
    )


def target_of(draft: Draft, upstream: str, *, stream: bool) -> Target:
    """Return the target for the test of a model, by its name at the vendor. Raises Refused."""
    draft.model(upstream)
    channel = channel_of(draft)
    return Target(channel, upstream, channel.keys[0] if channel.keys else "", stream)


@dataclass(frozen=True, slots=True)
class VendorChoice:
    """A vendor to choose. `families` in the order of lists; `paths`: by family, the path of calls
    after a base URL without a version; `any_version`: that path is used unless the base URL has a
    version."""

    name: str
    label: str
    monogram: str
    list: str
    base_url: str
    keys_url: str
    families: Sequence[str]
    paths: Mapping[str, str]
    any_version: bool


def vendors() -> list[VendorChoice]:
    """Return all vendors, list by list."""
    choices = []
    for name, card in sorted(CARDS.items(), key=lambda item: LISTS.index(item[1].listed)):
        row = VENDORS[name]
        families = [family for family in FAMILY_NAMES if family in row.families]
        paths = {family: address_of(name, family, "") for family in families}
        choices.append(
            VendorChoice(
                *(name, card.label, card.monogram, card.listed, card.base_url, card.keys_url),
                *(families, paths, row.any_version),
            )
        )
    return choices


# ---- models


def existing_names(db: peewee.Database, draft: Draft) -> set[str]:
    """Return the draft's public names that existing models have."""
    return listing.existing(db, "model", [model.name for model in draft.models])


def take_names(db: peewee.Database, draft: Draft, names: Sequence[str], currency: str) -> None:
    """Set the models of the draft to the first MAX_MODELS of a list, keeping what was chosen and
    typed before. If it had no models, choose the first MAX_CHOSEN chat models with a price."""
    names = list(dict.fromkeys(names))[:MAX_MODELS]
    stored = {model.upstream: model for model in draft.models}
    candidates = [candidate for name in names for candidate in public_names(name)]
    existing = listing.existing(db, "model", candidates)
    draft.models = [
        stored.get(name) or propose(draft.channel["vendor"], name, existing, currency)
        for name in names
    ]
    draft.models.sort(key=lambda model: (model.kind != CHAT, model.upstream))
    if not stored:
        priced = (m for m in draft.models if m.kind == CHAT and (m.prices or m.name in existing))
        for model, _ in zip(priced, range(MAX_CHOSEN), strict=False):
            model.chosen = True


def has_endpoint(draft: Draft, model: DraftModel) -> bool:
    """Return whether the vendor has the endpoint that a model needs, chat included."""
    return model.kind == CHAT or model.kind in VENDORS[draft.channel["vendor"]].endpoints


# ---- tests and the end


def note_test(draft: Draft, upstream: str, test: dict[str, Any], usage: Usage | None) -> None:
    """Store the result of a model's test (fields of `channel_test.to_plain`), with its cost at the
    draft's prices. Unselect a model that failed."""
    model = draft.model(upstream)
    if usage is not None and not price_problems(model.prices):
        prices = {name: parse_price(text) for name, text in model.prices.items() if text}
        test["cost"] = format_money(cost_nanos(usage, plain_rate(prices), PPM_PER_ONE))
    model.test = test
    model.chosen = bool(test["ok"])


def margin(draft: Draft, multiplier: str) -> float | None:
    """Return the margin of a group with a multiplier. It is exact for a factor of the list price;
    for costs of each model it is that of one token in and one out of each. None if it is unknown.
    """
    by = float(multiplier)
    if draft.pay == "factor":
        share = float(draft.factor)
    else:
        pairs = [
            (float(model.cost[cell]), float(model.prices.get(cell) or 0))
            for model in (draft.chosen if draft.pay == "models" else ())
            for cell in NEEDED
            if model.cost.get(cell)
        ]
        if not sum(price for _, price in pairs):
            return None
        share = sum(cost for cost, _ in pairs) / sum(price for _, price in pairs)
    return 1 - share / by if by else None


def make(db: peewee.Database, sealing: Sealing, actor: str, draft: Draft, *, enabled: bool) -> str:
    """Create the channel with the chosen models, and those models that do not exist yet, in one
    transaction. Return its name. Raises Refused, Conflict."""
    existing = existing_names(db, draft)
    if not draft.chosen:
        raise Refused(["choose at least one model"], ["models"])
    if wrong := problems(draft.chosen, existing):
        name, own = next(iter(wrong.items()))
        cell, text = next(iter(own.items()))
        raise Refused([f"{name}: {text or f'{cell} has no price'}"], ["models"])
    with faults_by_field():
        models = [
            entry_of_values("model", {"name": model.name, **model.price()}, None)
            for model in draft.chosen
            if model.name not in existing
        ]
        groups = _missing_groups(db, draft.channel.get("groups", ()))
    work = editor(db, sealing, actor, remote=True)

    def create() -> None:
        work.apply([*groups, *models])
        work.create("channel", None, {**draft.channel, **_final_fields(draft), "enabled": enabled})

    transaction(db, create)
    return str(draft.channel["name"])


def _final_fields(draft: Draft) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "models": {model.name: model.upstream for model in draft.chosen},
        "priority": draft.priority,
        "weight": draft.weight,
    }
    if draft.pay == "factor":
        fields["cost_factor"] = draft.factor
    elif draft.pay == "models":
        fields["cost"] = {
            model.name: {name: text for name, text in model.cost.items() if text}
            for model in draft.chosen
            if any(model.cost.values())
        }
    return fields


def to_plain(draft: Draft) -> dict[str, Any]:
    """Return a draft as JSON with its secrets masked."""
    channel = {name: value for name, value in draft.channel.items() if name not in SECRETS}
    counts = {name: len(draft.channel[name]) for name in SECRETS[:2] if draft.channel.get(name)}
    models = [
        {
            **{"upstream": model.upstream, "name": model.name, "chosen": model.chosen},
            **{"kind": model.kind, "price": model.prices, "listed": model.listed or None},
            **{"cost": model.cost or None, "test": model.test},
        }
        for model in draft.models
    ]
    return {
        "channel": channel,
        "secrets": {**counts, **({"proxy": 1} if draft.channel.get("proxy") else {})},
        "list": {"ok": draft.error is None, "status": draft.status, "error": draft.error},
        "models": models,
        "pay": draft.pay,
        "cost_factor": draft.factor,
        "priority": draft.priority,
        "weight": draft.weight,
    }
