"""The account: password, one-time codes, linked accounts, sessions, tokens, look and keyboard."""

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

from handlers.hub.access import one_time
from handlers.hub.access.agents import browser_of
from handlers.hub.access.beginning import begin_session, end_session
from handlers.hub.access.provider import provider_name
from handlers.hub.access.sign_in import CARRIED_S, SECONDS_PER_MINUTE, OpenId
from handlers.hub.web.base import Failure, Page
from handlers.hub.web.throttle import Throttle
from handlers.hub.web.tries import TooManyTries, judged
from store.hub import one_time as codes
from store.hub import openid_links, people, sessions, tokens
from store.hub.sessions import SignedIn

Result = TypeVar("Result")

LINKING = "sluice_linking"
"""The cookie of somebody who has given the password in order to link an account."""


class Account(Page):
    """The page, also after a change that it has something to say of once."""

    async def get(self) -> None:
        await self.page()

    @property
    def me(self) -> SignedIn:
        """Who has signed in."""
        assert self.signed_in is not None
        return self.signed_in

    async def page(self, section: str = "", problem: str = "", **once: Any) -> None:
        """Answers with the page. `problem`: what is wrong with what was sent from a section;
        `once`: what is shown in this answer and in no other."""
        me = self.me
        shown = {
            "token": "",
            "qr": "",
            "setup_secret": "",
            "recovery": (),
            "link_go": False,
            **once,
        }
        self.show(
            "access/account.html",
            section=section,
            problem=problem,
            sessions=await self.store(sessions.of_user, me.user_id),
            tokens=[one for one in await self.store(tokens.listed, me.user) if not one.revoked_ms],
            scopes=[scope for scope in tokens.SCOPES if scope != "admin" or me.admin],
            authenticator=await self.store(codes.find, self.site.sealing.cipher, me.user_id),
            provider=provider_name(self.site),
            links=await self.store(openid_links.of_user, me.user_id),
            shortcuts=self.get_cookie("shortcuts") != "off",
            browser_of=browser_of,
            **shown,
        )

    async def done(self, word: str, **values: object) -> None:
        """Leads back to the page, which says once what was done."""
        self.say(self.words[word].format(**values))
        self.redirect("/account", status=303)

    async def check_password(self, password: str) -> None:
        """Raises Failure when it is not the user's, or when too many were wrong."""

        async def judge() -> people.Person | None:
            return await self.hashing(people.check, self.me.user, password)

        if await self.judged(self.site.tries, judge) is None:
            told = self.words["access.password_wrong"]
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, "password")

    async def judged(
        self, tries: Throttle, judge: Callable[[], Awaitable[Result | None]]
    ) -> Result | None:
        """The result of a try; None: it was wrong. Raises Failure when too many were."""
        try:
            return await judged(self, tries, self.me.user, judge)
        except TooManyTries as error:
            minutes = -(-error.wait_s // SECONDS_PER_MINUTE)
            told = self.words["sign_in_wait"].format(minutes=minutes)
            status = HTTPStatus.TOO_MANY_REQUESTS
            raise Failure(status, "too_many", told, wait_s=error.wait_s) from None

    async def refuse(self, section: str, failure: Failure) -> None:
        """The page again, with what is wrong in this section."""
        self.set_status(failure.status_code)
        if failure.wait_s:
            self.set_header("Retry-After", str(failure.wait_s))
        await self.page(section, self.in_words(failure.message))


class Change(Account):
    """What the page sends; each section has a path of its own."""

    async def get(self) -> None:
        self.redirect("/account", status=303)

    def secret(self, name: str) -> str:
        """A password as it was typed, blanks at its ends, too."""
        return self.get_body_argument(name, "", strip=False)


class Password(Change):
    """Changes the password, which ends all other sessions and all tokens, and gives this session a
    new id."""

    async def post(self) -> None:
        try:
            old, new = self.secret("old"), self.secret("new")
            await self.check_password(old)
            await self.hashing(people.change_password, self.me.user, old, new)
        except Failure as failure:
            await self.refuse("password", failure)
            return
        # This one has ended, too, and gets a new id: whoever has copied the old one is out.
        await begin_session(self, self.me.user_id)
        await self.done("password_changed")


class Codes(Change):
    """Sets one-time codes up, in two steps, and switches them off."""

    async def post(self) -> None:
        step = {"begin": self._begin, "confirm": self._confirm, "end": self._end}
        try:
            await step[self.get_body_argument("do")]()
        except KeyError:
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "no such step", "do") from None
        except Failure as failure:
            await self.refuse("codes", failure)

    async def _begin(self) -> None:
        await self.check_password(self.secret("password"))
        secret = one_time.new_secret()
        await self.store(codes.begin, self.site.sealing.cipher, self.me.user_id, secret)
        await self._scan(secret)

    async def _scan(self, secret: str, problem: str = "") -> None:
        qr = one_time.picture(one_time.address(secret, self.me.user))
        await self.page("codes", problem, qr=qr, setup_secret=secret)

    async def _confirm(self) -> None:
        known = await self.store(codes.find, self.site.sealing.cipher, self.me.user_id)
        if known is None or known.confirmed:
            raise Failure(HTTPStatus.CONFLICT, "conflict", "no code waits to be confirmed")
        secret, code = known.secret, self.get_body_argument("code", "")

        async def judge() -> int | None:
            return one_time.step_of(secret, code, time.time())

        step = await self.judged(self.site.one_time, judge)
        if step is None:
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._scan(known.secret, self.words["access.code_wrong"])
            return
        recovery = await self.store(codes.confirm, self.me.user_id, self.me.user, step)
        await self.page("codes", recovery=recovery)

    async def _end(self) -> None:
        await self.check_password(self.secret("password"))
        await self.store(codes.end, self.me.user, self.me.user)
        await self.done("access.codes_off")


class Links(Change):
    """Links an account of the OpenID provider, and unlinks it."""

    async def post(self) -> None:
        unlinked = self.get_body_argument("unlink", "")
        try:
            if unlinked:
                me = self.me
                await self.store(openid_links.unlink, me.user_id, me.user, unlinked, me.user)
                await self.done("access.unlinked")
                return
            await self.check_password(self.secret("password"))
        except Failure as failure:
            await self.refuse("links", failure)
            return
        self.carry(LINKING, CARRIED_S, session=self.me.session_id)
        # A link and no redirect: a form may lead to the Hub alone (form-action of the policy).
        await self.page("links", link_go=True)


class LinkGo(OpenId):
    """GET /account/openid: to the provider, in order to link the account that signs in there."""

    public = False

    async def get(self) -> None:
        asked = self.carried(LINKING)
        self.clear_cookie(LINKING)
        if asked is None or self.signed_in is None or asked["session"] != self.linking():
            self.redirect("/account", status=303)
            return
        await super().get()

    def linking(self) -> str:
        return self.signed_in.session_id if self.signed_in else ""


class Sessions(Change):
    """Ends one session of the user, or all others, then with all tokens."""

    async def post(self) -> None:
        wanted = self.get_body_argument("id")
        if wanted == "others":
            me = self.me
            ended = await self.store(sessions.end_all, me.user_id, me.user, me.session_id)
            await self.done("access.others_ended", sessions=ended.sessions, tokens=ended.tokens)
            return
        if not await end_session(self, self.me, wanted):
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", "there is no such session")
        await self.done("session_ended")


class Tokens(Change):
    """Makes and revokes tokens of the JSON API."""

    async def post(self) -> None:
        if revoked := self.get_body_argument("revoke", ""):
            await self.store(tokens.revoke, revoked, user_id=self.me.user_id, actor=self.me.user)
            await self.done("token_revoked")
            return
        scopes, name = self.get_body_arguments("scope"), self.get_body_argument("name", "")
        user = self.me.user
        try:
            _, token = await self.store(tokens.create, user, scopes, name=name, actor=user)
        except Failure as failure:
            await self.refuse("tokens", failure)
            return
        await self.page("tokens", token=token)
