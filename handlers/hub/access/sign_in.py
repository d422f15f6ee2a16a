"""Signing in and out, and the preferences of a browser: theme, language, one-letter shortcuts.

A password or a provider of OpenID Connect identifies the user. If the user has set up one-time
codes (RFC 6238), a code is required next: SHA-1, six digits, 30 seconds, which all authenticators
support.
"""

import hmac
import importlib
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pyotp

from handlers.hub.web.base import FORM_COOKIE, SESSION_COOKIE, THEMES, Failure, HubHandler, Page
from handlers.hub.web.openid import OpenIdProvider, ProviderError, provider_name, provider_of
from handlers.hub.web.site import Busy
from handlers.hub.web.strings import LANGUAGES
from handlers.hub.web.throttle import Outcome, TooManyTries, network_of
from operations import first_steps
from store.db import audit
from store.hub import one_time, openid_links, people, sessions
from store.hub.people import Person
from store.hub.sessions import SignedIn
from store.values.usage_record import rfc3339

REASON_CHARS = 500  # of the provider's error, in a log line
SIGN_IN_S = 600  # how long the cookies of a sign-in are valid
SECONDS_PER_MINUTE = 60
HUB_PATH = re.compile(r"/(?:[^/\\\x00-\x20][^\\\x00-\x20]*)?")
"""A path of the Hub. Browsers may read `//`, a backslash or a space in it as another host's."""
CODE_COOKIE = "sluice_code"
"""The cookie of a user whose password was right and who must enter a one-time code."""
OPENID_COOKIE = "sluice_openid"
"""The cookie of a browser that was sent to the provider."""

PERIOD_S = 30
DRIFT_PERIODS = 1  # tolerated clock drift of a phone, in either direction
ISSUER = "Sluice"
QR_SCALE = 4

# ---- sessions ------------------------------------------------------------------------------------


async def begin_session(page: Page, user_id: str) -> None:
    """Sign a user in with a new session id, regardless of the browser's cookies."""
    agent = page.request.headers.get("User-Agent", "")
    cookie = await page.store(sessions.begin, user_id, page.address, agent)
    page.set_cookie(SESSION_COOKIE, cookie, httponly=True, samesite="Lax", secure=page.site.secure)
    page.clear_cookie(FORM_COOKIE)  # form tokens from before the sign-in are void after it


async def end_session(handler: HubHandler, me: SignedIn, session_id: str) -> bool:
    """End a session of a user. False: the user has no such session."""
    if not await handler.store(sessions.end, me.user_id, session_id):
        return False
    await handler.note("end_session", "user", me.user, session=session_id)
    return True


def session_fields(session: sessions.SessionRow) -> dict[str, Any]:
    """Return a session as JSON, without its browser."""
    times = {"created_at": rfc3339(session.created_ms), "seen_at": rfc3339(session.seen_ms)}
    return {"id": session.id, **times, "address": session.address}


# ---- one-time codes ------------------------------------------------------------------------------


def new_totp_secret() -> str:
    """Return a new secret for an authenticator: 160 random bits in base32."""
    return pyotp.random_base32()


def totp_period(secret: str, code: str, now_s: float) -> int | None:
    """Return the period of a one-time code. None: the code is not valid now."""
    totp, current = pyotp.TOTP(secret), int(now_s) // PERIOD_S
    digits = "".join(code.split()).encode("utf-8", "surrogatepass")
    for period in range(current - DRIFT_PERIODS, current + DRIFT_PERIODS + 1):
        if hmac.compare_digest(totp.at(period * PERIOD_S).encode(), digits):
            return period
    return None


def totp_uri(secret: str, user: str) -> str:
    """Return the otpauth:// URI for an authenticator to scan."""
    return pyotp.TOTP(secret).provisioning_uri(name=user, issuer_name=ISSUER)


def qr_code(text: str) -> str:
    """Draw a text as a QR code, in SVG without style attributes, dark on white in each theme."""
    # Imported by name, so that its 1.7 MB are loaded only when somebody sets up one-time codes.
    segno: Any = importlib.import_module("segno")
    code = segno.make(text, error="m", micro=False)
    svg: str = code.svg_inline(
        scale=QR_SCALE, dark="#12201e", light="#fff", svgclass="qr", lineclass=None
    )
    return svg


class SignInPage(Page):
    """/sign-in: the form. Its submission redirects to the requested page."""

    public = True

    async def get(self) -> None:
        if self.signed_in is not None:
            self.redirect(self.next_path(), status=303)
        else:
            await self.site.read_first_run(time.monotonic())
            self.form()

    async def post(self) -> None:
        name = self.get_body_argument("name")
        password = self.get_body_argument("password", "", strip=False)

        async def check() -> Person | None:
            return await self.site.password(people.check, name, password)

        try:
            person = await self.check_secret(self.site.tries, name, check)
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
        await self.let_in(person, self.next_path(), "password")

    def refuse_tries(self, wait_s: int, name: str = "") -> None:
        """Answer that there were too many wrong tries."""
        self.ended("locked")
        self.set_status(HTTPStatus.TOO_MANY_REQUESTS)
        self.set_header("Retry-After", str(wait_s))
        self.form(name, "sign_in_wait", -(-wait_s // SECONDS_PER_MINUTE))

    def ended(self, outcome: Outcome, reason: str = "") -> None:
        """Count a finished sign-in."""
        network, now_s = network_of(self.address), time.monotonic()
        self.site.sign_ins.ended(outcome, network, now_s, reason)

    async def let_in(self, person: Person, path: str, method: str) -> None:
        """Begin the session, or ask for the one-time code first. `method`: for the audit log."""
        if await self.store(one_time.is_on, person.id):
            self.carry(
                CODE_COOKIE,
                SIGN_IN_S,
                id=person.id,
                name=person.name,
                mark=person.mark,
                way=method,
                next=path,
            )
            self.redirect("/sign-in/code", status=303)
            return
        await self.enter(person.id, person.name, method, path)

    async def enter(self, user_id: str, name: str, method: str, path: str) -> None:
        """Begin the user's session, write its audit line, and redirect to a page. Administrators
        who would get the home page are redirected to the first run until calls can be made."""
        await begin_session(self, user_id)
        act = audit.Act(name, "sign_in", "user", name, after={"by": method})
        await self.store(audit.write, act)
        self.ended("ok")
        if path == "/" and await self.store(first_steps.is_due, user_id):
            path = "/first-run"
        self.redirect(path, status=303)

    def form(self, name: str = "", problem: str = "", minutes: int = 0) -> None:
        """Render the form."""
        self.show(
            "sign_in.html",
            name=name,
            problem=problem,
            minutes=minutes,
            next=self.next_path(),
            provider=provider_name(self.site),
            first_run_open=self.site.first_run_open,
        )

    def next_path(self) -> str:
        """Return the requested page: a path of the Hub, never another host."""
        path = self.get_argument("next", "/")
        return path if HUB_PATH.fullmatch(path) else "/"


class OneTimeCodePage(SignInPage):
    """/sign-in/code: asks for the one-time or recovery code of a user whose password was right."""

    async def get(self) -> None:
        if self.carried(CODE_COOKIE) is None:
            self.redirect("/sign-in", status=303)
            return
        self.form()

    async def post(self) -> None:
        pending = self.carried(CODE_COOKIE)
        if pending is None or not await self.store(
            people.is_current, pending["id"], pending["mark"]
        ):
            # Expired, or the password has changed.
            self.clear_cookie(CODE_COOKIE)
            self.redirect("/sign-in", status=303)
            return
        user_id, name, code = pending["id"], pending["name"], self.get_body_argument("code", "")

        async def check() -> bool | None:
            return await self._is_valid(pending, code) or None

        try:
            valid = await self.check_secret(self.site.one_time, name, check)
        except TooManyTries as error:
            self.refuse_tries(error.wait_s)
            return
        if not valid:
            self.ended("wrong_code")
            self.set_status(HTTPStatus.UNAUTHORIZED)
            self.form(problem="access.code_wrong")
            return
        self.clear_cookie(CODE_COOKIE)
        await self.enter(user_id, name, f"{pending['way']}, one_time_code", pending["next"])

    async def _is_valid(self, pending: Mapping[str, Any], code: str) -> bool:
        user_id = pending["id"]
        authenticator = await self.store(one_time.find, self.site.sealing.cipher, user_id)
        if authenticator is None or not authenticator.confirmed:
            return False  # disabled in the meantime: the user must sign in again
        period = totp_period(authenticator.secret, code, time.time())
        if period is not None:
            return await self.store(one_time.count, user_id, period)
        return await self.store(one_time.count_recovery, user_id, pending["name"], code)

    def form(self, name: str = "", problem: str = "", minutes: int = 0) -> None:
        self.show("code.html", problem=problem, minutes=minutes)


class OpenIdRedirect(SignInPage):
    """GET /sign-in/openid: redirects to the provider. Only this browser can read the request's
    values."""

    async def get(self) -> None:
        try:
            request = await self.provider().authorization_request()
        except ProviderError as error:
            self.fail(error)
            return
        self.carry(
            OPENID_COOKIE,
            SIGN_IN_S,
            state=request.state,
            nonce=request.nonce,
            verifier=request.verifier,
            next=self.next_path(),
            link=self.linking_session(),
        )
        self.redirect(request.url, status=303)

    async def post(self) -> None:
        raise Failure(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", "GET only")

    def linking_session(self) -> str:
        """Return the session whose user links an account, or "" for a sign-in."""
        return ""

    def provider(self) -> OpenIdProvider:
        """Return the provider in the settings. Raises Failure if there is none."""
        provider = provider_of(self.site)
        if provider is None:
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", "no OpenID provider is set up")
        return provider

    def fail(self, error: ProviderError) -> None:
        """Answer that the provider could not be used. The log has the reason."""
        self.ended("provider", str(error)[:REASON_CHARS])
        if self.signed_in is not None:
            self.say(self.words["access.openid_failed"])
            self.redirect("/account", status=303)
            return
        self.set_status(HTTPStatus.BAD_GATEWAY)
        self.form(problem="access.openid_failed")


class OpenIdCallback(OpenIdRedirect):
    """GET /sign-in/openid/back: receives the provider's answer about the user."""

    async def get(self) -> None:
        provider, request = self.provider(), self.carried(OPENID_COOKIE)
        self.clear_cookie(OPENID_COOKIE)
        query = self.get_query_argument
        state, issuer = query("state", "").encode(), query("iss", provider.issuer)
        if request is None or not hmac.compare_digest(state, request["state"].encode()):
            self.fail(ProviderError("the answer is to no question of this browser"))
            return
        try:
            if issuer != provider.issuer or not query("code", ""):
                raise ProviderError(f"no code: {query('error', 'none given')[:200]}")
            subject = await provider.subject(query("code"), request["nonce"], request["verifier"])
        except ProviderError as error:
            self.fail(error)
            return
        if request["link"]:
            await self._link(provider.issuer, subject, request["link"])
            return
        person = await self.store(openid_links.find, provider.issuer, subject)
        if person is None:
            # An administrator needs the subject to link the user.
            account = {"issuer": provider.issuer, "subject": subject[:255]}
            name = provider_name(self.site)
            act = audit.Act("nobody", "refuse", "sign-in", name, after=account)
            await self.store(audit.write, act)
            self.ended("not_linked")
            self.set_status(HTTPStatus.FORBIDDEN)
            self.form(problem="access.openid_not_linked")
            return
        await self.let_in(person, request["next"], "openid")

    async def _link(self, issuer: str, subject: str, session_id: str) -> None:
        me = self.signed_in
        if me is None or me.session_id != session_id:
            raise Failure(HTTPStatus.FORBIDDEN, "forbidden", "the session has changed")
        try:
            await self.store(openid_links.link, me.user, issuer, subject, me.user)
        except Failure as failure:
            self.say(
                self.words["access.link_refused"].format(reason=self.in_words(failure.message))
            )
        else:
            self.say(self.words["access.linked"])
        self.redirect("/account", status=303)


class SignOutForm(Page):
    """/sign-out: ends the session."""

    async def get(self) -> None:
        self.redirect("/", status=303)

    async def post(self) -> None:
        await end_session(self, self.me, self.me.session_id)
        self.clear_cookie(SESSION_COOKIE)
        self.redirect("/sign-in", status=303)


class PreferencesForm(Page):
    """/preferences: stores theme, language, one-letter shortcuts and whether the set-up steps are
    hidden, in cookies."""

    public = True

    async def post(self) -> None:
        theme = self.get_body_argument("theme", "")
        if theme in THEMES:
            self.set_preference("theme", theme)
        elif theme == "toggle":
            dark = self.get_cookie("theme") == "dark"
            self.set_preference("theme", "light" if dark else "dark")
        elif theme == "system":
            self.clear_cookie("theme")
        if (language := self.get_body_argument("language", "")) in LANGUAGES:
            self.set_preference("language", language)
        if (shortcuts := self.get_body_argument("shortcuts", "")) in ("on", "off"):
            self.set_preference("shortcuts", shortcuts)
        if self.get_body_argument("set_up", "") == "hidden":
            self.set_preference("set_up", "hidden")
        # Only the path on the Hub: the redirect must not lead to another host.
        _, _, path = self.request.headers.get("Referer", "").partition("://")
        path = "/" + path.partition("/")[2].partition("#")[0]
        self.redirect(path if HUB_PATH.fullmatch(path) else "/", status=303)
