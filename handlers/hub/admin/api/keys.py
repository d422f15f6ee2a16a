"""Keys of all users: listed, found by a leaked secret, switched off, revoked."""

from http import HTTPStatus
from typing import Any

from handlers.hub.admin.api.base import AdminApi, actor_of, limit_of
from handlers.hub.web.base import Failure, HubHandler
from store.catalog import keys
from store.hub import all_keys
from store.hub.all_keys import Filter, UserKey
from store.values.ids import now_ms
from store.values.key_secrets import MAX_SECRET_CHARS
from store.values.pricing import format_money
from store.values.usage_record import rfc3339

ACTIVE, DISABLED, EXPIRED, REVOKED = "active", "disabled", "expired", "revoked"


def state_of(key: UserKey, at_ms: int) -> str:
    """State of a key for administrators: whether it may open the gateway at all."""
    own = key.key
    if own.revoked_ms is not None:
        return REVOKED
    if not own.enabled:
        return DISABLED
    return EXPIRED if own.expires_ms is not None and own.expires_ms <= at_ms else ACTIVE


def public(key: UserKey, at_ms: int) -> dict[str, Any]:
    """A key as JSON; `spent` is of the window of its limit, without a limit of the month."""
    own, last = key.key, key.key.last_use
    times = {
        "created_at": own.created_ms,
        "expires_at": own.expires_ms,
        "revoked_at": own.revoked_ms,
    }
    return {
        "id": own.id,
        "user": key.user,
        "name": own.name,
        "group": own.group,
        "state": state_of(key, at_ms),
        "prefix": own.prefix,
        "last_four": own.last_four,
        "spent": format_money(own.spent_nanos),
        "spent_window": own.spent_window,
        "limit": None if own.limit_nanos is None else format_money(own.limit_nanos),
        **{name: None if ms is None else rfc3339(ms) for name, ms in times.items()},
        "last_used": last
        and {"at": rfc3339(last.at_ms), "address": last.address, "user_agent": last.agent},
    }


def filter_of(handler: HubHandler, text: str) -> Filter:
    """The filter of a query; `text` names the argument with the text."""
    argument = handler.get_query_argument
    return Filter(argument("user", "").strip(), argument(text, "").strip())


async def find(handler: HubHandler, secret: object) -> UserKey:
    """The key of a secret. Raises Failure."""
    if not isinstance(secret, str) or not 0 < len(secret := secret.strip()) <= MAX_SECRET_CHARS:
        message = f"secret must be the whole secret, of at most {MAX_SECRET_CHARS} characters"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", message, "secret")
    peppers = handler.site.sealing.peppers
    return await handler.store(
        all_keys.find_by_secret, secret, peppers, actor_of(handler), now_ms()
    )


async def switch(handler: HubHandler, key_id: str, *, enabled: bool) -> UserKey:
    """Enable or disable a key. Raises Failure."""
    await handler.store(keys.set_key_enabled, key_id, enabled, actor_of(handler))
    return await handler.store(all_keys.show, key_id, now_ms())


async def revoke(handler: HubHandler, key_id: str) -> UserKey:
    """End a key for good. Raises Failure."""
    await handler.store(keys.revoke, key_id, actor_of(handler))
    return await handler.store(all_keys.show, key_id, now_ms())


class List(AdminApi):
    """GET /api/admin/keys."""

    async def get(self) -> None:
        after, at_ms = self.get_query_argument("after", ""), now_ms()
        chosen, limit = filter_of(self, "text"), limit_of(self)
        items, more = await self.store(all_keys.page, chosen, limit, after, at_ms)
        self.answer({"items": [public(key, at_ms) for key in items], "next": more})


class Find(AdminApi):
    """POST /api/admin/keys/find."""

    async def post(self) -> None:
        given = self.body()
        self.known(given, "secret")
        self.answer(public(await find(self, given.get("secret")), now_ms()))


class Switch(AdminApi):
    """POST /api/admin/keys/ID/enable and /disable."""

    async def post(self, key_id: str, action: str) -> None:
        key = await switch(self, key_id, enabled=action == "enable")
        self.answer(public(key, now_ms()))


class One(AdminApi):
    """GET and DELETE /api/admin/keys/ID."""

    async def get(self, key_id: str) -> None:
        key = await self.store(all_keys.show, key_id, now_ms())
        self.answer(public(key, now_ms()))

    async def delete(self, key_id: str) -> None:
        self.answer(public(await revoke(self, key_id), now_ms()))
