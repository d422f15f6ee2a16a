"""What all endpoints for administrators share."""

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.web.base import Api, Failure, HubHandler
from operations import edits
from store.admin.apply import Editor, Outcome
from store.admin.listing import Paging
from store.admin.objects import Sealing

DEFAULT_ITEMS = 50
MAX_ITEMS = 500  # of one page of a list

PLURALS: Mapping[str, str] = {
    "users": "user",
    "groups": "group",
    "models": "model",
    "channels": "channel",
    "plans": "plan",
    "subscriptions": "subscription",
}
"""Kinds of the document of `apply` by their names in paths; codes are none of it."""


def actor_of(handler: HubHandler) -> str:
    """By what name the audit log knows who asks."""
    assert handler.signed_in is not None
    return handler.signed_in.user


def limit_of(handler: HubHandler) -> int:
    """How many items are asked for. Raises Failure."""
    return handler.number("limit", DEFAULT_ITEMS, MAX_ITEMS)


def paging_of(handler: HubHandler) -> Paging:
    """Which part of a list is asked for. Raises Failure."""
    argument = handler.get_query_argument
    return Paging(limit_of(handler), argument("after", ""), argument("search", "").strip())


async def edit(
    handler: HubHandler, change: Callable[[Editor], Outcome], *, hashes: bool = False
) -> Outcome:
    """Make a change in the name of who asks; `hashes`: a password may have to be hashed. Raises
    Failure."""
    actor, known = actor_of(handler), handler.site.sealing

    def work(db: peewee.Database) -> Outcome:
        # Its own each time: it remembers the passwords that it has hashed.
        sealing = Sealing(known.cipher, known.peppers)
        return change(edits.editor(db, sealing, actor, remote=True))

    return await (handler.hashing(work) if hashes else handler.store(work))


class AdminApi(Api):
    """An endpoint for administrators, and for their tokens with the scope `admin`."""

    admin = True
    scope = change_scope = "admin"

    def body(self) -> dict[str, Any]:
        """As `Api.body`, numbers with all their decimals: they may be money."""
        super().body()
        return json.loads(self.request.body, parse_float=Decimal) if self.request.body else {}

    def flag(self, given: Mapping[str, Any], name: str) -> bool:
        """A field of a body that is true or false, false when it is left out. Raises Failure."""
        value = given.get(name, False)
        if not isinstance(value, bool):
            told = f"{name} must be true or false"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, name)
        return value

    def known(self, given: Mapping[str, Any], *names: str) -> None:
        """Raises Failure for a field of a body that is none of these."""
        for name in given:
            if name not in names:
                told = f'unknown field "{name}"; there are: {", ".join(names) or "none"}'
                raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, name)
