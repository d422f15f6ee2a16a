"""How a user signs in beside the password: one-time codes, accounts of the OpenID provider.

What oneself signs in with is changed under Account, where the password is asked for.
"""

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.admin.api.base import AdminApi, actor_of
from handlers.hub.web.base import Failure, HubHandler
from store.admin import listing
from store.hub import one_time, openid_links
from store.hub.openid_links import Link
from store.values.usage_record import rfc3339


@dataclass(frozen=True, slots=True)
class WaysIn:
    """What is asked for after the password, and which accounts sign in without it."""

    totp: bool
    links: list[Link]


def of_user(db: peewee.Database, name: str) -> WaysIn:
    """Those of a user. Raises NotFound."""
    user_id = listing.one(db, "user", name)["id"]
    return WaysIn(one_time.asked_for(db, user_id), openid_links.of_user(db, user_id))


async def end_codes(handler: HubHandler, name: str) -> bool:
    """Ask a user for no one-time codes any more; False: none were asked for. Raises Failure."""
    _not_oneself(handler, name)
    return await handler.store(one_time.end, name, actor_of(handler))


async def link(handler: HubHandler, name: str, subject: str) -> str:
    """Let an account of the provider sign in as a user; the link's id. Raises Failure."""
    issuer = handler.site.settings.hub.oidc_issuer
    if not issuer:
        told = "hub.oidc_issuer is not set: there is no provider to link to"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told)
    _not_oneself(handler, name)
    return await handler.store(openid_links.link, name, issuer, subject, actor_of(handler))


async def unlink(handler: HubHandler, name: str, link_id: str) -> None:
    """End a link of a user. Raises Failure."""
    user = await handler.store(listing.one, "user", name)
    await handler.store(openid_links.unlink, user["id"], name, link_id, actor_of(handler))


def _not_oneself(handler: HubHandler, name: str) -> None:
    if name == actor_of(handler):
        told = "change your own under Account, with your password"
        raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told)


def _public(one: Link) -> dict[str, Any]:
    return {
        "id": one.id,
        "issuer": one.issuer,
        "subject": one.subject,
        "created_at": rfc3339(one.created_ms),
        "used_at": None if one.used_ms is None else rfc3339(one.used_ms),
    }


class Totp(AdminApi):
    """GET and DELETE /api/admin/users/NAME/totp."""

    async def get(self, name: str) -> None:
        self.answer({"totp": "on" if (await self.store(of_user, name)).totp else "off"})

    async def delete(self, name: str) -> None:
        self.answer({"totp": "off", "ended": await end_codes(self, name)})


class Links(AdminApi):
    """GET, POST and DELETE /api/admin/users/NAME/links."""

    async def get(self, name: str) -> None:
        found = await self.store(of_user, name)
        self.answer({"items": [_public(one) for one in found.links], "next": None})

    async def post(self, name: str) -> None:
        given = self.body()
        self.known(given, "subject")
        subject = given.get("subject")
        if not isinstance(subject, str):
            told = "subject must be a string: the user's name at the provider"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "subject")
        link_id = await link(self, name, subject)
        found = await self.store(of_user, name)
        [made] = [one for one in found.links if one.id == link_id]
        self.answer(_public(made), HTTPStatus.CREATED)

    async def delete(self, name: str) -> None:
        self.answer({"ended": await self.store(openid_links.unlink_all, name, actor_of(self))})


class OneLink(AdminApi):
    """DELETE /api/admin/users/NAME/links/ID."""

    async def delete(self, name: str, link_id: str) -> None:
        await unlink(self, name, link_id)
        self.set_status(HTTPStatus.NO_CONTENT)
        self.clear_header("Content-Type")
        self.finish()
