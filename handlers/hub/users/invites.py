"""Invites and password resets by link. Administrators create, list and withdraw them; anybody who
has a link can open it at /join/TOKEN.

A token is part of the path. It is shown once and appears in no log line and on no other page.
"""

import hashlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from handlers.hub.access.sign_in import begin_session
from handlers.hub.web.admin import ActionPage, AdminApi, AdminHandler, AdminPage, path_of
from handlers.hub.web.base import Failure, HubHandler, Page, amount, invalid, or_refused
from handlers.hub.web.throttle import TooManyTries
from operations import invites as holders
from store.admin import listing
from store.hub import invites
from store.hub.invites import EXPIRED, USED, WAITING, WITHDRAWN, InviteTerms, NewLink, OpenLink

FIELDS = ("role", "groups", "balance")
SHAPES: Mapping[str, str] = {WAITING: "live", USED: "ok", EXPIRED: "idle", WITHDRAWN: "idle"}
MAX_GROUPS = 200
SECONDS_PER_MINUTE = 60


def terms_of(body: Mapping[str, Any]) -> InviteTerms:
    """Return the terms of an invite. Raises Failure."""
    role, groups = body.get("role") or "member", body.get("groups", [])
    if not isinstance(role, str):
        raise invalid("role", "role must be a string")
    if not isinstance(groups, list) or not all(isinstance(name, str) for name in groups):
        raise invalid("groups", "groups must be a list of names")
    text = str(body.get("balance") or "").strip()
    return InviteTerms(role, tuple(groups), amount("balance", text) if text else 0)


def url_of(handler: HubHandler, new_link: NewLink) -> str:
    """Return the URL of a link."""
    request = handler.request
    base = handler.site.settings.hub.public_url or f"{request.protocol}://{request.host}"
    return base.rstrip("/") + new_link.path


async def reset_link(handler: AdminHandler, name: str) -> NewLink:
    """Create a link that sets a new password for another user. Raises Failure."""
    if name == handler.me.user:
        raise invalid(None, "change your own password under Account, with the old one")
    return await handler.store(invites.reset, name, handler.me.user)


class InvitesApi(AdminApi):
    """GET and POST /api/admin/invites. The URL is answered once."""

    async def get(self) -> None:
        self.answer_list([invites.public(link) for link in await self.store(invites.listed)])

    async def post(self) -> None:
        terms = terms_of(self.fields(*FIELDS))
        new_link = await self.store(invites.invite, terms, self.me.user)
        answer = {**invites.public(new_link.link), "url": url_of(self, new_link)}
        self.answer(answer, HTTPStatus.CREATED)


class InviteApi(AdminApi):
    """DELETE /api/admin/invites/ID: withdraws the invite."""

    async def delete(self, link_id: str) -> None:
        await self.store(invites.withdraw, link_id, self.me.user)
        self.answer_nothing()


class ResetApi(AdminApi):
    """POST /api/admin/users/NAME/reset. The URL is answered once."""

    async def post(self, name: str) -> None:
        self.fields()
        new_link = await reset_link(self, name)
        answer = {**invites.public(new_link.link), "url": url_of(self, new_link)}
        self.answer(answer, HTTPStatus.CREATED)


class InvitesPage(AdminPage):
    """/admin/invites: the list or, with `?new`, the form of an invite."""

    async def get(self) -> None:
        if self.get_query_argument("new", None) is not None:
            await self.refuse(None)
            return
        links = await self.store(invites.listed)
        self.show(
            "users/invites.html",
            links=links,
            shapes=SHAPES,
            WAITING=WAITING,
        )

    @or_refused
    async def post(self) -> None:
        body = {
            "role": self.get_body_argument("role", ""),
            "groups": self.get_body_arguments("groups"),
            "balance": self.get_body_argument("balance", ""),
        }
        new_link = await self.store(invites.invite, terms_of(body), self.me.user)
        show_link(self, new_link, path_of("invites"))

    async def refuse(self, failure: Failure | None) -> None:
        """Render the form; after a failure, with the submitted values."""
        self.show(
            "users/invite_form.html",
            groups=await self.store(listing.names, "group", MAX_GROUPS),
            chosen=self.get_body_arguments("groups") if failure else ["default"],
            **self.form_values(FIELDS, failure),
        )


def show_link(handler: AdminPage, new_link: NewLink, back: str) -> None:
    """Render the page that shows the URL of a link, once."""
    word = "users.reset_of" if new_link.link.user else "users.invite_made"
    handler.show(
        "users/link.html",
        title=handler.words[word].format(name=new_link.link.user),
        link=new_link.link,
        url=url_of(handler, new_link),
        back=back,
    )


class WithdrawInvitePage(ActionPage):
    """Withdraws an invite."""

    plural = "invites"

    async def post(self, link_id: str) -> None:
        await self.store(invites.withdraw, link_id, self.me.user)
        self.say(self.words["users.withdrawn"])
        self.redirect(path_of("invites"), status=HTTPStatus.SEE_OTHER)


class ResetPage(AdminPage):
    """/admin/users/NAME/reset: creates a link for a new password and shows it once."""

    async def get(self, name: str) -> None:
        await self.store(listing.show_one, "user", name)
        await self.refuse(None, name)

    @or_refused
    async def post(self, name: str) -> None:
        show_link(self, await reset_link(self, name), path_of("users", name))

    async def refuse(self, failure: Failure | None, name: str) -> None:
        """Render the question; after a failure, with its reason."""
        problem = self.in_words(failure.message) if failure else ""
        self.show("users/reset.html", name=name, problem=problem)


class JoinPage(Page):
    """/join/TOKEN: creates the user of an invite, or sets a new password."""

    public = True

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Referrer-Policy", "no-referrer")

    @property
    def logged_path(self) -> str:
        """Return the path without the token."""
        return invites.PATH + "…"

    async def get(self, token: str) -> None:
        self._show(await self._open(token))

    async def post(self, token: str) -> None:
        link = await self._open(token)
        if link is None:
            self._show(None)
            return
        password = self.get_body_argument("password", "", strip=False)
        name = self.get_body_argument("name", "").strip()
        try:
            if link.user is None:
                sealing = self.site.sealing
                person = await self.hashing(holders.join, sealing, token, name, password)
                await begin_session(self, person.id)
                self.redirect("/", status=HTTPStatus.SEE_OTHER)
                return
            user = await self.hashing(holders.set_password, token, password)
        except Failure as failure:
            self.set_status(failure.status_code)
            self._show(None if failure.status_code == HTTPStatus.NOT_FOUND else link, failure)
            return
        # The sign-in asks for a one-time code if the user has set these up.
        self.say(self.words["users.password_set"].format(name=user))
        self.redirect("/sign-in", status=HTTPStatus.SEE_OTHER)

    async def _open(self, token: str) -> OpenLink | None:
        """Return the link of a token. A wrong token counts like a wrong password. Raises
        Failure."""

        async def check() -> OpenLink | None:
            return await self.store(invites.find, token)

        mark = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()[:16]
        try:
            return await self.check_secret(self.site.tries, f"link {mark}", check)
        except TooManyTries as error:
            minutes = -(-error.wait_s // SECONDS_PER_MINUTE)
            text = self.words["sign_in_wait"].format(minutes=minutes)
            status = HTTPStatus.TOO_MANY_REQUESTS
            raise Failure(status, "rate_limited", text, wait_s=error.wait_s) from None

    def _show(self, link: OpenLink | None, failure: Failure | None = None) -> None:
        """Render the form, or that the link is not valid."""
        if link is None:
            self.set_status(HTTPStatus.NOT_FOUND)
        problems = {}
        if link is not None and failure is not None:
            at = "name" if failure.status_code == HTTPStatus.CONFLICT else failure.field or ""
            texts = failure.problems or {at: failure.message}
            problems = {field: self.in_words(text) for field, text in texts.items()}
        name = self.get_body_argument("name", "")
        self.show("users/join.html", link=link, name=name, problems=problems)
