"""Keys of all users: the list, the search for a leaked secret, what is done with one."""

from collections.abc import Mapping
from urllib.parse import urlencode

from handlers.hub.admin.api import keys
from handlers.hub.admin.api.base import paging_of
from handlers.hub.admin.pages.base import AdminPage, Question, place_of
from handlers.hub.web.base import Failure
from store.admin.listing import Part
from store.hub import all_keys
from store.values.ids import now_ms

SHAPES: Mapping[str, str] = {
    keys.ACTIVE: "ok",
    keys.DISABLED: "idle",
    keys.EXPIRED: "idle",
    keys.REVOKED: "idle",
}


class List(AdminPage):
    """The list."""

    async def get(self) -> None:
        await self.show_keys()

    async def show_keys(self, problem: str = "") -> None:
        """Answer with the list; `problem`: why a secret was not found."""
        paging, chosen, at_ms = paging_of(self), keys.filter_of(self, "search"), now_ms()
        items, more = await self.store(all_keys.page, chosen, paging.limit, paging.after, at_ms)
        self.show_list(
            "keys",
            Part([keys.public(key, at_ms) for key in items], more),
            paging,
            narrowed=bool(chosen.user),
            shapes=SHAPES,
            user=chosen.user,
            problem=problem,
        )


class Find(List):
    """The search for the key of a secret, which leads to its row."""

    async def get(self) -> None:
        self.redirect(place_of("keys"), status=303)

    async def post(self) -> None:
        try:
            key = await keys.find(self, self.get_body_argument("secret", ""))
        except Failure as failure:
            self.set_status(failure.status_code)
            await self.show_keys(failure.message)
            return
        self.redirect(f"{place_of('keys')}?{urlencode({'search': key.key.id})}", status=303)


class Switch(AdminPage):
    """Enables and disables a key; the toast takes it back."""

    async def get(self, key_id: str, action: str) -> None:
        self.redirect(place_of("keys"), status=303)

    async def post(self, key_id: str, action: str) -> None:
        enabled = action == "enable"
        key = await keys.switch(self, key_id, enabled=enabled)
        undo = place_of("keys", key_id, "disable" if enabled else "enable")
        word = "done_enabled" if enabled else "done_disabled"
        self.say(self.words[f"admin.{word}"].format(name=f"{key.user}/{key.key.name}"), undo)
        self.redirect(f"{place_of('keys')}?{urlencode({'user': key.user})}", status=303)


class Revoke(AdminPage):
    """The question whether a key is ended for good."""

    async def get(self, key_id: str) -> None:
        await self._ask(key_id)

    async def post(self, key_id: str) -> None:
        key = await self.store(all_keys.show, key_id, now_ms())
        if problem := self.confirmed(key.key.name):
            await self._ask(key_id, problem)
            return
        await keys.revoke(self, key_id)
        name = f"{key.user}/{key.key.name}"
        self.say(self.words["admin.done_revoked"].format(name=name))
        self.redirect(f"{place_of('keys')}?{urlencode({'user': key.user})}", status=303)

    async def _ask(self, key_id: str, problem: str = "") -> None:
        key = await self.store(all_keys.show, key_id, now_ms())
        question = Question(
            title=self.words["admin.revoke_of"].format(name=key.key.name, user=key.user),
            effect=self.words["keys.revoke_help"],
            name=key.key.name,
            action=place_of("keys", key_id, "revoke"),
            button=self.words["keys.revoke"],
            back=place_of("keys"),
        )
        self.ask(question, problem)
