"""Keys of all users: listing them, finding one by a leaked secret, enabling, disabling,
revoking."""

from collections.abc import Mapping
from typing import Any

from handlers.hub.keys import keys as own_keys
from handlers.hub.keys.keys import last_use_to_plain
from handlers.hub.web.admin import ActionPage, AdminApi, AdminPage, ConfirmationPage, path_of
from handlers.hub.web.base import Failure, HubHandler, invalid
from handlers.hub.web.formats import address
from store.admin.listing import ListPage
from store.catalog import keys
from store.hub import all_keys
from store.hub.all_keys import Filter, UserKey
from store.values.ids import now_ms
from store.values.key_secrets import MAX_SECRET_CHARS
from store.values.pricing import format_money
from store.values.usage_record import rfc3339, rfc3339_or_none

ACTIVE, DISABLED, EXPIRED, REVOKED = "active", "disabled", "expired", "revoked"
USER = "user"  # the value of `back` in forms on a user's page


def state_of(key: UserKey, at_ms: int) -> str:
    """Return the state of a key for administrators: whether the gateway accepts it at all."""
    own = key.key
    if own.revoked_ms is not None:
        return REVOKED
    if not own.enabled:
        return DISABLED
    return EXPIRED if own.expires_ms is not None and own.expires_ms <= at_ms else ACTIVE


def to_plain(key: UserKey, at_ms: int) -> dict[str, Any]:
    """Return a key as JSON. `spent` is the spend in its limit's window, or in the month without a
    limit."""
    own = key.key
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
        "created_at": rfc3339(own.created_ms),
        "expires_at": rfc3339_or_none(own.expires_ms),
        "revoked_at": rfc3339_or_none(own.revoked_ms),
        "last_used": last_use_to_plain(own),
    }


def filter_of(handler: HubHandler, text: str) -> Filter:
    """Return the filter in the query. `text`: the name of the argument with the text."""
    argument = handler.get_query_argument
    return Filter(argument("user", "").strip(), argument(text, "").strip())


async def find(handler: HubHandler, secret: object) -> UserKey:
    """Return the key that has a secret. Raises Failure."""
    if not isinstance(secret, str) or not 0 < len(secret := secret.strip()) <= MAX_SECRET_CHARS:
        message = f"secret must be the whole secret, of at most {MAX_SECRET_CHARS} characters"
        raise invalid("secret", message)
    peppers = handler.site.sealing.peppers
    return await handler.store(all_keys.find_by_secret, secret, peppers, handler.me.user, now_ms())


async def switch(handler: HubHandler, key_id: str, *, enabled: bool, reason: str = "") -> UserKey:
    """Enable or disable a key. The owner sees the reason. Raises Failure."""
    await handler.store(keys.set_key_enabled, key_id, enabled, handler.me.user, reason)
    return await handler.store(all_keys.show, key_id, now_ms())


async def revoke(handler: HubHandler, key_id: str, reason: str = "") -> UserKey:
    """Revoke a key permanently. The owner sees the reason. Raises Failure."""
    await handler.store(keys.revoke, key_id, handler.me.user, reason)
    return await handler.store(all_keys.show, key_id, now_ms())


def reason_of(body: Mapping[str, Any]) -> str:
    """Return why a key is disabled or revoked. Raises Failure."""
    reason = body.get("reason", "")
    if not isinstance(reason, str):
        raise invalid("reason", "reason must be a string")
    return reason.strip()


class AllKeysApi(AdminApi):
    """GET /api/admin/keys."""

    async def get(self) -> None:
        after, at_ms = self.get_query_argument("after", ""), now_ms()
        key_filter, limit = filter_of(self, "text"), self.limit()
        items, following = await self.store(all_keys.page, key_filter, limit, after, at_ms)
        self.answer_list([to_plain(key, at_ms) for key in items], following)


class FindKeyApi(AdminApi):
    """POST /api/admin/keys/find."""

    async def post(self) -> None:
        key = await find(self, self.fields("secret").get("secret"))
        self.answer(to_plain(key, now_ms()))


class SwitchKeyApi(AdminApi):
    """POST /api/admin/keys/ID/enable and /disable."""

    async def post(self, key_id: str, action: str) -> None:
        reason = reason_of(self.fields("reason"))
        key = await switch(self, key_id, enabled=action == "enable", reason=reason)
        self.answer(to_plain(key, now_ms()))


class AnyKeyApi(AdminApi):
    """GET and DELETE /api/admin/keys/ID."""

    async def get(self, key_id: str) -> None:
        key = await self.store(all_keys.show, key_id, now_ms())
        self.answer(to_plain(key, now_ms()))

    async def delete(self, key_id: str) -> None:
        reason = self.get_query_argument("reason", "").strip()
        self.answer(to_plain(await revoke(self, key_id, reason), now_ms()))


class AllKeysPage(AdminPage):
    """The list."""

    async def get(self) -> None:
        await self.show_keys()

    async def show_keys(self, problem: str = "") -> None:
        """Render the list. `problem`: why no key was found for a secret."""
        paging, key_filter, at_ms = self.paging(), filter_of(self, "search"), now_ms()
        keys_page = await self.store(all_keys.page, key_filter, paging.limit, paging.after, at_ms)
        items, following = keys_page
        self.show_list(
            "keys",
            ListPage([to_plain(key, at_ms) for key in items], following),
            paging,
            narrowed=bool(key_filter.user),
            shapes=own_keys.STATES,
            states={
                key.key.id: own_keys.state_of(key.key, at_ms, self.site.base_url) for key in items
            },
            user=key_filter.user,
            problem=problem,
        )


class KeyAction(ActionPage):
    """The target of a form in the list."""

    plural = "keys"


class FindKeyPage(KeyAction, AllKeysPage):
    """Finds the key that has a secret, and redirects to its row."""

    async def post(self) -> None:
        try:
            key = await find(self, self.get_body_argument("secret", ""))
        except Failure as failure:
            self.set_status(failure.status_code)
            await self.show_keys(self.in_words(failure.message))
            return
        self.redirect(address(path_of("keys"), search=key.key.id), status=303)


class SwitchKeyPage(KeyAction):
    """Enables and disables a key. The toast has an Undo."""

    async def post(self, key_id: str, action: str) -> None:
        enabled = action == "enable"
        key = await switch(self, key_id, enabled=enabled)
        back = self.page_before(path_of_user(key), f"{path_of('users', key.user)}#keys")
        self.done_switched(label_of(key), path_of("keys", key_id), back, enabled=enabled)


class RevokeKeyPage(ConfirmationPage):
    """Revokes a key after its name was typed."""

    async def prepare_question(self, key_id: str) -> None:
        key = await self.store(all_keys.show, key_id, now_ms())
        texts = ("admin.revoke_of", "keys.revoke_help", "keys.revoke")
        action, back = path_of("keys", key_id, "revoke"), path_of("keys")
        if self.get_argument("back", "") == USER:
            action, back = f"{action}?back={USER}", path_back(self, key)
        self.ask(texts, key.key.name, action, back, user=key.user)
        self.confirmation.takes_reason = True

    async def confirmed(self, key_id: str) -> None:
        key = await revoke(self, key_id, self.get_body_argument("reason", "").strip())
        self.done("done_revoked", path_back(self, key), name=label_of(key))


def label_of(key: UserKey) -> str:
    """Return a key as USER/NAME."""
    return f"{key.user}/{key.key.name}"


def path_back(handler: AdminPage, key: UserKey) -> str:
    """Return the path of the page that a form was sent from: the page of the key's user, or the
    list."""
    if handler.get_argument("back", "") == USER:
        return path_of("users", key.user) + "#keys"
    return path_of_user(key)


def path_of_user(key: UserKey) -> str:
    """Return the path of the list with the keys of a key's user."""
    return address(path_of("keys"), user=key.user)
