"""Administered objects as document fields, converted from rows and back.

`load` reads everything; `insert`, `update` and `delete` write one object. All run inside a
transaction of the caller. plan.py checks beforehand what may be written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import peewee

from store.admin.document import Identity
from store.admin.kinds import DEFAULT_GROUP, KINDS
from store.catalog import keys
from store.catalog.catalog import own_prices
from store.catalog.suspended_keys import forget_keys
from store.db.database import database_ms, insert_rows, select_rows
from store.db.tables.alerts import AlertDestination, AlertRule
from store.db.tables.catalog import Channel, ChannelKey, Group, Model, Price
from store.db.tables.fields import Row
from store.db.tables.hub import ApiToken, OneTimeCodes, OpenIdLink, Session
from store.db.tables.money import Plan, Subscription, Wallet
from store.db.tables.users import ApiKey, KeySecret, User
from store.hub import sessions
from store.money.ledger import Line, add_line
from store.values import key_secrets
from store.values.cipher import Cipher, Unreadable
from store.values.errors import NotFound, Refused
from store.values.features import DEFAULT_FEATURES
from store.values.fields import Sealed
from store.values.ids import new_ulid
from store.values.meters import COLUMN_METERS
from store.values.passwords import hash_password, verify_password
from store.values.price_fields import PriceFrom
from store.values.sealed_fields import same_headers, same_proxy, seal_headers, seal_proxy
from store.values.texts import nearest

OPENING_REASON = "opening balance"
ENDING = frozenset({"password", "enabled"})
"""Fields of a user whose change ends sessions and tokens. Someone who knew the old password may
have signed in with it, and a user who is enabled again starts without sessions."""

TABLES: Mapping[str, type[Row]] = {
    "model": Model,
    "group": Group,
    "channel": Channel,
    "user": User,
    "plan": Plan,
    "subscription": Subscription,
    "key": ApiKey,
}
NAMED = ("user", "group", "plan")
"""Kinds that other rows refer to by their ids."""
COLUMNS: Mapping[str, str] = {
    "multiplier": "multiplier_ppm",
    "cost_factor": "cost_factor_ppm",
    "order": "spend_order",
    "password": "password_hash",
    "starts_at": "starts_ms",
    "expires_at": "expires_ms",
    "limit": "limit_nanos",
}
"""Fields whose column has another name. Fields that are neither here nor in SPECIAL have the same
name."""
SPECIAL = frozenset(
    {
        "price",
        "rate",
        "price_source",
        "price_changes",
        "keys",
        "balance",
        "secret",
        "group",
        "enabled",
    }
    | {"extra_headers", "proxy"}
)
"""Fields that are in other tables, or that are converted."""
_OF_PRICES = frozenset({"price", "rate", "price_source"})
"""Fields of a row of prices."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object of the store: its id, its fields and its row.

    For secrets, the fields contain comparable values: digests (`secret`), the hash (`password`),
    sealed values (`keys`, `extra_headers`, `proxy`).
    """

    kind: str
    id: str
    identity: Identity
    fields: Mapping[str, Any] = field(repr=False)
    row: Mapping[str, Any] = field(repr=False)

    @property
    def revoked(self) -> bool:
        """Return whether it is a revoked key."""
        return self.row.get("revoked_ms") is not None


StoreState = dict[str, dict[Identity, Stored]]
"""All objects by kind and identity."""


class Sealing:
    """The secrets of the installation, and operations with them."""

    def __init__(self, cipher: Cipher, peppers: list[str]) -> None:
        self.cipher = cipher
        self.peppers = peppers
        self._hashes: dict[str, str] = {}
        self._verified: dict[tuple[str, str], bool] = {}

    def password_hash(self, password: str) -> str:
        """Return the hash of a password, the same one each time, since a plan may be made twice."""
        if password not in self._hashes:
            self._hashes[password] = hash_password(password)
        return self._hashes[password]

    def same(self, name: str, stored: Any, value: Any) -> bool:
        """Return whether a value of a field equals the stored one, also for secrets."""
        if name == "keys":
            return len(stored) == len(value) and all(map(self.cipher.holds, stored, value))
        if name == "extra_headers":
            return same_headers(self.cipher, stored, value)
        if name == "proxy":
            return same_proxy(self.cipher, stored, value)
        if name == "secret":
            return any(mark in stored for mark in key_secrets.digests(value, self.peppers))
        if name == "password" and stored is not None and value is not None:
            pair = (stored, value)
            if pair not in self._verified:
                self._verified[pair] = verify_password(*pair)
            return self._verified[pair]
        return bool(stored == value)


def load(db: peewee.Database, owner_id: str | None = None) -> StoreState:
    """Return every object of every kind. `owner_id`: only that user's users, keys and
    subscriptions, which is everything that matters to a key of that user except the secrets of
    others."""
    owned = {"user": User.id, "key": ApiKey.user_id, "subscription": Subscription.user_id}
    owners = None if owner_id is None else [owner_id]
    rows = {
        kind: _rows(db, table, of=(owned[kind], owners) if kind in owned else None)
        for kind, table in TABLES.items()
    }
    own_keys = ApiKey.select(ApiKey.id).where(ApiKey.user_id == owner_id)
    extras = _Extras(db, rows, key_ids=None if owner_id is None else own_keys)
    state: StoreState = {}
    for kind in KINDS:
        stored = (_stored(kind, row, extras) for row in rows[kind])
        state[kind] = {item.identity: item for item in stored}
    return state


def find(state: StoreState, kind: str, name: str) -> Stored:
    """Return the object with that name. If its identity has two parts, the name is FIRST/LAST or
    the id. Raises NotFound, and Refused if the name is ambiguous, since names may contain
    slashes."""
    two_parts = len(KINDS[kind].identity) > 1
    matches = [
        stored
        for stored in state[kind].values()
        if "/".join(stored.identity) == name or (two_parts and stored.id == name)
    ]
    if len(matches) > 1:
        raise Refused([f'several {kind}s are called "{name}"; use the id'])
    if matches:
        return matches[0]
    hint = nearest(name, ("/".join(identity) for identity in state[kind]))
    if two_parts and "/" not in name and not hint:
        hint = f"; write {'/'.join(KINDS[kind].identity).upper()} or an id"
    raise NotFound(f'there is no {kind} "{name}"{hint}')


def _rows(
    db: peewee.Database, table: Any, *order: Any, of: tuple[Any, Any] | None = None
) -> list[dict[str, Any]]:
    """Return all rows of a table. `of`: a column, and its values or a query of them (None: any)."""
    query = table.select().order_by(*order)
    if of is not None and of[1] is not None:
        query = query.where(of[0] << (of[1] if isinstance(of[1], peewee.Query) else list(of[1])))
    return list(query.bind(db).dicts())


def of_rows(db: peewee.Database, kind: str, rows: list[dict[str, Any]]) -> list[Stored]:
    """Return the objects of some rows of a kind's table, in their order, without loading others."""
    loaded = {kind: rows}
    for part in KINDS[kind].identity:
        if part in NAMED and part != kind:
            table: Any = TABLES[part]
            ids = {row[f"{part}_id"] for row in rows}
            loaded[part] = list(table.select().where(table.id << ids).bind(db).dicts())
    extras = _Extras(db, loaded, [row["id"] for row in rows])
    return [_stored(kind, row, extras) for row in rows]


class _Extras:
    """The parts of objects that are in tables of their own, by the id of the object, and names.
    `ids`: only the parts of these. `key_ids`: only the secrets of these keys; may be a query."""

    def __init__(
        self,
        db: peewee.Database,
        rows: Mapping[str, list[dict[str, Any]]],
        ids: Sequence[str] | None = None,
        key_ids: Any = None,
    ) -> None:
        self.names = {row["id"]: row["name"] for kind in NAMED for row in rows.get(kind, ())}
        self.prices: dict[str, tuple[dict[str, int], list[dict[str, Any]], str | None]] = {}
        self.price_changes: dict[str, list[PriceFrom]] = {}
        at_ms = database_ms(db)
        for row in _rows(db, Price, Price.effective_ms, of=(Price.model_id, ids)):
            prices, rates = own_prices(row), row["rates"] or []
            model_id, from_ms = row["model_id"], row["effective_ms"]
            if from_ms <= at_ms or model_id not in self.prices:
                self.prices[model_id] = prices, rates, row["source"]
            else:
                self.price_changes.setdefault(model_id, []).append((from_ms, prices, rates))
        self.sealed_keys: dict[str, list[str]] = {}
        for row in _rows(db, ChannelKey, ChannelKey.position, of=(ChannelKey.channel_id, ids)):
            self.sealed_keys.setdefault(row["channel_id"], []).append(row["cipher"])
        self.digests: dict[str, set[bytes]] = {}
        for row in _rows(db, KeySecret, of=(KeySecret.key_id, key_ids if ids is None else ids)):
            self.digests.setdefault(row["key_id"], set()).add(bytes(row["digest"]))


_READ: Mapping[str, Callable[[Mapping[str, Any], _Extras], Any]] = {
    "enabled": lambda row, _: row["enabled"] if "enabled" in row else not row["disabled"],
    "price": lambda row, extras: extras.prices.get(row["id"], ({}, [], None))[0],
    "rate": lambda row, extras: extras.prices.get(row["id"], ({}, [], None))[1],
    "price_source": lambda row, extras: extras.prices.get(row["id"], ({}, [], None))[2],
    "price_changes": lambda row, extras: extras.price_changes.get(row["id"], []),
    "keys": lambda row, extras: extras.sealed_keys.get(row["id"], []),
    "extra_headers": lambda row, _: {
        name: Sealed(token) for name, token in (row["extra_headers"] or {}).items()
    },
    "options": lambda row, _: row["options"] or {},
    "shared_ids": lambda row, _: row["shared_ids"] or [],
    "features": lambda row, _: (
        list(DEFAULT_FEATURES) if row["features"] is None else row["features"]
    ),
    "cost": lambda row, _: row["cost"] or {},
    "body": lambda row, _: row["body"] or {},
    "remove_headers": lambda row, _: row["remove_headers"] or [],
    "model_times": lambda row, _: row["model_times"] or {},
    # Users created before this column was added have none.
    "groups": lambda row, _: [DEFAULT_GROUP] if row["groups"] is None else row["groups"],
    "secret": lambda row, extras: frozenset(extras.digests.get(row["id"], ())),
    "group": lambda row, extras: extras.names.get(row["group_id"], ""),
}


def _stored(kind: str, row: dict[str, Any], extras: _Extras) -> Stored:
    fields = {
        name: _READ[name](row, extras) if name in _READ else row[COLUMNS.get(name, name)]
        for name, spec in KINDS[kind].fields.items()
        if not spec.once
    }
    return Stored(kind, row["id"], _identity(kind, row, extras), fields, row)


def _identity(kind: str, row: dict[str, Any], extras: _Extras) -> Identity:
    return tuple(
        row["name"] if part == "name" else extras.names.get(row[f"{part}_id"], "")
        for part in KINDS[kind].identity
    )


@dataclass(frozen=True, slots=True)
class Writer:
    """A writer of objects in one transaction. `ids`: the ids of referenced objects. `remote`: over
    HTTP."""

    db: peewee.Database
    sealing: Sealing
    ids: dict[tuple[str, Identity], str]
    actor: str
    remote: bool = False

    def insert(self, kind: str, identity: Identity, fields: Mapping[str, Any]) -> str:
        """Create an object with these fields (all of them). Return its id."""
        object_id = new_ulid()
        self.ids[kind, identity] = object_id
        row = {"id": object_id, **self._named(kind, identity), **self._columns(kind, fields)}
        if "created_ms" in TABLES[kind]._meta.fields:
            row["created_ms"] = database_ms(self.db)
        if kind == "key":
            row |= key_secrets.shown_parts(fields["secret"])
        TABLES[kind].insert(row).execute(self.db)
        if kind == "user":
            self._open_wallet(object_id, fields["balance"])
        self._write_extras(object_id, fields, fields, new=True)
        return object_id

    def update(self, stored: Stored, fields: Mapping[str, Any]) -> None:
        """Change these fields of an object."""
        columns = self._columns(stored.kind, fields)
        if columns:
            table: Any = TABLES[stored.kind]
            table.update(**columns).where(table.id == stored.id).execute(self.db)
        if stored.kind == "user" and ENDING & fields.keys():
            sessions.end_all(self.db, stored.id, self.actor)
        self._write_extras(stored.id, fields, {**stored.fields, **fields}, new=False)

    def delete(self, stored: Stored) -> None:
        """Remove an object and what belongs only to it. A wallet and its ledger are kept
        forever."""
        if stored.kind == "user":
            owned = ApiKey.select(ApiKey.id).where(ApiKey.user_id == stored.id)
            for row in select_rows(self.db, owned):
                self._delete_key(row[0])
            for table_of_user in (Session, ApiToken, OneTimeCodes, OpenIdLink):
                query = table_of_user.delete().where(table_of_user.user_id == stored.id)
                query.execute(self.db)
            for table_of_owner in (AlertRule, AlertDestination):
                query = table_of_owner.delete().where(table_of_owner.owner_id == stored.id)
                query.execute(self.db)
        if stored.kind == "key":
            self._delete_key(stored.id)
            return
        if stored.kind == "model":
            Price.delete().where(Price.model_id == stored.id).execute(self.db)
        if stored.kind == "channel":
            self._delete_channel_keys(stored.id)
            forget_keys(self.db, stored.id)
        table: Any = TABLES[stored.kind]
        table.delete().where(table.id == stored.id).execute(self.db)

    def _named(self, kind: str, identity: Identity) -> dict[str, str]:
        """Return the columns of an identity."""
        return dict(
            ("name", name) if part == "name" else (f"{part}_id", self.ids[part, (name,)])
            for part, name in zip(KINDS[kind].identity, identity, strict=True)
        )

    def _columns(self, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        columns = {
            COLUMNS.get(name, name): value for name, value in fields.items() if name not in SPECIAL
        }
        if "enabled" in fields and kind == "channel":
            columns["enabled"] = fields["enabled"]
        elif "enabled" in fields:
            columns["disabled"] = not fields["enabled"]
        if "extra_headers" in fields:
            columns["extra_headers"] = seal_headers(self.sealing.cipher, fields["extra_headers"])
        if "proxy" in fields:
            columns["proxy"] = seal_proxy(self.sealing.cipher, fields["proxy"])
            columns["proxy_guarded"] = self.remote and fields["proxy"] is not None
        if "group" in fields:
            columns["group_id"] = self.ids["group", (fields["group"],)]
        return columns

    def _write_extras(
        self, object_id: str, fields: Mapping[str, Any], final: Mapping[str, Any], *, new: bool
    ) -> None:
        if "price_changes" in fields:
            self._write_price_changes(object_id, fields["price_changes"])
        if _OF_PRICES & fields.keys():
            self._add_price(object_id, final)
        if "keys" in fields:
            self._write_channel_keys(object_id, fields["keys"])
        if "secret" in fields:
            write = keys.add_secret if new else keys.replace_secret
            write(self.db, object_id, fields["secret"], self.sealing.peppers)

    def _add_price(self, model_id: str, final: Mapping[str, Any]) -> None:
        from_ms, known_times = database_ms(self.db), self._price_times(model_id)
        while from_ms in known_times:  # two changes can have the same millisecond
            from_ms += 1
        change = (from_ms, final["price"], final["rate"])
        self._insert_price(model_id, change, final["price_source"])

    def _write_price_changes(self, model_id: str, changes: Sequence[PriceFrom]) -> None:
        """Replace the future prices. Prices already in force are never changed."""
        to_come = (Price.model_id == model_id) & (Price.effective_ms > database_ms(self.db))
        Price.delete().where(to_come).execute(self.db)
        known_times = self._price_times(model_id)
        for change in changes:
            if change[0] not in known_times:
                self._insert_price(model_id, change)

    def _price_times(self, model_id: str) -> set[int]:
        own = Price.select(Price.effective_ms).where(Price.model_id == model_id)
        return {from_ms for (from_ms,) in select_rows(self.db, own)}

    def _insert_price(self, model_id: str, change: Any, source: str | None = None) -> None:
        from_ms, price, rates = change
        columns = {name: price[name] for name in COLUMN_METERS if name in price}
        more = {name: nanos for name, nanos in price.items() if name not in COLUMN_METERS}
        row = {"model_id": model_id, "effective_ms": from_ms, "call": 0, **columns}
        row |= {"other_meters": more or None, "rates": rates or None, "source": source}
        Price.insert(row).execute(self.db)

    def _write_channel_keys(self, channel_id: str, upstream_keys: list[str]) -> None:
        cipher = self.sealing.cipher
        stood_for = self._fingerprints(channel_id)
        self._delete_channel_keys(channel_id)
        # A new key starts without suspensions; a key that stays keeps its fingerprint.
        marks = [stood_for.get(key) or cipher.fingerprint(key) for key in upstream_keys]
        forget_keys(self.db, channel_id, marks)
        rows = [
            {
                "id": new_ulid(),
                "channel_id": channel_id,
                "position": position,
                "cipher": cipher.encrypt(key),
                "fingerprint": mark,
            }
            for position, (key, mark) in enumerate(zip(upstream_keys, marks, strict=True))
        ]
        insert_rows(self.db, ChannelKey, rows)

    def _fingerprints(self, channel_id: str) -> dict[str, str]:
        """Return the fingerprints of a channel's keys, by key, for those that can be opened."""
        own = ChannelKey.select(ChannelKey.cipher, ChannelKey.fingerprint)
        marks_by_key = {}
        for token, mark in select_rows(self.db, own.where(ChannelKey.channel_id == channel_id)):
            try:
                marks_by_key[self.sealing.cipher.decrypt(token)] = mark
            except Unreadable:
                continue  # sealed by another installation's cipher key: it is replaced
        return marks_by_key

    def _delete_channel_keys(self, channel_id: str) -> None:
        own = ChannelKey.channel_id == channel_id
        ChannelKey.delete().where(own).execute(self.db)

    def _delete_key(self, key_id: str) -> None:
        KeySecret.delete().where(KeySecret.key_id == key_id).execute(self.db)
        ApiKey.delete().where(ApiKey.id == key_id).execute(self.db)

    def _open_wallet(self, user_id: str, balance: int) -> None:
        Wallet.insert({"user_id": user_id, "balance": 0}).execute(self.db)
        if balance:
            opening = Line(
                *(new_ulid(), user_id, "credit", balance, balance, None, f"opening:{user_id}"),
                *(OPENING_REASON, database_ms(self.db)),
            )
            add_line(self.db, opening)
