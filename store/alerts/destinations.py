"""Destinations of messages: addresses that are sealed, shown without their secret part.

`KINDS` are mail, a signed webhook, and the chats whose addresses are webhooks themselves. For the
messages to each see operations/alerts.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import peewee
from peewee import fn

from store.alerts.rules import GATEWAY
from store.db import audit
from store.db.database import database_ms, in_transaction, select_rows
from store.db.tables.alerts import AlertDestination as Row
from store.db.tables.alerts import AlertRule
from store.db.tables.users import User
from store.values import texts
from store.values.cipher import Cipher
from store.values.errors import NotFound, Refused
from store.values.ids import new_ulid
from store.values.usage_record import rfc3339_or_none

MAIL, WEBHOOK, TELEGRAM = "mail", "webhook", "telegram"
KINDS = (WEBHOOK, MAIL, "slack", "feishu", "dingtalk", "wecom", TELEGRAM, "teams")
OWN_KINDS = tuple(kind for kind in KINDS if kind != MAIL)
"""The kinds for users. Mail to a user goes to the address set by administrators."""

MAX_DESTINATIONS = 50
MAX_OWN_DESTINATIONS = 10
MAX_MAIL_ADDRESSES = 10
MAX_URL_CHARS = 1024
MAX_RESULT_CHARS = 200
SECRET_BYTES = 32
FIELDS = ("name", "kind", "address", "chat")
TELEGRAM_API = "https://api.telegram.org"
DOTS = "••••"

_TOKEN = re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{10,100}", re.ASCII)
_CHAT = re.compile(r"-?[0-9]{1,20}|@[A-Za-z0-9_]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination. `masked` is its address without the secret part. `last_ok` None: unused."""

    id: str
    owner_id: str
    name: str
    kind: str
    masked: str
    last_ok: bool | None
    last_result: str
    last_ms: int | None


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a destination in clear: mail addresses, or the URL of a webhook with its
    signing secret and chat, if its kind has them."""

    kind: str
    mail: Sequence[str] = ()
    url: str = ""
    chat: str = ""
    secret: str = ""


_COLUMNS = (
    *(Row.id, Row.owner_id, Row.name, Row.kind, Row.masked),
    *(Row.last_ok, Row.last_result, Row.last_ms),
)


def listed(db: peewee.Database, owner_id: str) -> list[Destination]:
    """Return the destinations of an owner in order of creation."""
    query = Row.select(*_COLUMNS).where(Row.owner_id == owner_id).order_by(Row.id)
    return [Destination(*row) for row in select_rows(db, query)]


def show(db: peewee.Database, owner_id: str, destination_id: str) -> Destination:
    """Return a destination of an owner. Raises NotFound."""
    own = (Row.id == destination_id) & (Row.owner_id == owner_id)
    rows = select_rows(db, Row.select(*_COLUMNS).where(own))
    if not rows:
        raise NotFound(f"there is no destination {destination_id!r}")
    return Destination(*rows[0])


def address_of(db: peewee.Database, destination_id: str, cipher: Cipher) -> Address | None:
    """Return the address in clear, or None if the destination was removed. Raises Unreadable."""
    query = Row.select(Row.kind, Row.sealed, Row.secret).where(Row.id == destination_id)
    rows = select_rows(db, query)
    if not rows:
        return None
    kind, sealed, secret = rows[0]
    return Address(
        kind,
        **json.loads(cipher.decrypt(sealed)),
        secret="" if secret is None else cipher.decrypt(secret),
    )


@in_transaction
def create(
    db: peewee.Database, owner_id: str, fields: Mapping[str, Any], cipher: Cipher, actor: str
) -> tuple[str, str]:
    """Create a destination from FIELDS. Return (id, secret). Only webhooks have a secret, which
    signs messages and is not shown again. Raises Refused."""
    counted = Row.select(fn.COUNT(Row.id)).where(Row.owner_id == owner_id)
    most = MAX_OWN_DESTINATIONS if owner_id else MAX_DESTINATIONS
    if select_rows(db, counted)[0][0] >= most:
        raise Refused([f"there are {most} destinations, the maximum"])
    kind, name, address = _checked(fields, own=bool(owner_id))
    host = urlsplit(address.get("url", "")).hostname
    if host and _is_private(host) and not may_be_private(db, owner_id):
        raise Refused([f"{host} is not a public address"], ["address"])
    masked = _masked(kind, address)
    destination_id = new_ulid()
    secret = secrets.token_urlsafe(SECRET_BYTES) if kind == WEBHOOK else ""
    row = {
        "id": destination_id,
        "owner_id": owner_id,
        "name": name,
        "kind": kind,
        "sealed": cipher.encrypt(json.dumps(address)),
        "secret": cipher.encrypt(secret) if secret else None,
        "masked": masked,
        "created_ms": database_ms(db),
    }
    Row.insert(row).execute(db)
    after = {"name": name, "kind": kind, "address": masked}
    audit.write(db, audit.Act(actor, "create", "alert destination", name, after=after))
    return destination_id, secret


@in_transaction
def remove(db: peewee.Database, owner_id: str, destination_id: str, actor: str) -> None:
    """Remove a destination, also from the rules that name it. Raises NotFound."""
    before = show(db, owner_id, destination_id)
    Row.delete().where(Row.id == destination_id).execute(db)
    rules = AlertRule.select(AlertRule.id, AlertRule.destinations)
    for rule_id, ids in select_rows(db, rules.where(AlertRule.owner_id == owner_id)):
        if destination_id in ids:
            left = [item for item in ids if item != destination_id]
            AlertRule.update(destinations=left).where(AlertRule.id == rule_id).execute(db)
    fields = {"name": before.name, "kind": before.kind, "address": before.masked}
    audit.write(db, audit.Act(actor, "remove", "alert destination", before.name, fields))


@in_transaction
def note_result(
    db: peewee.Database, destination_id: str, text: str, took_ms: int | None, *, ok: bool
) -> None:
    """Note the result of the last message to a destination. Does nothing if it was removed."""
    took = "" if took_ms is None else f"{took_ms / 1000:.2f} s"
    result = ", ".join(filter(None, (text[:MAX_RESULT_CHARS], took)))
    update = Row.update(last_ok=ok, last_result=result, last_ms=database_ms(db))
    update = update.where(Row.id == destination_id)
    update.execute(db)


def _checked(fields: Mapping[str, Any], *, own: bool) -> tuple[str, str, dict[str, Any]]:
    faults = {name: f"unknown field: {name}" for name in fields.keys() - set(FIELDS)}
    values = {name: fields.get(name) or "" for name in FIELDS}
    for name, value in values.items():
        if not isinstance(value, str):
            faults[name] = f"{name} must be a string"
            values[name] = ""
    kinds = OWN_KINDS if own else KINDS
    if values["kind"] not in kinds:
        faults["kind"] = f"kind must be one of {', '.join(kinds)}"
    try:
        texts.name(values["name"])
    except (ValueError, TypeError) as error:
        faults.setdefault("name", f"name {error}")
    address: dict[str, Any] = {}
    if not faults:
        try:
            address = _address(values["kind"], values["address"].strip(), values["chat"].strip())
        except ValueError as error:
            faults["chat" if values["kind"] == TELEGRAM and "chat" in str(error) else "address"] = (
                str(error)
            )
    if faults:
        raise Refused(list(faults.values()), list(faults))
    return values["kind"], values["name"], address


def _address(kind: str, text: str, chat: str) -> dict[str, Any]:
    if kind == MAIL:
        mail = [part for part in re.split(r"[\s,;]+", text) if part]
        if not 1 <= len(mail) <= MAX_MAIL_ADDRESSES:
            raise ValueError(f"address must be 1 to {MAX_MAIL_ADDRESSES} mail addresses")
        return {"mail": [texts.mail_address(part) for part in mail]}
    if kind != TELEGRAM:
        return {"url": _url(text)}
    if not _CHAT.fullmatch(chat):
        raise ValueError("chat must be the id of a chat like -1001234567890, or @channel")
    if _TOKEN.fullmatch(text):
        text = f"{TELEGRAM_API}/bot{text}"
    return {
        "url": f"{_url(text).rstrip('/').removesuffix('/sendMessage')}/sendMessage",
        "chat": chat,
    }


def _url(text: str) -> str:
    try:
        url = urlsplit(text)
        sound = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        sound = False
    plain = text.isascii() and text.isprintable() and " " not in text
    if not sound or not plain or url.scheme not in ("http", "https") or len(text) > MAX_URL_CHARS:
        raise ValueError("address must be a URL like https://hooks.example.com/alerts")
    if url.username is not None or url.fragment:
        raise ValueError("address must be a URL without user and fragment")
    return text


def _is_private(host: str) -> bool:
    """Return whether a host is private by its text alone; for names the sender decides."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _masked(kind: str, address: Mapping[str, Any]) -> str:
    if kind == MAIL:
        return ", ".join(address["mail"])[:MAX_RESULT_CHARS]
    url = urlsplit(address["url"])
    if kind == TELEGRAM:
        bot = url.path.rpartition("/bot")[2][:4]
        return f"bot {bot}…, chat {address['chat'][:5]}…"
    head, _, last = url.path.rpartition("/")
    path = url.path if kind == WEBHOOK else f"{head}/{DOTS}" if last else head
    query = f"?{DOTS}" if url.query else ""
    return f"{url.scheme}://{url.netloc}{path}{query}"[:MAX_RESULT_CHARS]


def public(destination: Destination) -> dict[str, Any]:
    """Return a destination as JSON."""
    return {
        "id": destination.id,
        "name": destination.name,
        "kind": destination.kind,
        "address": destination.masked,
        "last_ok": destination.last_ok,
        "last_result": destination.last_result or None,
        "last_at": rfc3339_or_none(destination.last_ms),
    }


def may_be_private(db: peewee.Database, owner_id: str) -> bool:
    """Return whether messages of an owner may go to private addresses: true for the gateway and
    administrators."""
    if owner_id == GATEWAY:
        return True
    role = User.select(User.role).where(User.id == owner_id)
    return select_rows(db, role) == [("admin",)]
