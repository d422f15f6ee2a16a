"""The forms of a key: create, change, rotate, revoke. A secret is shown only once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from adapters.registry import LOSSES
from handlers.hub.keys.keys import KeyHandler, group_to_plain, key_to_plain
from handlers.hub.keys.setup import FIRST_CLIENT, offers_of, panels
from handlers.hub.web.base import Failure, Page, invalid, or_refused
from handlers.hub.web.refusals import beside
from operations.client_settings import CLIENTS
from store.catalog import keys, wrong_paths
from store.channels.offers import native_model
from store.db.versions import Outdated, outdated_of
from store.hub.membership import groups_for_keys, key_groups
from store.hub.own_keys import OwnKey
from store.values.fields import Instant
from store.values.ids import DAY_MS, now_ms
from store.values.key_secrets import GIVEN_SECRET
from store.values.times import NEVER, WINDOWS

OVERLAPS = (keys.OVERLAP_S, 3600, 0)
ENV_NAME = "SLUICE_API_KEY"
EXPIRIES: Mapping[str, int] = {"1": 1, "30": 30, "90": 90}
"""The form's choices, in days from now. It also offers "never" and a date."""
LIMIT_WINDOWS = (NEVER, *WINDOWS)
NUMBERS = ("rpm", "tpm", "concurrency")
FIELDS = (
    *("name", "group", "expires", "date", "expires_at", "limit", "limit_window", "models"),
    *("networks", *NUMBERS, "version"),
)
_PLACES = {**{name: name for name in FIELDS}, "expires_at": "date"}  # of problems in the form
_SEPARATORS = re.compile(r"[\s,;]+")
_NUMBER = re.compile(r"[0-9]{1,19}")  # more digits than any limit has
_UNSAFE_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_INSTANT = Instant()


@dataclass(frozen=True, slots=True)
class KeyForm:
    """The fields of a form. `problems`: a sentence for each wrong field; "" is for the whole
    form."""

    fields: Mapping[str, str] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """Return the text of a field."""
        return self.fields.get(name, "")

    def wrong(self, name: str) -> str:
        """Return the problem of a field."""
        return self.problems.get(name, "")


NEW_KEY = KeyForm({"group": "default", "expires": "never", "limit_window": "month"})


def values_of(fields: Mapping[str, str], at_ms: int) -> dict[str, object]:
    """Return the document's values for a form. Unreadable values stay text, which is refused
    later."""
    values: dict[str, object] = {
        "group": fields["group"],
        "expires_at": _expires_at(fields, at_ms),
        "limit": fields["limit"].strip() or None,
        "limit_window": fields["limit_window"] or NEVER,
        "models": _split(fields["models"]),
        "networks": _split(fields["networks"]),
    }
    for name in NUMBERS:
        text = fields[name].strip()
        values[name] = int(text) if _NUMBER.fullmatch(text) else text or 0
    return values


def fields_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the form's fields for a key's document values. The form shows only the date of an
    expiry, but also submits the exact time."""
    expires_at = values["expires_at"] or ""
    return {
        "name": values["name"],
        "group": values["group"],
        "expires": "date" if expires_at else "never",
        "date": expires_at.partition("T")[0],
        "expires_at": expires_at,
        "limit": values["limit"] or "",
        "limit_window": values["limit_window"],
        "models": ", ".join(values["models"]),
        "networks": ", ".join(values["networks"]),
        **{name: str(values[name] or "") for name in NUMBERS},
    }


def _expires_at(fields: Mapping[str, str], at_ms: int) -> str | None:
    choice, date, stored = fields["expires"], fields["date"], fields.get("expires_at", "")
    if choice in EXPIRIES:
        return _INSTANT.plain(at_ms - at_ms % 1000 + EXPIRIES[choice] * DAY_MS)
    if choice != "date":
        return None
    if date and stored.startswith(f"{date}T"):
        return stored
    expires_at = f"{date}T00:00:00Z"
    if expires_at <= _INSTANT.plain(at_ms):
        raise invalid("expires_at", "expires_at is not in the future")
    return expires_at


def _split(text: str) -> list[str]:
    return [part for part in _SEPARATORS.split(text) if part]


class KeyFormPage(KeyHandler, Page):
    """The base of the forms of a key."""

    async def key(self, key_id: str) -> OwnKey:
        """Return a key of this user. Raises Failure 404."""
        return await self.store(self.owner.show, key_id)

    def fields(self) -> dict[str, str]:
        """Return the submitted fields."""
        return {name: self.get_body_argument(name, "") for name in FIELDS}

    async def stored_fields(self, key: OwnKey, **merged: Any) -> dict[str, str]:
        """Return the fields for the form of a stored key. `merged`: values that replace its own."""
        values = key_to_plain(key, now_ms(), self.site.base_url)
        version = await self.store(self.owner.version, key)
        return {**fields_of({**values, **merged}), "version": version}

    async def form(
        self, form: KeyForm, key: OwnKey | None = None, outdated: Outdated | None = None
    ) -> None:
        """Render the form of a new or existing key. `outdated`: changes made since the form was
        opened."""
        groups = await self.store(key_groups)
        allowed = await self.store(groups_for_keys, self.me.user_id, admin=self.me.admin)
        if key is not None and key.group and key.group not in allowed:
            allowed = [key.group, *allowed]
        self.show(
            "keys/form.html",
            key=key,
            form=form,
            outdated=outdated,
            groups=[group_to_plain(groups[name]) for name in allowed if name in groups],
            expiries=EXPIRIES,
            limit_windows=LIMIT_WINDOWS,
        )

    async def refuse(self, failure: Failure, key_id: str = "") -> None:
        """Render the form again, as it was submitted, with its problem."""
        if failure.status_code not in (400, 403, 409):
            raise failure
        key = await self.key(key_id) if key_id else None
        if key and (outdated := outdated_of(failure)):
            fields = await self.stored_fields(key, **outdated.merged)
            await self.form(KeyForm(fields), key, outdated)
            return
        fields = self.fields() | ({"name": key.name} if key else {})
        texts = failure.problems or {failure.field or "": failure.message}
        problems = {
            _PLACES.get(name, ""): self.in_words(beside(name, text)) for name, text in texts.items()
        }
        if failure.status_code == HTTPStatus.CONFLICT:
            problems = {"name": self.words["keys.name_taken"]}
        await self.form(KeyForm(fields, problems), key)

    async def show_secret(self, key_id: str, secret: str, *, rotated: bool = False) -> None:
        """Render the page that shows a secret, once."""
        key = await self.key(key_id)
        group = (await self.store(key_groups)).get(key.group)
        offers = await self.store(offers_of, key)
        self.show(
            "keys/made.html",
            key=key,
            group=group,
            secret=secret,
            rotated=rotated,
            model=native_model(offers, CLIENTS[FIRST_CLIENT].family, LOSSES),
            panels=panels(
                self.site.base_url, secret, lambda family: native_model(offers, family, LOSSES)
            ),
        )


class NewKeyForm(KeyFormPage):
    """/keys/new."""

    async def get(self) -> None:
        query = {name: self.get_query_argument(name, "") for name in ("group", "name")}
        chosen = {name: value for name, value in query.items() if value}
        await self.form(KeyForm({**NEW_KEY.fields, **chosen}))

    @or_refused
    async def post(self) -> None:
        fields = self.fields()
        values = {"name": fields["name"], **values_of(fields, now_ms())}
        key = await self.store(self.owner.make, values)
        assert key.secret is not None  # the form has no field for it
        await self.show_secret(key.id, key.secret)


class EditKeyForm(KeyFormPage):
    """/keys/ID/edit."""

    async def get(self, key_id: str) -> None:
        key = await self.key(key_id)
        await self.form(KeyForm(await self.stored_fields(key)), key)

    @or_refused
    async def post(self, key_id: str) -> None:
        fields = self.fields()
        values = values_of(fields, now_ms())
        key = await self.store(self.owner.change, key_id, values, fields["version"] or None)
        self.say(self.words["keys.changed"].format(name=key.name))
        self.redirect(f"/keys/{key_id}", status=303)


class RotateKeyForm(KeyFormPage):
    """/keys/ID/rotate: gives a key a new secret."""

    async def get(self, key_id: str) -> None:
        self.show("keys/rotate.html", key=await self.key(key_id), overlaps=OVERLAPS)

    async def post(self, key_id: str) -> None:
        text = self.get_body_argument("overlap_s", "")
        overlap_s = int(text) if text in map(str, OVERLAPS) else None
        secret = await self.store(self.owner.rotate, key_id, overlap_s)
        await self.show_secret(key_id, secret, rotated=True)


class RevokeKeyForm(KeyFormPage):
    """/keys/ID/revoke: revokes a key permanently after its name was typed."""

    async def get(self, key_id: str) -> None:
        self.show("keys/revoke.html", key=await self.key(key_id), differs=False)

    async def post(self, key_id: str) -> None:
        key = await self.key(key_id)
        if self.get_body_argument("confirm", "") != key.name:
            self.set_status(HTTPStatus.BAD_REQUEST)
            self.show("keys/revoke.html", key=key, differs=True)
            return
        await self.store(self.owner.revoke, key_id)
        self.say(self.words["keys.revoked_done"].format(name=key.name))
        self.redirect("/keys", status=303)


class KeyAction(KeyFormPage):
    """A button of a key. A GET of its path redirects to the key."""

    async def get(self, key_id: str, action: str) -> None:
        await self.key(key_id)
        self.redirect(f"/keys/{key_id}", status=303)


class EnableKeyAction(KeyAction):
    """/keys/ID/enable and /disable."""

    async def post(self, key_id: str, action: str) -> None:
        enabled = action == "enable"
        key = await self.store(self.owner.enable, key_id, enabled)
        text = self.words["keys.enabled_done" if enabled else "keys.disabled_done"]
        undo = "disable" if enabled else "enable"
        self.say(text.format(name=key.name), undo=f"/keys/{key_id}/{undo}")
        self.redirect(self.page_before(f"/keys/{key_id}", "/keys"), status=303)


class DismissPathsAction(KeyAction):
    """/keys/ID/dismiss and /restore: hides the wrong paths of a key, or shows them again."""

    async def post(self, key_id: str, action: str) -> None:
        key = await self.key(key_id)
        dismissed = action == "dismiss"
        await self.store(wrong_paths.dismiss, key.id, dismissed=dismissed)
        if dismissed:
            self.say(self.words["keys.dismissed_done"], undo=f"/keys/{key_id}/restore")
        self.redirect(f"/keys/{key_id}", status=303)


class EnvFile(KeyFormPage):
    """/keys/env: downloads a new secret as a file, since a browser without script cannot create
    files."""

    async def get(self) -> None:
        self.redirect("/keys", status=303)

    async def post(self) -> None:
        secret, name = self.get_body_argument("secret"), self.get_body_argument("name", "key")
        if not GIVEN_SECRET.fullmatch(secret):
            raise invalid("secret", "this is no secret")
        file_name = _UNSAFE_IN_FILE_NAMES.sub("-", name).strip("-.") or "key"
        lines = {ENV_NAME: secret, "SLUICE_BASE_URL": self.site.base_url}
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="{file_name}.env"')
        self.finish("".join(f"{name}={value}\n" for name, value in lines.items()))
