"""Groups, models, prices and channels as one immutable snapshot that a worker replaces as a whole.

Reading it never waits. It has upstream keys in clear, in memory only; no repr shows them. Loading
is blocking and must run in a thread.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import peewee

from store.catalog.keys import KeyEntry
from store.catalog.suspended_keys import KeyName, SuspendedKey, load_suspended_keys
from store.db.base_url import stored_base_url
from store.db.changes import CATALOG, Changes, current_version, read_changes
from store.db.database import database_ms, in_snapshot, lead_of, select_rows
from store.db.tables import catalog as tables
from store.values.channel_fields import Edit, body_edits
from store.values.cipher import Cipher, Unreadable
from store.values.features import DEFAULT_FEATURES, allowed_features
from store.values.meters import COLUMN_METERS
from store.values.pricing import CONDITIONS, Prices, Rate, conditional_rate, plain_rate
from store.values.sealed_fields import open_headers, open_proxy

EVERYTHING = "*"

Losses = Mapping[tuple[str, str], int]
"""(family of a call, family of a channel) -> the amount that the translation loses; channels with
less loss come first. Pairs that are missing cannot be translated."""
NOTHING_TRANSLATED: Losses = {}

Post = Callable[[Callable[[], None]], None]


@dataclass(frozen=True, slots=True)
class Group:
    """The rights of keys of a group. `models` None: all. Limits of 0: none. `translate`: calls may
    use channels of another family. `features`: those that calls may request."""

    name: str
    multiplier_ppm: int
    models: frozenset[str] | None
    entries: frozenset[str]
    disabled: bool
    rpm: int = 0
    tpm: int = 0
    concurrency: int = 0
    translate: bool = True
    features: frozenset[str] = allowed_features(DEFAULT_FEATURES)
    limited: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limited", bool(self.rpm or self.tpm or self.concurrency))


@dataclass(frozen=True, slots=True)
class Model:
    """A public model. `prices` are (effective_ms, Prices) in order of time."""

    name: str
    context_tokens: int | None
    max_output_tokens: int | None
    disabled: bool
    created_ms: int
    prices: tuple[tuple[int, Prices], ...]

    def prices_at(self, now_ms: int) -> Prices | None:
        """Return the prices in force, or None if the model has none at all. Before the first prices
        take effect, return those, so that a model does not vanish because a clock is slightly
        behind the operator's."""
        for effective_ms, prices in reversed(self.prices):
            if effective_ms <= now_ms:
                return prices
        return self.prices[0][1] if self.prices else None


@dataclass(frozen=True, slots=True)
class Route:
    """The route to an upstream: by a proxy (its URL, with the login), with the certificates of a
    file instead of the system's. None: the default. `guarded`: the proxy must not be at a private
    address if `upstream.allow_private` is false."""

    proxy: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Channel:
    """One upstream account. `models` maps public to upstream names; `keys` may be empty.

    `fingerprints` identify the keys, in their order, for the store and other processes. Limits of
    0: none. `key_rpm` and the like are limits of each upstream key. `extra_headers`: name in lower
    case -> value, sent with each request. `translate`: it also takes calls of the families in
    `losses`, each with the amount lost. `options`: the abilities of its models where they differ
    from the known ones. `shared_ids`: ids, or prefixes of ids with a `*`, of stored objects of its
    account that all its users may name. The operator pays `cost_factor_ppm` of the list price, or
    for some models, by public name, the prices in `cost`. `body`: edits of its requests.
    `remove_headers`: lower-case names of headers to remove from them. Time-outs and
    `retry_timeouts` of None: those of the settings.
    """

    id: str
    name: str
    vendor: str
    family: str
    base_url: str
    keys: tuple[str, ...] = field(repr=False)
    groups: frozenset[str]
    models: Mapping[str, str]
    priority: int
    weight: int
    enabled: bool
    rpm: int = 0
    tpm: int = 0
    concurrency: int = 0
    fingerprints: tuple[str, ...] = field(default=(), repr=False)
    key_rpm: int = 0
    key_tpm: int = 0
    key_concurrency: int = 0
    limited: bool = field(init=False)
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    route: Route | None = None
    draining: bool = False
    translate: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    shared_ids: tuple[str, ...] = ()
    cost_factor_ppm: int | None = None
    cost: Mapping[str, Rate] = field(default_factory=dict)
    has_cost: bool = field(init=False)
    body: tuple[Edit, ...] = ()
    remove_headers: frozenset[str] = frozenset()
    first_byte_timeout_s: int | None = None
    idle_timeout_s: int | None = None
    model_times: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    retry_timeouts: bool | None = None
    has_times: bool = field(init=False)
    losses: Mapping[str, int] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        own = self.rpm or self.tpm or self.concurrency
        of_keys = self.key_rpm or self.key_tpm or self.key_concurrency
        object.__setattr__(self, "limited", bool(own or of_keys))
        object.__setattr__(self, "has_cost", self.cost_factor_ppm is not None or bool(self.cost))
        times = self.first_byte_timeout_s or self.idle_timeout_s or self.model_times
        object.__setattr__(self, "has_times", bool(times))

    def times_of(
        self, model: str, first_byte_timeout_s: int, idle_timeout_s: int
    ) -> tuple[int, int]:
        """Return the time-outs of a model, by its public name: its own, else the channel's, else
        those of the settings."""
        own = self.model_times.get(model, {})
        first_byte_s = own.get("first_byte_timeout_s") or self.first_byte_timeout_s
        idle_s = own.get("idle_timeout_s") or self.idle_timeout_s
        return first_byte_s or first_byte_timeout_s, idle_s or idle_timeout_s

    def leads_elsewhere(self, before: "Channel") -> bool:
        """Return whether requests go to another address, or by another route, than before a
        change."""
        now = (self.vendor, self.base_url, self.route, self.extra_headers)
        return now != (before.vendor, before.base_url, before.route, before.extra_headers)

    def answers(self, family: str) -> bool:
        """Return whether the channel serves calls of a family: its own, or one that can be
        translated to it."""
        return self.family == family or (self.translate and family in self.losses)

    def rank(self, family: str) -> tuple[int, int]:
        """Return the channel's rank among the candidates of a call of a family: native ones first,
        then by fewest losses, then by priority. Lower is better. Channels of the same rank share
        the calls by weight."""
        lost = 0 if self.family == family else 1 + self.losses.get(family, 0)
        return lost, -self.priority

    def shares(self, stored_id: str) -> bool:
        """Return whether all the channel's users may name an object stored by its account."""
        return any(
            stored_id.startswith(pattern[:-1]) if pattern.endswith("*") else stored_id == pattern
            for pattern in self.shared_ids
        )

    @property
    def takes_calls(self) -> bool:
        """Return whether the channel takes new calls, other than those about what it has stored."""
        return self.enabled and not self.draining


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The catalogue at one time. `version` is the change log's; `faults` lists what was left out.

    `read_ms` is that time by the database's clock, which `suspended_keys` uses, too. Times of
    prices are by the clock of this process.
    """

    version: int
    groups: Mapping[str, Group]
    models: Mapping[str, Model]
    channels: tuple[Channel, ...]
    faults: tuple[str, ...] = ()
    suspended_keys: Mapping[KeyName, SuspendedKey] = field(default_factory=dict)
    read_ms: int = 0
    base_url: str = ""  # {base_url} as set in the Hub
    _memo: dict[tuple[str, str, str], tuple[Channel, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )
    _serving: Mapping[str, Sequence[Channel]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Built here, in the thread that loads it, since lists look up every model.
        serving: dict[str, list[Channel]] = {}
        for channel in self.channels:
            if channel.enabled:
                for model in channel.models:
                    serving.setdefault(model, []).append(channel)
        object.__setattr__(self, "_serving", serving)

    def candidates(self, group: str, model: str, family: str) -> tuple[Channel, ...]:
        """Return the channels that may take a call for a model of a group in a family, native or
        translated, best rank first. Empty if the group may not use the model, or if the model is
        disabled or has no prices."""
        key = (group, model, family)
        channels = self._memo.get(key)
        if channels is None:
            if not self.permits(group, model):
                # Not cached, since clients may send any name.
                return ()
            channels = self._memo[key] = tuple(c for c in self._search(key) if c.takes_calls)
        return channels

    def capable(
        self, group: str, model: str, rule: "Rule", *, draining: bool = False
    ) -> tuple[Channel, ...]:
        """Return the channels that may take a call for a model of a group at an endpoint beside
        chat, best rank first. `draining` includes those that take no new calls."""
        key = (group, model, rule.key + "/" if draining else rule.key)
        channels = self._memo.get(key)
        if channels is None:
            if not self.permits(group, model):
                return ()
            translate = self.groups[group].translate
            fit = [
                channel
                for channel in self._serving.get(model, ())
                if group in channel.groups
                and (draining or channel.takes_calls)
                and rule.takes(channel, translate=translate)
            ]
            family = rule.key.partition("/")[0]
            fit.sort(key=lambda channel: (channel.rank(family), channel.name))
            channels = self._memo[key] = tuple(fit)
        return channels

    def serves(self, group: str, model: str, family: str) -> bool:
        """Return whether the model is offered: an enabled channel has it, even a draining one."""
        if self.candidates(group, model, family):
            return True
        return self.permits(group, model) and bool(self._search((group, model, family)))

    def takes(self, group: str, channel: Channel, family: str) -> bool:
        """Return whether a channel serves calls of a group in a family: its own, or one that is
        translated to it, unless the group forbids that."""
        if channel.family == family:
            return True
        stored = self.groups.get(group)
        return stored is not None and stored.translate and channel.answers(family)

    def native(self, group: str, family: str) -> tuple[Channel, ...]:
        """Return the enabled channels of a group that speak a family, whatever models they
        serve."""
        return tuple(
            channel
            for channel in self.channels
            if channel.enabled and channel.family == family and group in channel.groups
        )

    def channels_of(self, model: str) -> Sequence[Channel]:
        """Return the enabled channels of all groups that have a model."""
        return self._serving.get(model, ())

    def channel(self, channel_id: str) -> Channel | None:
        """Return the channel with an id, even a disabled one."""
        return next((channel for channel in self.channels if channel.id == channel_id), None)

    def pinned(self, channel: Channel, fingerprint: str) -> tuple[Channel, ...]:
        """Return the channel as the only candidate, with only this key, or with all keys if it was
        removed."""
        key = ("", channel.id, fingerprint)
        channels = self._memo.get(key)
        if channels is None:
            if fingerprint in channel.fingerprints:
                place = channel.fingerprints.index(fingerprint)
                keys, marks = (channel.keys[place],), (fingerprint,)
                channel = replace(channel, keys=keys, fingerprints=marks)
            elif fingerprint:
                # Not cached, since any number of keys may have been removed.
                return (channel,)
            channels = self._memo[key] = (channel,)
        return channels

    def listed(self, key: KeyEntry, family: str) -> list[Model]:
        """Return the models that this key can call now by the entry of this family, in order of
        name."""
        group = self.groups.get(key.group)
        if group is None or family not in group.entries:
            return []
        return [m for m in self._allowed(key) if self.serves(key.group, m.name, family)]

    def listed_at(self, key: KeyEntry, entry: str, rule: "Rule") -> list[Model]:
        """Return the models that this key can call now at an endpoint beside chat, in order of
        name."""
        group = self.groups.get(key.group)
        if group is None or entry not in group.entries:
            return []
        return [
            model
            for model in self._allowed(key)
            if self.capable(key.group, model.name, rule, draining=True)
        ]

    def _allowed(self, key: KeyEntry) -> list[Model]:
        names = self.models if key.models is None else key.models & self.models.keys()
        return [self.models[name] for name in sorted(names)]

    def permits(self, group_name: str, model_name: str) -> bool:
        """Return whether a group may use a model that is enabled and has prices, on any channel."""
        group, model = self.groups.get(group_name), self.models.get(model_name)
        if group is None or model is None or group.disabled or model.disabled:
            return False
        return bool(model.prices) and (group.models is None or model_name in group.models)

    def _search(self, key: tuple[str, str, str]) -> tuple[Channel, ...]:
        group, model, family = key
        fit = [
            channel
            for channel in self._serving.get(model, ())
            if group in channel.groups and self.takes(group, channel, family)
        ]
        return tuple(sorted(fit, key=lambda channel: (channel.rank(family), channel.name)))


class Rule(Protocol):
    """The rule of an endpoint: which channels can take its calls. `key` is family and name."""

    @property
    def key(self) -> str: ...

    def takes(self, channel: Channel, *, translate: bool) -> bool: ...


EMPTY = Snapshot(version=-1, groups={}, models={}, channels=())
"""The snapshot of a worker before the store was read for the first time."""


@in_snapshot
def load_snapshot(
    db: peewee.Database, cipher: Cipher, losses: Losses = NOTHING_TRANSLATED
) -> Snapshot:
    """Read everything in one snapshot. Blocking. For `losses` see Losses. Raises
    StoreUnavailable."""
    faults: list[str] = []
    at_ms = database_ms(db)
    return Snapshot(
        version=current_version(db),
        groups={group.name: group for group in load_groups(db)},
        models={model.name: model for model in load_models(db, lead_of(at_ms))},
        channels=tuple(_channels(db, cipher, losses, faults)),
        faults=tuple(faults),
        suspended_keys=load_suspended_keys(db),
        read_ms=at_ms,
        base_url=stored_base_url(db),
    )


def losses_to(family: str, losses: Losses) -> dict[str, int]:
    """Return the families whose calls channels of a family can take, each with the amount lost."""
    return {calling: lost for (calling, spoken), lost in losses.items() if spoken == family}


def load_groups(db: peewee.Database) -> list[Group]:
    """Return all groups, in the caller's transaction."""
    row = tables.Group
    query = row.select(
        *(row.name, row.multiplier_ppm, row.models, row.entries, row.disabled),
        *(row.rpm, row.tpm, row.concurrency, row.translate, row.features),
    )
    return [
        Group(
            *(name, ppm, _permitted(models), frozenset(entries), disabled, rpm, tpm, concurrency),
            *(translate, allowed_features(DEFAULT_FEATURES if words is None else words)),
        )
        for name, ppm, models, entries, disabled, rpm, tpm, concurrency, translate, words in (
            select_rows(db, query)
        )
    ]


def _permitted(models: Sequence[str]) -> frozenset[str] | None:
    return None if EVERYTHING in models else frozenset(models)


def load_models(db: peewee.Database, ahead_ms: int = 0) -> list[Model]:
    """Return all models, in the caller's transaction. `ahead_ms` is subtracted from the times of
    prices."""
    prices: dict[str, list[tuple[int, Prices]]] = {}
    price, row = tables.Price, tables.Model
    price_rows: Any = price.select().order_by(price.effective_ms).bind(db).dicts()
    for price_row in price_rows:
        from_ms = price_row["effective_ms"] - ahead_ms
        prices.setdefault(price_row["model_id"], []).append((from_ms, prices_of(price_row)))
    models = row.select(
        *(row.id, row.name, row.context_tokens, row.max_output_tokens),
        *(row.disabled, row.created_ms),
    )
    return [
        Model(name, context, output, disabled, created_ms, tuple(prices.get(model_id, ())))
        for model_id, name, context, output, disabled, created_ms in select_rows(db, models)
    ]


def own_prices(row: Mapping[str, Any]) -> dict[str, int]:
    """Return the prices in a row of the prices table, nanos by meter."""
    columns = {name: row[name] for name in COLUMN_METERS if row[name] is not None}
    return {**columns, **(row["other_meters"] or {})}


def prices_of(row: Mapping[str, Any]) -> Prices:
    """Return the prices and rates of a row of the prices table."""
    plain = plain_rate(own_prices(row))
    rates = tuple(
        conditional_rate(
            plain,
            tuple((name, rate["when"][name]) for name in CONDITIONS if name in rate["when"]),
            rate["factor"] if "factor" in rate else rate["prices"],
        )
        for rate in row["rates"] or ()
    )
    return Prices(plain, rates, row["source"])


def _channels(
    db: peewee.Database, cipher: Cipher, losses: Losses, faults: list[str]
) -> list[Channel]:
    to = {family: losses_to(family, losses) for _, family in losses}
    sealed: dict[str, list[tuple[str, str]]] = {}
    key = tables.ChannelKey
    query = key.select(key.channel_id, key.cipher, key.fingerprint)
    for channel_id, token, mark in select_rows(db, query.order_by(key.channel_id, key.position)):
        sealed.setdefault(channel_id, []).append((token, mark))
    channels = []
    rows: Any = tables.Channel.select().bind(db).dicts()
    for row in rows:
        try:
            row["losses"] = to.get(row["family"], {})
            channels.append(_channel(row, sealed.get(row["id"], ()), cipher))
        except Unreadable as error:
            faults.append(f'channel "{row["name"]}" is left out: {error}')
    return channels


def _channel(row: dict[str, Any], sealed: Sequence[tuple[str, str]], cipher: Cipher) -> Channel:
    """Return a channel from its row and its (sealed key, fingerprint) pairs. Raises Unreadable."""
    proxy, ca_file = open_proxy(cipher, row.pop("proxy")), row.pop("ca_file")
    guarded = bool(row.pop("proxy_guarded"))
    row["groups"] = frozenset(row["groups"])
    row["options"] = row["options"] or {}
    row["shared_ids"] = tuple(row["shared_ids"] or ())
    row["cost"] = {name: plain_rate(prices) for name, prices in (row["cost"] or {}).items()}
    row["body"] = body_edits(row["body"])
    row["remove_headers"] = frozenset(row["remove_headers"] or ())
    row["model_times"] = row["model_times"] or {}
    row["extra_headers"] = open_headers(cipher, row["extra_headers"] or {})
    return Channel(
        **row,
        route=Route(proxy, ca_file, guarded) if proxy or ca_file else None,
        keys=tuple(cipher.decrypt(token) for token, _ in sealed),
        fingerprints=tuple(fingerprint for _, fingerprint in sealed),
    )


class Refresh:
    """The poll that brings changes of the store into a running worker each second: keys, and a new
    snapshot.

    Runs in the writer's thread, and in a look-up thread when a key was found there, since a new key
    may need a new group and new models. `post` runs functions in the loop's thread: `on_snapshot`
    and `on_changes` get what was read. While the store is unreachable, nothing is called and the
    last snapshot stays in use. `losses`: the translations that snapshots support.
    """

    def __init__(
        self,
        cipher: Cipher,
        post: Post,
        on_snapshot: Callable[[Snapshot], None],
        on_changes: Callable[[Changes], None],
        *,
        losses: Losses = NOTHING_TRANSLATED,
    ) -> None:
        self._losses = losses
        self._cipher = cipher
        self._post = post
        self._on_snapshot = on_snapshot
        self._on_changes = on_changes
        self._version: int | None = None
        self._lock = threading.Lock()

    def poll(self, db: peewee.Database) -> None:
        """Read the changes since the last call. Blocking. Raises StoreUnavailable."""
        with self._lock:
            self._poll(db)

    def _poll(self, db: peewee.Database) -> None:
        changes = read_changes(db, -1 if self._version is None else self._version)
        if changes.version == self._version:
            return
        catalog = any(change.kind == CATALOG for change in changes.changes)
        if self._version is None or not changes.complete or catalog:
            snapshot = load_snapshot(db, self._cipher, self._losses)
            self._post(lambda: self._on_snapshot(snapshot))
        if self._version is not None:
            self._post(lambda: self._on_changes(changes))
        self._version = changes.version
