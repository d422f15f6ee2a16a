"""Signing in and out, and what a browser remembers without signing in: theme and language.

A password, or a provider of OpenID Connect, says who somebody is; then a one-time code is asked
for, if the user has set one up.
"""

import hmac
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from handlers.hub.access import one_time
from handlers.hub.access.beginning import begin_session, end_session
from handlers.hub.access.provider import Provider, ProviderError, provider_name, provider_of
from handlers.hub.web.base import SESSION_COOKIE, THEMES, Failure, Page
from handlers.hub.web.networks import network_of
from handlers.hub.web.places import Busy
from handlers.hub.web.sign_ins import Outcome
from handlers.hub.web.strings import LANGUAGES
from handlers.hub.web.tries import TooManyTries, judged
from store.db import audit
from store.hub import one_time as codes
from store.hub import openid_links, people
from store.hub.people import Person

REASON_CHARS = 500  # of a provider's in a log line
CARRIED_S = 600  # what a sign-in has to remember until it is over
COOKIE_DAYS = 365  # of theme and language
SECONDS_PER_MINUTE = 60
INSIDE = re.compile(r"/(?:[^/\\\x00-\x20][^\\\x00-\x20]*)?")
"""A path of the Hub: browsers read `//`, a backslash or a blank in it as another host's."""
WAITING = "sluice_code"
"""The cookie of somebody who still has to give a one-time code."""
ASKED = "sluice_openid"
"""The cookie of somebody who was sent to the provider."""


class SignIn(Page):
    """The form, and what it sends. A success leads to the page that was asked for."""

    public = True

    async def get(self) -> None:
        if self.signed_in is not None:
            self.redirect(self.next_place(), status=303)
        else:
            await self.site.read_first_run(time.monotonic())
            self.form()

    async def post(self) -> None:
        name, password = self.get_body_argument("name"), self._password()

        async def judge() -> Person | None:
            return await self.site.password(people.check, name, password)

        try:
            person = await judged(self, self.site.tries, name, judge)
        except TooManyTries as error:
            self.refuse_tries(error.wait_s, name)
            return
        except Busy:
            self.ended("busy")
            raise
        if person is None:
            self.ended("wrong")
            self.set_status(HTTPStatus.UNAUTHORIZED)
            self.form(name, "sign_in_wrong")
            return
        await self.let_in(person, self.next_place(), "password")

    def refuse_tries(self, wait_s: int, name: str = "") -> None:
        """Answers that there were too many tries."""
        self.ended("locked")
        self.set_status(HTTPStatus.TOO_MANY_REQUESTS)
        self.set_header("Retry-After", str(wait_s))
        self.form(name, "sign_in_wait", -(-wait_s // SECONDS_PER_MINUTE))

    def ended(self, outcome: Outcome, reason: str = "") -> None:
        """Counts the end of a sign-in."""
        network, now_s = network_of(self.address), time.monotonic()
        self.site.sign_ins.ended(outcome, network, now_s, reason)

    async def let_in(self, person: Person, place: str, way: str) -> None:
        """Begins the session, or asks for the one-time code first. `way`: how somebody has shown
        who it is."""
        if await self.store(codes.asked_for, person.id):
            self.carry(
                WAITING,
                CARRIED_S,
                id=person.id,
                name=person.name,
                mark=person.mark,
                way=way,
                next=place,
            )
            self.redirect("/sign-in/code", status=303)
            return
        await self.enter(person.id, person.name, way, place)

    async def enter(self, user_id: str, name: str, way: str, place: str) -> None:
        """Begins the session of a user, which the audit log tells, and leads to a page."""
        await begin_session(self, user_id)
        act = audit.Act(name, "sign_in", "user", name, after={"by": way})
        await self.store(audit.write_alone, act)
        self.ended("ok")
        self.redirect(place, status=303)

    def _password(self) -> str:
        """As it was typed, blanks at its ends, too."""
        return self.get_body_argument("password", "", strip=False)

    def form(self, name: str = "", problem: str = "", minutes: int = 0) -> None:
        """Answers with the form."""
        self.show(
            "access/sign_in.html",
            name=name,
            problem=problem,
            minutes=minutes,
            next=self.next_place(),
            provider=provider_name(self.site),
            first_run_open=self.site.first_run_open,
        )

    def next_place(self) -> str:
        """The page asked for: a path of the Hub, never another host."""
        wanted = self.get_argument("next", "/")
        return wanted if INSIDE.fullmatch(wanted) else "/"


class Code(SignIn):
    """The one-time code, or a recovery code, of somebody whose password was right."""

    async def get(self) -> None:
        if self.carried(WAITING) is None:
            self.redirect("/sign-in", status=303)
            return
        self.form()

    async def post(self) -> None:
        waiting = self.carried(WAITING)
        if waiting is None or not await self.store(
            people.is_current, waiting["id"], waiting["mark"]
        ):
            # Too old, or the password is another one now.
            self.clear_cookie(WAITING)
            self.redirect("/sign-in", status=303)
            return
        user_id, name, code = waiting["id"], waiting["name"], self.get_body_argument("code", "")

        async def judge() -> bool | None:
            return await self._fits(waiting, code) or None

        try:
            fits = await judged(self, self.site.one_time, name, judge)
        except TooManyTries as error:
            self.refuse_tries(error.wait_s)
            return
        if not fits:
            self.ended("wrong_code")
            self.set_status(HTTPStatus.UNAUTHORIZED)
            self.form(problem="access.code_wrong")
            return
        self.clear_cookie(WAITING)
        await self.enter(user_id, name, f"{waiting['way']}, one_time_code", waiting["next"])

    async def _fits(self, waiting: Mapping[str, Any], code: str) -> bool:
        user_id = waiting["id"]
        known = await self.store(codes.find, self.site.sealing.cipher, user_id)
        if known is None or not known.confirmed:
            return False  # switched off meanwhile: the password is asked for again
        step = one_time.step_of(known.secret, code, time.time())
        if step is not None:
            return await self.store(codes.count, user_id, step)
        return await self.store(codes.count_recovery, user_id, waiting["name"], code)

    def form(self, name: str = "", problem: str = "", minutes: int = 0) -> None:
        self.show("access/code.html", problem=problem, minutes=minutes)


class OpenId(SignIn):
    """GET /sign-in/openid: to the provider. Only this browser learns what has to fit afterwards."""

    async def get(self) -> None:
        try:
            ask = await self.provider().ask()
        except ProviderError as error:
            self.unusable(error)
            return
        self.carry(
            ASKED,
            CARRIED_S,
            state=ask.state,
            nonce=ask.nonce,
            verifier=ask.verifier,
            next=self.next_place(),
            link=self.linking(),
        )
        self.redirect(ask.url, status=303)

    async def post(self) -> None:
        raise Failure(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", "GET only")

    def linking(self) -> str:
        """The session that asks for a link; empty: somebody signs in."""
        return ""

    def provider(self) -> Provider:
        """The provider of the settings. Raises Failure when there is none."""
        found = provider_of(self.site)
        if found is None:
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", "no OpenID provider is set up")
        return found

    def unusable(self, error: ProviderError) -> None:
        """Answers that it did not succeed; the log has the reason."""
        self.ended("provider", str(error)[:REASON_CHARS])
        if self.signed_in is not None:
            self.say(self.words["access.openid_failed"])
            self.redirect("/account", status=303)
            return
        self.set_status(HTTPStatus.BAD_GATEWAY)
        self.form(problem="access.openid_failed")


class OpenIdBack(OpenId):
    """GET /sign-in/openid/back: what the provider says of the one who was sent there."""

    async def get(self) -> None:
        provider, asked = self.provider(), self.carried(ASKED)
        self.clear_cookie(ASKED)
        given = self.get_query_argument
        state, issuer = given("state", "").encode(), given("iss", provider.issuer)
        if asked is None or not hmac.compare_digest(state, asked["state"].encode()):
            self.unusable(ProviderError("the answer is to no question of this browser"))
            return
        try:
            if issuer != provider.issuer or not given("code", ""):
                raise ProviderError(f"no code: {given('error', 'none given')[:200]}")
            subject = await provider.subject(given("code"), asked["nonce"], asked["verifier"])
        except ProviderError as error:
            self.unusable(error)
            return
        if asked["link"]:
            await self._link(provider.issuer, subject, asked["link"])
            return
        person = await self.store(openid_links.find, provider.issuer, subject)
        if person is None:
            # The subject is what an administrator needs in order to link the user.
            told = {"issuer": provider.issuer, "subject": subject[:255]}
            name = provider_name(self.site)
            act = audit.Act("nobody", "refuse", "sign-in", name, after=told)
            await self.store(audit.write_alone, act)
            self.ended("not_linked")
            self.set_status(HTTPStatus.FORBIDDEN)
            self.form(problem="access.openid_not_linked")
            return
        await self.let_in(person, asked["next"], "openid")

    async def _link(self, issuer: str, subject: str, session_id: str) -> None:
        me = self.signed_in
        if me is None or me.session_id != session_id:
            raise Failure(HTTPStatus.FORBIDDEN, "forbidden", "the session has changed")
        try:
            await self.store(openid_links.link, me.user, issuer, subject, me.user)
        except Failure as failure:
            self.say(self.words["access.link_refused"].format(reason=failure.message))
        else:
            self.say(self.words["access.linked"])
        self.redirect("/account", status=303)


class SignOut(Page):
    """Ends the session."""

    async def get(self) -> None:
        self.redirect("/", status=303)

    async def post(self) -> None:
        assert self.signed_in is not None
        await end_session(self, self.signed_in, self.signed_in.session_id)
        self.clear_cookie(SESSION_COOKIE)
        self.redirect("/sign-in", status=303)


class Preferences(Page):
    """Theme, language and one-letter keys, kept by the browser."""

    public = True

    async def post(self) -> None:
        theme, language = (
            self.get_body_argument("theme", ""),
            self.get_body_argument("language", ""),
        )
        if theme in THEMES:
            self._keep("theme", theme)
        elif theme == "toggle":
            self._keep("theme", "light" if self.get_cookie("theme") == "dark" else "dark")
        elif theme == "system":
            self.clear_cookie("theme")
        if language in LANGUAGES:
            self._keep("language", language)
        if (shortcuts := self.get_body_argument("shortcuts", "")) in ("on", "off"):
            self._keep("shortcuts", shortcuts)
        # Only where on the Hub it was: no other host may be the place that this leads to.
        _, _, place = self.request.headers.get("Referer", "").partition("://")
        place = "/" + place.partition("/")[2].partition("#")[0]
        self.redirect(place if INSIDE.fullmatch(place) else "/", status=303)

    def _keep(self, name: str, value: str) -> None:
        self.set_cookie(
            name, value, expires_days=COOKIE_DAYS, samesite="Lax", secure=self.site.secure
        )
