"""Pages that make, change, exchange and end a key. A secret is in the one answer that made it."""

import re
from http import HTTPStatus
from typing import Any

from handlers.hub.keys import changes, forms
from handlers.hub.keys.changes import Owner
from handlers.hub.keys.forms import Typed
from handlers.hub.keys.shown import group_to_plain
from handlers.hub.keys.snippets import Values, panels
from handlers.hub.web.base import Failure, Page
from store.catalog import keys, wrong_paths
from store.hub import own_keys
from store.hub.key_groups import groups_for_keys, key_groups
from store.hub.own_keys import OwnKey
from store.values.ids import now_ms
from store.values.key_secrets import GIVEN_SECRET
from store.values.pricing import format_money

OVERLAPS = (keys.OVERLAP_S, 3600, 0)
ENV_NAME = "SLUICE_API_KEY"
_NOT_OF_A_FILE = re.compile(r"[^A-Za-z0-9._-]+")
NEW = Typed({"group": "default", "expires": "never", "limit_window": "month"})


class KeyPage(Page):
    """What these pages share."""

    @property
    def owner(self) -> Owner:
        """Who asks."""
        assert self.signed_in is not None
        return Owner(self.signed_in, self.site.sealing)

    async def key(self, key_id: str) -> OwnKey:
        """A key of this user. Raises Failure 404."""
        return await self.store(own_keys.show, self.owner.me.user_id, key_id, now_ms())

    def typed(self) -> dict[str, str]:
        """What stands in the form."""
        return {name: self.get_body_argument(name, "") for name in forms.FIELDS}

    async def form(self, typed: Typed, key: OwnKey | None = None) -> None:
        """Answers with the form of a new key, or of one that there is."""
        me = self.owner.me
        known = await self.store(key_groups)
        allowed = await self.store(groups_for_keys, me.user_id, admin=me.admin)
        if key is not None and key.group and key.group not in allowed:
            allowed = [key.group, *allowed]
        self.show(
            "keys/form.html",
            key=key,
            typed=typed,
            groups=[group_to_plain(known[name]) for name in allowed if name in known],
            expiries=forms.EXPIRIES,
            limit_windows=forms.LIMIT_WINDOWS,
        )

    async def made(self, key_id: str, secret: str, *, rotated: bool = False) -> None:
        """Answers with a secret, this once."""
        key = await self.key(key_id)
        known = await self.store(key_groups)
        group = known.get(key.group)
        models = list(key.models or (group.models if group else ()))
        model = models[0] if models else None
        self.show(
            "keys/made.html",
            key=key,
            group=group,
            secret=secret,
            rotated=rotated,
            model=model,
            format_money=format_money,
            panels=panels(Values(self.site.base_url, secret, model)),
        )


class New(KeyPage):
    """The form of a new key, and what it sends."""

    async def get(self) -> None:
        asked = {name: self.get_query_argument(name, "") for name in ("group", "name")}
        given = {name: value for name, value in asked.items() if value}
        await self.form(Typed({**NEW.fields, **given}))

    async def post(self) -> None:
        fields = self.typed()
        values = {"name": fields["name"], **forms.values_of(fields, now_ms())}
        try:
            made = await self.store(changes.make, self.owner, values)
        except Failure as failure:
            await _again(self, failure, fields)
            return
        assert made.secret is not None  # none was given
        await self.made(made.id, made.secret)


class Edit(KeyPage):
    """The form of a key, and what it sends."""

    async def get(self, key_id: str) -> None:
        key = await self.key(key_id)
        await self.form(Typed(forms.fields_of(key)), key)

    async def post(self, key_id: str) -> None:
        key, fields = await self.key(key_id), self.typed()
        values = forms.changed(forms.values_of(fields, now_ms()), key)
        try:
            await self.store(changes.change, self.owner, key_id, values)
        except Failure as failure:
            await _again(self, failure, {**fields, "name": key.name}, key)
            return
        self.say(self.words["keys.changed"].format(name=key.name))
        self.redirect(f"/keys/{key_id}", status=303)


async def _again(
    page: KeyPage, failure: Failure, fields: dict[str, str], key: OwnKey | None = None
) -> None:
    """The form with what was typed and what is wrong with it."""
    if failure.status_code not in (400, 403, 409):
        raise failure
    page.set_status(failure.status_code)
    field = failure.field or ""
    name = {"expires_at": "date"}.get(field, field)
    problem = failure.message
    if failure.status_code == HTTPStatus.CONFLICT:
        problem = page.words["keys.name_taken"]
    await page.form(Typed(fields, problem, name if name in forms.FIELDS else ""), key)


class Rotate(KeyPage):
    """Gives a key a new secret."""

    async def get(self, key_id: str) -> None:
        self.show("keys/rotate.html", key=await self.key(key_id), overlaps=OVERLAPS)

    async def post(self, key_id: str) -> None:
        text = self.get_body_argument("overlap_s", "")
        overlap_s = int(text) if text in map(str, OVERLAPS) else None
        secret = await self.store(changes.rotate, self.owner, key_id, overlap_s)
        await self.made(key_id, secret, rotated=True)


class Revoke(KeyPage):
    """Ends a key for good, when its name was typed."""

    async def get(self, key_id: str) -> None:
        self.show("keys/revoke.html", key=await self.key(key_id), differs=False)

    async def post(self, key_id: str) -> None:
        key = await self.key(key_id)
        if self.get_body_argument("confirm", "") != key.name:
            self.set_status(HTTPStatus.BAD_REQUEST)
            self.show("keys/revoke.html", key=key, differs=True)
            return
        await self.store(changes.revoke, self.owner, key_id)
        self.say(self.words["keys.revoked_done"].format(name=key.name))
        self.redirect("/keys", status=303)


class Switch(KeyPage):
    """Disables or enables a key."""

    async def get(self, key_id: str, action: str) -> None:
        await self.key(key_id)
        self.redirect(f"/keys/{key_id}", status=303)

    async def post(self, key_id: str, action: str) -> None:
        enabled = action == "enable"
        key = await self.store(changes.set_enabled, self.owner, key_id, enabled)
        said = self.words["keys.enabled_done" if enabled else "keys.disabled_done"]
        undo = "disable" if enabled else "enable"
        self.say(said.format(name=key.name), undo=f"/keys/{key_id}/{undo}")
        self.redirect(_back(self, key_id), status=303)


class Dismiss(KeyPage):
    """Shows the wrong paths of a key no more, or again."""

    async def get(self, key_id: str, action: str) -> None:
        await self.key(key_id)
        self.redirect(f"/keys/{key_id}", status=303)

    async def post(self, key_id: str, action: str) -> None:
        key = await self.key(key_id)
        dismissed = action == "dismiss"
        await self.store(wrong_paths.dismiss, key.id, dismissed=dismissed)
        if dismissed:
            self.say(self.words["keys.dismissed_done"], undo=f"/keys/{key_id}/restore")
        self.redirect(f"/keys/{key_id}", status=303)


class Env(KeyPage):
    """A secret that was just made, as a file: without a script a browser can save none."""

    async def get(self) -> None:
        self.redirect("/keys", status=303)

    async def post(self) -> None:
        secret, name = self.get_body_argument("secret"), self.get_body_argument("name", "key")
        if not GIVEN_SECRET.fullmatch(secret):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "this is no secret", "secret")
        called = _NOT_OF_A_FILE.sub("-", name).strip("-.") or "key"
        lines = {ENV_NAME: secret, "SLUICE_BASE_URL": self.site.base_url}
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{called}.env"')
        self.finish("".join(f"{name}={value}\n" for name, value in lines.items()))


def _back(page: Any, key_id: str) -> str:
    """The list when it was asked for from there, else the page of the key."""
    return "/keys" if page.get_body_argument("back", "") == "list" else f"/keys/{key_id}"
