"""Users beyond their fields: money, sessions, tokens, and sign-in methods besides the password.

Users change their own one-time codes and links under Account, which asks for the password.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.access.sign_in import session_fields
from handlers.hub.admin import objects
from handlers.hub.admin.objects import ObjectForm, ObjectPage
from handlers.hub.web.admin import ActionPage, AdminApi, AdminPage, ConfirmationPage, path_of
from handlers.hub.web.base import Failure, HubHandler, amount, invalid, or_refused
from operations.edits import link_account
from store.admin import listing
from store.db.versions import last_revision
from store.hub import one_time, openid_links, own_keys, sessions, tokens
from store.hub.membership import key_groups
from store.hub.openid_links import Link
from store.hub.sessions import Ended
from store.money import ledger, wallet
from store.money.ledger import Line
from store.money.wallet import RefundOrder
from store.values.pricing import format_money
from store.values.usage_record import rfc3339, rfc3339_or_none

BOOKINGS = {"credit": wallet.credit, "debit": wallet.debit}
MONEY_FIELDS = ("amount", "reason", "kind")
REFUND_FIELDS = ("amount", "reason", "id")


# ---- money -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Booking:
    """A requested credit or debit of a wallet."""

    kind: str
    amount_nanos: int
    reason: str
    own_id: str | None


def booking_of(body: Mapping[str, Any]) -> Booking:
    """Return the booking in a body or a form. A negative amount is a debit. Raises Failure."""
    kind, text = body.get("kind") or "credit", str(body.get("amount", "")).strip()
    if not isinstance(kind, str) or kind not in BOOKINGS:
        raise invalid("kind", "kind must be credit or debit")
    if text.startswith("-") and kind == "credit":
        kind, text = "debit", text.removeprefix("-")
    nanos = amount("amount", text)
    if nanos == 0:
        raise invalid("amount", "amount must not be 0")
    return Booking(kind, nanos, reason_of(body), own_id_of(body))


def refund_of(body: Mapping[str, Any], actor: str) -> RefundOrder:
    """Return the refund in a body or a form. Without an amount it covers all that is left of the
    call's charge. Raises Failure."""
    text = str(body.get("amount") or "").strip()
    nanos = amount("amount", text) if text else None
    return RefundOrder(nanos, reason_of(body), own_id_of(body), actor)


def own_id_of(body: Mapping[str, Any]) -> str | None:
    """Return the idempotency id of a booking. Raises Failure."""
    own_id = body.get("id") or None
    if own_id is not None and not isinstance(own_id, str):
        raise invalid("id", "id must be a string")
    return own_id


def reason_of(body: Mapping[str, Any]) -> str:
    """Return the reason of a booking. Raises Failure."""
    reason = body.get("reason")
    if not isinstance(reason, str) or not reason.strip():
        raise invalid("reason", "reason is missing: it is kept in the ledger")
    return reason.strip()


async def book(handler: HubHandler, user: str, booking: Booking) -> Line:
    """Credit or debit a user's wallet. Raises Failure."""
    movement = wallet.Movement(
        booking.amount_nanos, booking.reason, booking.own_id, handler.me.user
    )
    return await handler.store(BOOKINGS[booking.kind], user, movement)


class CreditApi(AdminApi):
    """POST /api/admin/users/NAME/credit."""

    async def post(self, name: str) -> None:
        line = await book(self, name, booking_of(self.fields("amount", "reason", "id", "kind")))
        self.answer({"user": name, **ledger.to_public(line), "again": line.again})


class RefundApi(AdminApi):
    """POST /api/admin/usage/ID/refund."""

    async def post(self, call_id: str) -> None:
        order = refund_of(self.fields(*REFUND_FIELDS), self.me.user)
        refunded = await self.store(wallet.refund, call_id, order)
        line = ledger.to_public(refunded.line)
        self.answer({"user": refunded.user, **line, "again": refunded.again})


class LedgerApi(AdminApi):
    """GET /api/admin/users/NAME/ledger: newest lines first."""

    async def get(self, name: str) -> None:
        user = await self.store(listing.show_one, "user", name)
        after = self.get_query_argument("after", None)
        page = await self.store(ledger.page_of, user["id"], self.limit(), after)
        self.answer_list([ledger.to_public(line) for line in page.lines], page.next)


class CreditPage(AdminPage):
    """Credits or debits a wallet, with a reason."""

    async def get(self, name: str) -> None:
        await self.refuse(None, name)

    @or_refused
    async def post(self, name: str) -> None:
        body = {field: self.get_body_argument(field, "") for field in MONEY_FIELDS}
        line = await book(self, name, booking_of(body))
        balance = f"{format_money(line.balance_after_nanos)} {self.site.settings.money.currency}"
        self.done("done_money", path_of("users", name), name=name, balance=balance)

    async def refuse(self, failure: Failure | None, name: str) -> None:
        """Render the form; after a failure, with the submitted values."""
        self.show(
            "admin/credit.html",
            user=await self.store(objects.load, "user", name),
            action=path_of("users", name, "credit"),
            back=path_of("users", name),
            **self.form_values(MONEY_FIELDS, failure),
        )


class RefundPage(ActionPage):
    """Refunds a call's charge or a part of it. The form is on the page of the call."""

    def back(self, *names: str) -> str:
        return f"/usage/{names[0]}"

    async def post(self, call_id: str) -> None:
        body = {field: self.get_body_argument(field, "") for field in REFUND_FIELDS}
        refunded = await self.store(wallet.refund, call_id, refund_of(body, self.me.user))
        currency = self.site.settings.money.currency
        text = f"{format_money(refunded.line.amount_nanos)} {currency}"
        word = "refunded_before" if refunded.again else "done_refund"
        self.done(word, self.back(call_id), name=refunded.user, amount=text)


# ---- sessions and tokens ---------------------------------------------------------------------


async def end_sessions(handler: HubHandler, name: str) -> Ended:
    """End all sessions and tokens of a user except the one of this request. Raises Failure."""
    me = handler.me
    user = await handler.store(listing.show_one, "user", name)
    return await handler.store(sessions.end_all, user["id"], me.user, me.session_id)


class SessionsApi(AdminApi):
    """GET and DELETE /api/admin/users/NAME/sessions."""

    async def get(self, name: str) -> None:
        user = await self.store(listing.show_one, "user", name)
        rows = await self.store(sessions.of_user, user["id"])
        self.answer_list([{**session_fields(row), "agent": row.agent} for row in rows])

    async def delete(self, name: str) -> None:
        ended = await end_sessions(self, name)
        self.answer({"ended": ended.sessions, "tokens": ended.tokens})


class EndSessionsPage(ActionPage):
    """Ends the sessions and tokens of a user."""

    plural, of_object = "users", True

    async def post(self, name: str) -> None:
        ended = await end_sessions(self, name)
        back = path_of("users", name)
        self.done("done_sessions", back, name=name, sessions=ended.sessions, tokens=ended.tokens)


class AllTokensApi(AdminApi):
    """GET /api/admin/tokens: everybody's tokens of the JSON API, newest first."""

    async def get(self) -> None:
        user, after = (self.get_query_argument(name, "") for name in ("user", "after"))
        limit = self.limit()
        rows = await self.store(tokens.listed, user or None, limit + 1, after)
        items = [tokens.public(row) for row in rows[:limit]]
        self.answer_list(items, items[-1]["id"] if len(rows) > limit else None)


class RevokeTokenApi(AdminApi):
    """DELETE /api/admin/tokens/ID."""

    async def delete(self, token_id: str) -> None:
        await self.store(tokens.revoke, token_id, actor=self.me.user)
        self.answer_nothing()


# ---- signing in ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignInMethods:
    """The state of one-time codes, and the linked accounts that can sign in."""

    totp: bool
    links: list[Link]


def sign_in_methods(db: peewee.Database, name: str) -> SignInMethods:
    """Return the sign-in methods of a user. Raises NotFound."""
    user_id = listing.show_one(db, "user", name)["id"]
    return SignInMethods(one_time.is_on(db, user_id), openid_links.of_user(db, user_id))


async def end_one_time_codes(handler: HubHandler, name: str) -> bool:
    """Disable a user's one-time codes. False: they were not enabled. Raises Failure."""
    _refuse_own(handler, name)
    return await handler.store(one_time.end, name, handler.me.user)


async def link(handler: HubHandler, name: str, subject: str) -> str:
    """Let an account of the provider sign in as a user, and return the link's id. Raises
    Failure."""
    _refuse_own(handler, name)
    issuer = handler.site.settings.hub.oidc_issuer
    return await handler.store(link_account, issuer, name, subject, handler.me.user)


async def unlink(handler: HubHandler, name: str, link_id: str) -> None:
    """Remove a link of a user. Raises Failure."""
    user = await handler.store(listing.show_one, "user", name)
    await handler.store(openid_links.unlink, user["id"], name, link_id, handler.me.user)


def _refuse_own(handler: HubHandler, name: str) -> None:
    if name == handler.me.user:
        raise invalid(None, "change your own under Account, with your password")


def _link_fields(account: Link) -> dict[str, Any]:
    return {
        "id": account.id,
        "issuer": account.issuer,
        "subject": account.subject,
        "created_at": rfc3339(account.created_ms),
        "used_at": rfc3339_or_none(account.used_ms),
    }


class TotpApi(AdminApi):
    """GET and DELETE /api/admin/users/NAME/totp."""

    async def get(self, name: str) -> None:
        self.answer({"totp": "on" if (await self.store(sign_in_methods, name)).totp else "off"})

    async def delete(self, name: str) -> None:
        self.answer({"totp": "off", "ended": await end_one_time_codes(self, name)})


class LinksApi(AdminApi):
    """GET, POST and DELETE /api/admin/users/NAME/links."""

    async def get(self, name: str) -> None:
        methods = await self.store(sign_in_methods, name)
        self.answer_list([_link_fields(account) for account in methods.links])

    async def post(self, name: str) -> None:
        subject = self.fields("subject").get("subject")
        if not isinstance(subject, str):
            raise invalid("subject", "subject must be a string: the user's name at the provider")
        link_id = await link(self, name, subject)
        methods = await self.store(sign_in_methods, name)
        [linked] = [account for account in methods.links if account.id == link_id]
        self.answer(_link_fields(linked), HTTPStatus.CREATED)

    async def delete(self, name: str) -> None:
        self.answer({"ended": await self.store(openid_links.unlink_all, name, self.me.user)})


class LinkApi(AdminApi):
    """DELETE /api/admin/users/NAME/links/ID."""

    async def delete(self, name: str, link_id: str) -> None:
        await unlink(self, name, link_id)
        self.answer_nothing()


class EndOneTimeCodesPage(ConfirmationPage):
    """Disables a user's one-time codes after the user's name was typed."""

    async def prepare_question(self, name: str) -> None:
        await self.store(objects.load, "user", name)
        texts = ("admin.codes_of", "admin.codes_effect", "admin.codes_end")
        back = path_of("users", name)
        self.ask(texts, name, path_of("users", name, "totp"), back)

    async def confirmed(self, name: str) -> None:
        await end_one_time_codes(self, name)
        self.done("done_codes", path_of("users", name), name=name)


class UserForm(ObjectForm):
    """The form of a user, with sessions and sign-in methods."""

    template = "users/form.html"

    def page_of(self, plural: str, name: str) -> str:
        """Return the path of the user's page."""
        return path_of(plural, name)

    async def details(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            "sign_in_methods": await self.store(sign_in_methods, stored["name"]),
            "issuer": self.site.settings.hub.oidc_issuer,
            "groups": await self.store(key_groups),
            "keys_in": await self.store(own_keys.count_by_group, stored["id"]),
            "revision": await self.store(last_revision, "user", stored["name"]),
        }


class EditUserPage(UserForm, ObjectPage):
    """The form of a stored user."""


class LinksPage(ActionPage, UserForm):
    """Links an account of the OpenID provider to a user, and removes links."""

    plural, of_object = "users", True

    async def refuse(self, failure: Failure, name: str) -> None:
        await self.form("users", name, beside=self.in_words(failure.message))

    @or_refused
    async def post(self, name: str) -> None:
        link_id = self.get_body_argument("unlink", "")
        if link_id:
            await unlink(self, name, link_id)
        else:
            await link(self, name, self.get_body_argument("subject", "").strip())
        self.done("done_unlinked" if link_id else "done_linked", self.back(name), name=name)
