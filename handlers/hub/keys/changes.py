"""What owners do with their keys, for pages and the JSON API alike. Blocking; in store threads.

A key is made and changed by the same editor as with commands, in the name of its owner; whose key
it is, and in which groups its owner may have one, is asked here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import peewee

from handlers.hub.web.base import Failure
from operations.edits import editor
from store.admin.apply import MadeKey
from store.admin.kinds import DEFAULT_GROUP, KINDS
from store.admin.objects import Sealing
from store.catalog import keys
from store.hub import own_keys
from store.hub.key_groups import groups_for_keys
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.errors import Conflict
from store.values.ids import now_ms
from store.values.texts import nearest

MAX_OVERLAP_S = 30 * 24 * 3600
MAX_KEYS = 500  # of a member that are not revoked
FIELDS = frozenset({"name", *KINDS["key"].fields})


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose keys are changed, and with what secrets are kept."""

    me: SignedIn
    sealing: Sealing


def make(db: peewee.Database, owner: Owner, values: Mapping[str, object]) -> MadeKey:
    """A new key of these fields of the document's `[[key]]`. Raises Failure: an unknown field, a
    group that is not for its owner, a name that exists; Refused."""
    _check_fields(values)
    if "name" not in values:
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "name is missing", "name")
    _check_group(db, owner.me, values.get("group", DEFAULT_GROUP))
    if not owner.me.admin and own_keys.count_alive(db, owner.me.user_id) >= MAX_KEYS:
        told = f"you have {MAX_KEYS} keys; revoke one that you do not need"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told)
    try:
        outcome = editor(db, owner.sealing, owner.me.user, remote=True).make(
            "key", {**values, "user": owner.me.user}
        )
    except Conflict:
        told = f'you have a key "{values.get("name")}" already, or had it and it is revoked'
        raise Failure(HTTPStatus.CONFLICT, "conflict", told, "name") from None
    return outcome.keys[0]


def change(db: peewee.Database, owner: Owner, key_id: str, values: Mapping[str, object]) -> OwnKey:
    """A key with some of its fields changed. Raises as `make`; NotFound."""
    _check_fields(values)
    key = own_keys.show(db, owner.me.user_id, key_id, now_ms())
    if key.revoked_ms is not None:
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "the key is revoked; that is for good")
    if "secret" in values:
        told = "a key gets a new secret by rotate"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "secret")
    if "group" in values and values["group"] != key.group:
        _check_group(db, owner.me, values["group"])
    editor(db, owner.sealing, owner.me.user, remote=True).change("key", key_id, values)
    return own_keys.show(db, owner.me.user_id, key_id, now_ms())


def rotate(db: peewee.Database, owner: Owner, key_id: str, overlap_s: object = None) -> str:
    """A new secret of a key; the old one works on for `overlap_s`. Raises NotFound, Refused,
    Failure for an overlap that is none."""
    own_keys.owner_of(db, owner.me.user_id, key_id)
    if overlap_s is None:
        overlap_s = keys.OVERLAP_S
    if type(overlap_s) is not int or not 0 <= overlap_s <= MAX_OVERLAP_S:
        told = f"overlap_s must be a whole number from 0 to {MAX_OVERLAP_S}"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "overlap_s")
    rotation = keys.Rotation(owner.sealing.peppers, overlap_s)
    return keys.rotate(db, key_id, rotation, owner.me.user)


def set_enabled(db: peewee.Database, owner: Owner, key_id: str, enabled: bool) -> OwnKey:
    """A key, disabled or enabled. Raises NotFound; Refused when it is revoked."""
    own_keys.owner_of(db, owner.me.user_id, key_id)
    keys.set_key_enabled(db, key_id, enabled, owner.me.user)
    return own_keys.show(db, owner.me.user_id, key_id, now_ms())


def revoke(db: peewee.Database, owner: Owner, key_id: str) -> None:
    """Ends a key for good. Raises NotFound."""
    own_keys.owner_of(db, owner.me.user_id, key_id)
    keys.revoke(db, key_id, owner.me.user)


def _check_fields(values: Mapping[str, object]) -> None:
    for name in values:
        if name not in FIELDS:
            told = f'unknown field "{name}"{nearest(name, FIELDS)}'
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, name)


def _check_group(db: peewee.Database, me: SignedIn, group: object) -> None:
    """A member may not learn which other groups there are; for an administrator the editor says
    whether a group exists."""
    if me.admin:
        return
    allowed = groups_for_keys(db, me.user_id, admin=False)
    if group not in allowed:
        groups = ", ".join(allowed) or "no group; an administrator can open one to you"
        told = f"you may make keys in: {groups}"
        raise Failure(HTTPStatus.FORBIDDEN, "forbidden", told, "group")
