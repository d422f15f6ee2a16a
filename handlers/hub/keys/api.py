"""The JSON API of keys: a user's own, never those of others."""

from http import HTTPStatus
from typing import Any

from handlers.hub.keys import changes
from handlers.hub.keys.changes import Owner
from handlers.hub.keys.shown import STATES, Wanted, group_to_plain, in_order, to_plain
from handlers.hub.web.base import Api, Failure
from store.hub import own_keys
from store.hub.key_groups import groups_for_keys, key_groups
from store.hub.own_keys import OwnKey
from store.values.ids import now_ms

DEFAULT_LIMIT, MAX_LIMIT = 100, 200


class KeysApi(Api):
    """What endpoints of keys share."""

    @property
    def owner(self) -> Owner:
        """Who asks."""
        assert self.signed_in is not None
        return Owner(self.signed_in, self.site.sealing)

    def shown(self, key: OwnKey) -> dict[str, Any]:
        """A key as JSON says it."""
        return to_plain(key, now_ms(), self.site.base_url)


class ApiKeys(KeysApi):
    """GET and POST /api/keys."""

    async def get(self) -> None:
        me = self.owner.me
        state = self.get_query_argument("state", "")
        if state and state not in STATES:
            told = f"state is one of {', '.join(STATES)}"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "state")
        wanted = Wanted(
            self.get_query_argument("search", ""), state, self.get_query_argument("group", "")
        )
        limit, after = (
            self.number("limit", DEFAULT_LIMIT, MAX_LIMIT),
            self.get_query_argument("after", ""),
        )
        everything = await self.store(own_keys.owned, me.user_id, now_ms())
        found = in_order(everything, wanted, now_ms(), self.site.base_url)
        left = [key for key in found if not after or key.id < after]
        page = await self.store(own_keys.with_use, left[:limit], now_ms())
        more = page[-1].id if len(left) > limit else None
        self.answer({"items": [self.shown(key) for key in page], "next": more})

    async def post(self) -> None:
        made = await self.store(changes.make, self.owner, values := self.body())
        secret = values["secret"] if made.secret is None else made.secret
        self.answer({"id": made.id, "secret": secret}, HTTPStatus.CREATED)


class ApiKey(KeysApi):
    """GET, PATCH and DELETE /api/keys/ID."""

    async def get(self, key_id: str) -> None:
        key = await self.store(own_keys.show, self.owner.me.user_id, key_id, now_ms())
        self.answer(self.shown(key))

    async def patch(self, key_id: str) -> None:
        key = await self.store(changes.change, self.owner, key_id, self.body())
        self.answer(self.shown(key))

    async def delete(self, key_id: str) -> None:
        await self.store(changes.revoke, self.owner, key_id)
        key = await self.store(own_keys.show, self.owner.me.user_id, key_id, now_ms())
        self.answer(self.shown(key))


class ApiKeyRotate(KeysApi):
    """POST /api/keys/ID/rotate."""

    async def post(self, key_id: str) -> None:
        overlap_s = self.body().get("overlap_s")
        secret = await self.store(changes.rotate, self.owner, key_id, overlap_s)
        self.answer({"id": key_id, "secret": secret})


class ApiKeySwitch(KeysApi):
    """POST /api/keys/ID/disable and /enable."""

    async def post(self, key_id: str, action: str) -> None:
        key = await self.store(changes.set_enabled, self.owner, key_id, action == "enable")
        self.answer(self.shown(key))


class ApiGroups(Api):
    """GET /api/groups: those in which one may make keys, with what they offer."""

    async def get(self) -> None:
        assert self.signed_in is not None
        me = self.signed_in
        allowed = await self.store(groups_for_keys, me.user_id, admin=me.admin)
        known = await self.store(key_groups)
        items = [group_to_plain(known[name]) for name in allowed if name in known]
        self.answer({"items": items, "next": None})
