"""Money and sessions of a user; refunds of calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from handlers.hub.admin.api.base import AdminApi, actor_of, limit_of
from handlers.hub.admin.api.objects import end_sessions
from handlers.hub.web.base import Failure, HubHandler
from store.admin import listing
from store.hub import sessions
from store.money import ledger, wallet
from store.money.ledger import Line
from store.values.pricing import AmountError, parse_money
from store.values.usage_record import rfc3339

KINDS = {"credit": wallet.credit, "debit": wallet.debit}


@dataclass(frozen=True, slots=True)
class Money:
    """A movement that is asked for: credit or debit, and how much of why."""

    kind: str
    amount_nanos: int
    reason: str
    own_id: str | None


def money_of(given: Mapping[str, Any]) -> Money:
    """What a body or a form asks for; a minus takes money from the wallet. Raises Failure."""
    kind, amount = given.get("kind") or "credit", str(given.get("amount", "")).strip()
    if not isinstance(kind, str) or kind not in KINDS:
        raise _bad("kind", "kind must be credit or debit")
    if amount.startswith("-") and kind == "credit":
        kind, amount = "debit", amount.removeprefix("-")
    try:
        nanos = parse_money(amount)
    except AmountError as error:
        raise _bad("amount", f"amount: {error}") from None
    if nanos == 0:
        raise _bad("amount", "amount must not be 0")
    reason, own_id = given.get("reason"), given.get("id") or None
    if not isinstance(reason, str) or not reason.strip():
        raise _bad("reason", "reason is missing: it is kept in the ledger")
    if own_id is not None and not isinstance(own_id, str):
        raise _bad("id", "id must be a string")
    return Money(kind, nanos, reason.strip(), own_id)


async def refund(handler: HubHandler, call_id: str, reason: object) -> wallet.Refund:
    """Give back what a call took from a wallet, once. Raises Failure."""
    if not isinstance(reason, str) or not reason.strip():
        raise _bad("reason", "reason is missing: it is kept in the ledger")
    return await handler.store(wallet.refund, call_id, reason.strip(), actor_of(handler))


async def move(handler: HubHandler, user: str, money: Money) -> Line:
    """Book a movement on a user's wallet. Raises Failure."""
    movement = wallet.Movement(money.amount_nanos, money.reason, money.own_id, actor_of(handler))
    return await handler.store(KINDS[money.kind], user, movement)


def _bad(field: str, told: str) -> Failure:
    return Failure(HTTPStatus.BAD_REQUEST, "invalid", told, field)


class Credit(AdminApi):
    """POST /api/admin/users/NAME/credit."""

    async def post(self, name: str) -> None:
        given = self.body()
        self.known(given, "amount", "reason", "id", "kind")
        line = await move(self, name, money_of(given))
        self.answer({"user": name, **ledger.to_public(line), "again": line.again})


class Refund(AdminApi):
    """POST /api/admin/usage/ID/refund."""

    async def post(self, call_id: str) -> None:
        given = self.body()
        self.known(given, "reason")
        done = await refund(self, call_id, given.get("reason"))
        self.answer({"user": done.user, **ledger.to_public(done.line), "again": done.again})


class Ledger(AdminApi):
    """GET /api/admin/users/NAME/ledger: the newest lines first."""

    async def get(self, name: str) -> None:
        user = await self.store(listing.one, "user", name)
        after = self.get_query_argument("after", None)
        page = await self.store(ledger.page_of, user["id"], limit_of(self), after)
        lines = [ledger.to_public(line) for line in page.lines]
        self.answer({"items": lines, "next": page.next})


class Sessions(AdminApi):
    """GET and DELETE /api/admin/users/NAME/sessions."""

    async def get(self, name: str) -> None:
        user = await self.store(listing.one, "user", name)
        found = await self.store(sessions.of_user, user["id"])
        items = [
            {
                "id": one.id,
                "created_at": rfc3339(one.created_ms),
                "seen_at": rfc3339(one.seen_ms),
                "address": one.address,
                "agent": one.agent,
            }
            for one in found
        ]
        self.answer({"items": items, "next": None})

    async def delete(self, name: str) -> None:
        ended = await end_sessions(self, name)
        self.answer({"ended": ended.sessions, "tokens": ended.tokens})
