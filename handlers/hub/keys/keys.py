"""A user's own keys: the list, the page of a key, and the JSON API; never other users' keys.

Keys are created and changed with the same editor as by commands, with their owner as the actor.
This module checks the ownership, and the groups in which the owner may have keys.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.web.base import Api, Failure, HubHandler, Page, invalid
from handlers.hub.web.charts import Column
from handlers.hub.web.formats import address, failure_reason, shape_of
from handlers.hub.web.zones import day_text, utc_day_text
from operations.base_url_check import Diagnosis, diagnose
from operations.edits import editor
from store.admin.apply import Editor, MadeKey
from store.admin.kinds import DEFAULT_GROUP, KINDS
from store.admin.objects import Sealing
from store.calls.reading.sums import KEY_DAYS, CallSums, key_usage
from store.catalog import keys
from store.catalog.wrong_paths import Noticed
from store.db.versions import version_of
from store.hub import own_keys
from store.hub.key_stops import KeyStop, stops_of
from store.hub.membership import KeyGroup, groups_for_keys, key_groups
from store.hub.own_keys import OwnKey
from store.hub.sessions import SignedIn
from store.values.errors import Conflict
from store.values.ids import now_ms
from store.values.pricing import format_money, format_multiplier
from store.values.texts import nearest
from store.values.usage_record import rfc3339, rfc3339_or_none

PAGE_KEYS = 50
API_KEYS, API_KEYS_MAX = 100, 200
MAX_OVERLAP_S = 30 * 24 * 3600
MAX_KEYS = 500  # of a member, without revoked ones
FIELDS = frozenset({"name", *KINDS["key"].fields})
AGENT_WORDS, AGENT_CHARS = 3, 60
MEASURES = ("cost", "calls", "tokens")
COLUMNS = ("group", "spent", "models", "last_used", "expires")
"""The columns that can be hidden, in order. The key and its state are always visible."""

# ---- states --------------------------------------------------------------------------------------

REVOKED, DISABLED, EXPIRED, USED_UP = "revoked", "disabled", "expired", "used_up"
WRONG_BASE_URL, NEAR_LIMIT, REPLACED = "wrong_base_url", "near_limit", "replaced"
ACTIVE = "active"
STATES: Mapping[str, str] = {
    ACTIVE: "ok",
    NEAR_LIMIT: "warn",
    WRONG_BASE_URL: "warn",
    USED_UP: "warn",
    REPLACED: "live",
    EXPIRED: "idle",
    DISABLED: "idle",
    REVOKED: "idle",
}
"""The states of a key, each with its shape."""
WORKING = frozenset({ACTIVE, NEAR_LIMIT, WRONG_BASE_URL, REPLACED})
"""States in which calls with the key may succeed."""


def state_of(key: OwnKey, at_ms: int, base_url: str) -> str:
    """Return the state of a key: why it does not work, or else its most urgent problem."""
    if key.revoked_ms is not None:
        return REVOKED
    if not key.enabled:
        return DISABLED
    if key.expires_ms is not None and key.expires_ms <= at_ms:
        return EXPIRED
    if key.limit_nanos is not None and key.spent_nanos >= key.limit_nanos:
        return USED_UP
    if misdirected(key, base_url) is not None:
        return WRONG_BASE_URL
    if key.near_limit:
        return NEAR_LIMIT
    return ACTIVE if key.replaced_until_ms is None else REPLACED


def misdirected(key: OwnKey, base_url: str) -> tuple[Noticed, Diagnosis] | None:
    """Return the newest wrong path requested with a key that another base URL would fix."""
    for path in key.wrong:
        diagnosis = diagnose(path.path, base_url)
        if diagnosis.use is not None:
            return path, diagnosis
    return None


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A filter of keys. Revoked ones match only if their state is asked for."""

    search: str = ""
    state: str = ""
    group: str = ""

    def matches(self, key: OwnKey, state: str) -> bool:
        """Return whether a key in this state matches."""
        if self.state != state and (self.state or state == REVOKED):
            return False
        if self.group and key.group != self.group:
            return False
        text = self.search.casefold()
        return not text or any(
            text in word.casefold() for word in (key.name, key.last_four, *key.networks)
        )


def matching_keys(
    own: Iterable[OwnKey], key_filter: KeyFilter, at_ms: int, base_url: str
) -> list[OwnKey]:
    """Return the matching keys, in the given order."""
    return [key for key in own if key_filter.matches(key, state_of(key, at_ms, base_url))]


def client_of(agent: str | None) -> str:
    """Return the client of a User-Agent: `claude-cli 2.1.197`, `OpenAI Python 3.54.0`."""
    name, *more = (agent or "").replace("/", " ").split()[:AGENT_WORDS] or [""]
    for word in more:
        name += f" {word}"
        if word[:1].isdigit():
            return name[:AGENT_CHARS]
    return name.partition(" ")[0][:AGENT_CHARS]


# ---- changes: blocking, in store threads ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """The owner of keys, who creates and changes them, with the secrets needed for that."""

    me: SignedIn
    sealing: Sealing

    def make(self, db: peewee.Database, values: Mapping[str, object]) -> MadeKey:
        """Create a key with these fields of the document's `[[key]]`. Raises Refused; Failure for
        an unknown field, a group that is not open to the owner, or a name that exists."""
        me = self.me
        _check_fields(values)
        if "name" not in values:
            raise invalid("name", "name is missing")
        _check_group(db, me, values.get("group", DEFAULT_GROUP))
        if not me.admin and own_keys.count_alive(db, me.user_id) >= MAX_KEYS:
            text = f"you have {MAX_KEYS} keys; revoke one that you do not need"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", text)
        try:
            return self._editor(db).create("key", None, {**values, "user": me.user}).keys[0]
        except Conflict:
            text = f'you have a key "{values.get("name")}" already, or had it and it is revoked'
            raise Failure(HTTPStatus.CONFLICT, "conflict", text, "name") from None

    def change(
        self,
        db: peewee.Database,
        key_id: str,
        values: Mapping[str, object],
        version: str | None = None,
    ) -> OwnKey:
        """Change fields of a key and return it. `version`: the version that the change is based on;
        None: any. Raises the errors of `make`; NotFound; Outdated."""
        _check_fields(values)
        key = self.show(db, key_id)
        if key.revoked_ms is not None:
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "the key is revoked; that is final")
        if "secret" in values:
            raise invalid("secret", "a key gets a new secret by rotate")
        if "group" in values and values["group"] != key.group:
            _check_group(db, self.me, values["group"])
        self._editor(db).change("key", key_id, values, version)
        return self.show(db, key_id)

    def rotate(self, db: peewee.Database, key_id: str, overlap_s: object = None) -> str:
        """Return a new secret for a key. The old one remains valid for `overlap_s`. Raises
        NotFound; Refused; Failure for an overlap out of range."""
        own_keys.owner_of(db, self.me.user_id, key_id)
        if overlap_s is None:
            overlap_s = keys.OVERLAP_S
        if type(overlap_s) is not int or not 0 <= overlap_s <= MAX_OVERLAP_S:
            text = f"overlap_s must be a whole number from 0 to {MAX_OVERLAP_S}"
            raise invalid("overlap_s", text)
        rotation = keys.Rotation(self.sealing.peppers, overlap_s)
        return keys.rotate(db, key_id, rotation, self.me.user)

    def enable(self, db: peewee.Database, key_id: str, enabled: bool) -> OwnKey:
        """Enable or disable a key and return it. Raises NotFound; Refused if the key is revoked."""
        own_keys.owner_of(db, self.me.user_id, key_id)
        keys.set_key_enabled(db, key_id, enabled, self.me.user)
        return self.show(db, key_id)

    def revoke(self, db: peewee.Database, key_id: str) -> OwnKey:
        """Revoke a key permanently and return it. Raises NotFound."""
        own_keys.owner_of(db, self.me.user_id, key_id)
        keys.revoke(db, key_id, self.me.user)
        return self.show(db, key_id)

    def show(self, db: peewee.Database, key_id: str) -> OwnKey:
        """Return a key. Raises NotFound."""
        return own_keys.show(db, self.me.user_id, key_id, now_ms())

    def version(self, db: peewee.Database, key: OwnKey) -> str:
        """Return the version of a key."""
        return version_of(db, "key", f"{self.me.user}/{key.name}")

    def _editor(self, db: peewee.Database) -> Editor:
        return editor(db, self.sealing, self.me.user, remote=True)


class KeyHandler(HubHandler):
    """A handler that changes keys."""

    @property
    def owner(self) -> KeyOwner:
        """Return the signed-in user as the owner of keys."""
        return KeyOwner(self.me, self.site.sealing)


def _check_fields(values: Mapping[str, object]) -> None:
    for name in values:
        if name not in FIELDS:
            raise invalid(name, f'unknown field "{name}"{nearest(name, FIELDS)}')


def _check_group(db: peewee.Database, me: SignedIn, group: object) -> None:
    """Raise Failure if a member may not have keys in the group, whether or not it exists. For
    administrators the editor checks that it exists."""
    if me.admin:
        return
    allowed = groups_for_keys(db, me.user_id, admin=False)
    if group not in allowed:
        groups = ", ".join(allowed) or "no group; an administrator can open one to you"
        text = f"you may make keys in: {groups}"
        raise Failure(HTTPStatus.FORBIDDEN, "forbidden", text, "group")


LAST_USED = "last_used"
ORDERS: Mapping[str, tuple[bool, Callable[[OwnKey], tuple[object, ...]]]] = {
    "name": (False, lambda key: (key.name.casefold(),)),
    "spent": (True, lambda key: (key.spent_nanos,)),
    LAST_USED: (True, lambda key: (key.last_use.at_ms if key.last_use else 0, key.created_ms)),
    "expires": (False, lambda key: (key.expires_ms is None, key.expires_ms or 0, key.name)),
}
"""The orders of the keys on a page: whether the greatest comes first, and the sort key."""


class KeyListPage(Page):
    """/keys."""

    async def get(self) -> None:
        at_ms, base_url = now_ms(), self.site.base_url
        own = await self.store(own_keys.owned, self.me.user_id, at_ms)
        names = ("search", "state", "group")
        key_filter = KeyFilter(*(self.get_query_argument(name, "") for name in names))
        matching = matching_keys(own, key_filter, at_ms, base_url)
        after = self.get_query_argument("after", "")
        following = [key for key in matching if not after or key.id < after]
        page = await self.store(own_keys.with_use, following[:PAGE_KEYS], at_ms)
        current = [key for key in own if key.revoked_ms is None]
        sort = self.get_query_argument("sort", "")
        sort = sort if sort in ORDERS else LAST_USED
        greatest_first, sort_key = ORDERS[sort]
        self.show(
            "keys/list.html",
            keys=sorted(page, key=sort_key, reverse=greatest_first),
            sort=sort,
            columns=COLUMNS,
            hide=[name for name in self.get_query_argument("hide", "").split(",") if name],
            sorts=ORDERS,
            state_of=lambda key: state_of(key, at_ms, base_url),
            shapes=STATES,
            working=WORKING,
            filter=key_filter,
            query=self._query,
            groups=sorted({key.group for key in own if key.group}),
            key_groups=await self.store(key_groups),
            count_alive=len(current),
            count_found=len(matching),
            count_revoked=len(own) - len(current),
            more=page[-1].id if len(following) > PAGE_KEYS else "",
            wrong=_misdirected_keys(current, at_ms, base_url),
            at_ms=at_ms,
            client_of=client_of,
        )

    def _query(self, **changed: str) -> str:
        """Return the URL of the list with changed filters."""
        names = ("search", "state", "group", "sort", "hide")
        fields = {name: self.get_query_argument(name, "") for name in names} | changed
        return address("/keys", **fields)


def _misdirected_keys(
    own: Sequence[OwnKey], at_ms: int, base_url: str
) -> list[tuple[OwnKey, Noticed, Diagnosis]]:
    """Return the keys whose clients use a wrong base URL, each with its newest wrong path."""
    return [
        (key, *wrong)
        for key in own
        if state_of(key, at_ms, base_url) in WORKING and (wrong := misdirected(key, base_url))
    ]


class KeyPage(Page):
    """/keys/ID."""

    async def get(self, key_id: str) -> None:
        me, at_ms, base_url = self.me, now_ms(), self.site.base_url
        key = await self.store(own_keys.show, me.user_id, key_id, at_ms)
        usage = await self.store(key_usage, me.user, key_id, at_ms)
        by = self.get_query_argument("by", MEASURES[0])
        by = by if by in MEASURES else MEASURES[0]
        state = state_of(key, at_ms, base_url)
        self.show(
            "keys/one.html",
            key=key,
            stop=await self.store(_stop_of, me.user, key),
            usage=usage,
            state=state,
            shape=STATES[state],
            revoked=state == REVOKED,
            key_groups=await self.store(key_groups),
            by=by,
            measures=MEASURES,
            measure=measure,
            day_words=utc_day_text,
            shape_of=shape_of,
            failure_reason=failure_reason,
            columns=chart_columns(usage.days, by, at_ms, key.id, self.language),
            wrong=[(path, diagnose(path.path, base_url)) for path in key.wrong],
            at_ms=at_ms,
            client_of=client_of,
        )


def _stop_of(db: peewee.Database, user: str, key: OwnKey) -> KeyStop | None:
    """Return who stopped a key and why, if it was not the owner. None otherwise."""
    if key.enabled and key.revoked_ms is None:
        return None
    stop = stops_of(db, user, [key.name]).get(key.name)
    return None if stop is None or stop.actor == user else stop


def measure(sums: CallSums, by: str) -> Decimal:
    """Return the sum for one of MEASURES."""
    return Decimal(getattr(sums, by))


def chart_columns(
    days: Mapping[str, CallSums], by: str, at_ms: int, key_id: str, language: str
) -> Sequence[Column]:
    """Return a column for each of the last KEY_DAYS days, including days without calls."""
    today = datetime.fromtimestamp(at_ms / 1000, UTC).date()
    columns = []
    for back in range(KEY_DAYS - 1, -1, -1):
        day = today - timedelta(back)
        sums = days.get(day.isoformat())
        value = measure(sums, by) if sums else Decimal(0)
        since, until = f"{day}T00:00:00Z", f"{day + timedelta(1)}T00:00:00Z"
        href = address("/usage", key_id=key_id, since=since, until=until)
        tick = str(day.day) if back % 2 == (KEY_DAYS - 1) % 2 else ""
        title = f"{day_text(day, language)}: {value:,f}"
        columns.append(Column((float(value),), tick, title, href if sums else ""))
    return columns


def key_to_plain(key: OwnKey, at_ms: int, base_url: str) -> dict[str, Any]:
    """Return a key as JSON: the fields of its entry in the document, then its state and use."""
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "last_four": key.last_four,
        "group": key.group,
        "multiplier": format_multiplier(key.multiplier_ppm),
        "state": state_of(key, at_ms, base_url),
        "enabled": key.enabled,
        "models": list(key.models),
        "networks": list(key.networks),
        "limit": None if key.limit_nanos is None else format_money(key.limit_nanos),
        "limit_window": key.limit_window,
        "spent": format_money(key.spent_nanos),
        "spent_window": key.spent_window,
        "resets_at": rfc3339_or_none(key.resets_ms),
        "rpm": key.rpm,
        "tpm": key.tpm,
        "concurrency": key.concurrency,
        "created_at": rfc3339_or_none(key.created_ms),
        "expires_at": rfc3339_or_none(key.expires_ms),
        "revoked_at": rfc3339_or_none(key.revoked_ms),
        "replaced_until": rfc3339_or_none(key.replaced_until_ms),
        "last_used": last_use_to_plain(key),
        "wrong_paths": [_path_to_plain(path, base_url) for path in key.wrong],
    }


def last_use_to_plain(key: OwnKey) -> dict[str, Any] | None:
    """Return the last use of a key as JSON. None: it was never used."""
    last = key.last_use
    if last is None:
        return None
    return {"at": rfc3339(last.at_ms), "address": last.address, "user_agent": last.agent}


def group_to_plain(group: KeyGroup) -> dict[str, Any]:
    """Return a group as JSON, for the form of a new key."""
    return {
        "name": group.name,
        "multiplier": format_multiplier(group.multiplier_ppm),
        "entries": list(group.entries),
        "models": list(group.models),
        "enabled": group.enabled,
        "rpm": group.rpm,
        "tpm": group.tpm,
        "concurrency": group.concurrency,
    }


def _path_to_plain(path: Noticed, base_url: str) -> dict[str, Any]:
    diagnosis = diagnose(path.path, base_url)
    return {
        "method": path.method,
        "path": path.path,
        "calls": path.calls,
        "first_at": rfc3339_or_none(path.first_ms),
        "last_at": rfc3339_or_none(path.last_ms),
        "address": path.address,
        "user_agent": path.agent,
        "given": base_url + diagnosis.base_path if diagnosis.use is not None else None,
        "base_url": diagnosis.use,
    }


class KeyApiBase(KeyHandler, Api):
    """The base of the endpoints of keys."""

    async def answer_key(self, key: OwnKey) -> None:
        """Answer with a key and its version."""
        version = await self.store(self.owner.version, key)
        self.answer({**key_to_plain(key, now_ms(), self.site.base_url), "version": version})


class KeyListApi(KeyApiBase):
    """GET and POST /api/keys."""

    async def get(self) -> None:
        state = self.get_query_argument("state", "")
        if state and state not in STATES:
            raise invalid("state", f"state is one of {', '.join(STATES)}")
        key_filter = KeyFilter(
            self.get_query_argument("search", ""), state, self.get_query_argument("group", "")
        )
        limit = self.number("limit", API_KEYS, API_KEYS_MAX)
        after, base_url = self.get_query_argument("after", ""), self.site.base_url
        own = await self.store(own_keys.owned, self.me.user_id, now_ms())
        matching = matching_keys(own, key_filter, now_ms(), base_url)
        following = [key for key in matching if not after or key.id < after]
        page = await self.store(own_keys.with_use, following[:limit], now_ms())
        items = [key_to_plain(key, now_ms(), base_url) for key in page]
        self.answer_list(items, page[-1].id if len(following) > limit else None)

    async def post(self) -> None:
        key = await self.store(self.owner.make, values := self.body())
        secret = values["secret"] if key.secret is None else key.secret
        self.answer({"id": key.id, "secret": secret}, HTTPStatus.CREATED)


class KeyApi(KeyApiBase):
    """GET, PATCH and DELETE /api/keys/ID."""

    async def get(self, key_id: str) -> None:
        await self.answer_key(await self.store(self.owner.show, key_id))

    async def patch(self, key_id: str) -> None:
        version = self.version_in(values := self.body())
        await self.answer_key(await self.store(self.owner.change, key_id, values, version))

    async def delete(self, key_id: str) -> None:
        await self.answer_key(await self.store(self.owner.revoke, key_id))


class RotateKeyApi(KeyApiBase):
    """POST /api/keys/ID/rotate."""

    async def post(self, key_id: str) -> None:
        secret = await self.store(self.owner.rotate, key_id, self.body().get("overlap_s"))
        self.answer({"id": key_id, "secret": secret})


class EnableKeyApi(KeyApiBase):
    """POST /api/keys/ID/disable and /enable."""

    async def post(self, key_id: str, action: str) -> None:
        await self.answer_key(await self.store(self.owner.enable, key_id, action == "enable"))


class KeyGroupsApi(Api):
    """GET /api/groups: the groups in which the user may make keys, with their models."""

    async def get(self) -> None:
        allowed = await self.store(groups_for_keys, self.me.user_id, admin=self.me.admin)
        groups = await self.store(key_groups)
        items = [group_to_plain(groups[name]) for name in allowed if name in groups]
        self.answer_list(items)
