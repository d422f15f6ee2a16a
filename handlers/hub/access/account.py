"""The user's own account: password, one-time codes, linked accounts, sessions, tokens."""

import re
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

from handlers.hub.access import sign_in
from handlers.hub.web.base import Api, Failure, Page, invalid, or_refused
from handlers.hub.web.openid import provider_name
from handlers.hub.web.throttle import Throttle, TooManyTries
from store.alerts.outbox import mail_of
from store.hub import membership, one_time, openid_links, people, sessions, tokens
from store.money import wallet
from store.values.pricing import format_money

Result = TypeVar("Result")

LINKING_COOKIE = "sluice_linking"
"""The cookie of a user who has confirmed the password in order to link an account."""

BROWSERS = (  # the first match wins: many User-Agents also contain the names below
    ("Edge", re.compile(r"\bEdgA?(?:iOS)?/(\d+)")),
    ("Opera", re.compile(r"\bOPR/(\d+)")),
    ("Samsung Internet", re.compile(r"\bSamsungBrowser/(\d+)")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/(\d+)")),
    ("Chrome", re.compile(r"\b(?:HeadlessChrome|Chrome|CriOS)/(\d+)")),
    ("Safari", re.compile(r"\bVersion/(\d+)[\d.]* (?:Mobile/\S+ )?Safari/")),
    ("curl", re.compile(r"^curl/(\d+)")),
)
SYSTEMS = (
    *(("Android", "Android"), ("iPhone", "iPhone"), ("iPad", "iPad"), ("Windows", "Windows")),
    *(("Mac OS", "macOS"), ("CrOS", "ChromeOS"), ("Linux", "Linux")),
)
AGENT_CHARS = 40


def browser_of(agent: str) -> str:
    """Return the browser of a User-Agent, like `Firefox 141, Linux`, or the beginning of an unknown
    one."""
    for name, pattern in BROWSERS:
        if match := pattern.search(agent):
            system = next((label for mark, label in SYSTEMS if mark in agent), "")
            return f"{name} {match[1]}" + (f", {system}" if system else "")
    return agent[:AGENT_CHARS] or "–"


class AccountPage(Page):
    """/account."""

    async def get(self) -> None:
        await self.page()

    async def page(self, section: str = "", problem: str = "", **once: Any) -> None:
        """Render the page. `problem`: shown in `section`; `once`: values for this response only."""
        me = self.me
        nothing = {"token": "", "qr": "", "setup_secret": "", "recovery": (), "link_go": False}
        issued = await self.store(tokens.listed, me.user)
        self.show(
            "account.html",
            section=section,
            problem=problem,
            sessions=await self.store(sessions.of_user, me.user_id),
            tokens=[token for token in issued if not token.revoked_ms],
            scopes=tokens.scopes_of(me.role),
            authenticator=await self.store(one_time.find, self.site.sealing.cipher, me.user_id),
            provider=provider_name(self.site),
            links=await self.store(openid_links.of_user, me.user_id),
            shortcuts=self.get_cookie("shortcuts") != "off",
            browser_of=browser_of,
            mail=await self.store(mail_of, me.user_id),
            **{**nothing, **once},
        )

    async def done(self, text: str, **values: object) -> None:
        """Redirect to the page with a toast about the change."""
        self.say(self.words[text].format(**values))
        self.redirect("/account", status=303)

    async def check_password(self, password: str) -> None:
        """Check the user's password. Raises Failure if it is wrong or too many were wrong."""

        async def check() -> people.Person | None:
            return await self.hashing(people.check, self.me.user, password)

        if await self.check_own_secret(self.site.tries, check) is None:
            raise invalid("password", self.words["access.password_wrong"])

    async def check_own_secret(
        self, throttle: Throttle, check: Callable[[], Awaitable[Result | None]]
    ) -> Result | None:
        """Return the result of a try at a secret. None: wrong. Raises Failure after too many wrong
        tries."""
        try:
            return await self.check_secret(throttle, self.me.user, check)
        except TooManyTries as error:
            minutes = -(-error.wait_s // sign_in.SECONDS_PER_MINUTE)
            text = self.words["sign_in_wait"].format(minutes=minutes)
            status = HTTPStatus.TOO_MANY_REQUESTS
            raise Failure(status, "too_many", text, wait_s=error.wait_s) from None


class AccountForm(AccountPage):
    """A form of the page. Each section has a path of its own."""

    section = ""

    async def refuse(self, failure: Failure) -> None:
        """Render the page with the problem in the form's section."""
        if failure.wait_s:
            self.set_header("Retry-After", str(failure.wait_s))
        await self.page(self.section, self.in_words(failure.message))

    async def get(self) -> None:
        self.redirect("/account", status=303)

    def secret(self, name: str) -> str:
        """Return a password, including leading and trailing spaces."""
        return self.get_body_argument(name, "", strip=False)


class PasswordForm(AccountForm):
    """Changes the password, which ends all other sessions and all tokens, and gives this session a
    new id."""

    section = "password"

    @or_refused
    async def post(self) -> None:
        old, new = self.secret("old"), self.secret("new")
        await self.check_password(old)
        await self.hashing(people.change_password, self.me.user, old, new)
        # This session has ended, too. Its new id locks out anybody who has copied the old one.
        await sign_in.begin_session(self, self.me.user_id)
        await self.done("password_changed")


class OneTimeCodesForm(AccountForm):
    """Sets up one-time codes, in two steps, and disables them."""

    section = "codes"

    async def post(self) -> None:
        steps = {"begin": self._begin, "confirm": self._confirm, "end": self._end}
        try:
            await steps[self.get_body_argument("do")]()
        except KeyError:
            raise invalid("do", "no such step") from None
        except Failure as failure:
            self.set_status(failure.status_code)
            await self.refuse(failure)

    async def _begin(self) -> None:
        await self.check_password(self.secret("password"))
        secret = sign_in.new_totp_secret()
        await self.store(one_time.begin, self.site.sealing.cipher, self.me.user_id, secret)
        await self._show_secret(secret)

    async def _show_secret(self, secret: str, problem: str = "") -> None:
        qr = sign_in.qr_code(sign_in.totp_uri(secret, self.me.user))
        await self.page("codes", problem, qr=qr, setup_secret=secret)

    async def _confirm(self) -> None:
        authenticator = await self.store(one_time.find, self.site.sealing.cipher, self.me.user_id)
        if authenticator is None or authenticator.confirmed:
            raise Failure(HTTPStatus.CONFLICT, "conflict", "there is no code to confirm")
        secret, code = authenticator.secret, self.get_body_argument("code", "")

        async def check() -> int | None:
            return sign_in.totp_period(secret, code, time.time())

        period = await self.check_own_secret(self.site.one_time, check)
        if period is None:
            self.set_status(HTTPStatus.BAD_REQUEST)
            await self._show_secret(secret, self.words["access.code_wrong"])
            return
        recovery = await self.store(one_time.confirm, self.me.user_id, self.me.user, period)
        await self.page("codes", recovery=recovery)

    async def _end(self) -> None:
        await self.check_password(self.secret("password"))
        await self.store(one_time.end, self.me.user, self.me.user)
        await self.done("access.codes_off")


class LinksForm(AccountForm):
    """Links an account of the OpenID provider and unlinks it."""

    section = "links"

    @or_refused
    async def post(self) -> None:
        if unlinked := self.get_body_argument("unlink", ""):
            me = self.me
            await self.store(openid_links.unlink, me.user_id, me.user, unlinked, me.user)
            await self.done("access.unlinked")
            return
        await self.check_password(self.secret("password"))
        self.carry(LINKING_COOKIE, sign_in.SIGN_IN_S, session=self.me.session_id)
        # A link instead of a redirect: the policy's form-action lets a form lead only to the Hub.
        await self.page("links", link_go=True)


class LinkRedirect(sign_in.OpenIdRedirect):
    """GET /account/openid: redirects to the provider, to link the account that signs in there."""

    public = False

    async def get(self) -> None:
        linking = self.carried(LINKING_COOKIE)
        self.clear_cookie(LINKING_COOKIE)
        session_id = self.linking_session()
        if linking is None or not session_id or linking["session"] != session_id:
            self.redirect("/account", status=303)
            return
        await super().get()

    def linking_session(self) -> str:
        return self.signed_in.session_id if self.signed_in else ""


class SessionsForm(AccountForm):
    """Ends one session of the user, or all other sessions together with all tokens."""

    async def post(self) -> None:
        session_id = self.get_body_argument("id")
        if session_id == "others":
            me = self.me
            ended = await self.store(sessions.end_all, me.user_id, me.user, me.session_id)
            await self.done("access.others_ended", sessions=ended.sessions, tokens=ended.tokens)
            return
        if not await sign_in.end_session(self, self.me, session_id):
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", "there is no such session")
        await self.done("session_ended")


class TokensForm(AccountForm):
    """Creates and revokes tokens of the JSON API."""

    section = "tokens"

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
            self.set_status(failure.status_code)
            await self.refuse(failure)
            return
        await self.page("tokens", token=token)


class MeApi(Api):
    """GET /api/me."""

    async def get(self) -> None:
        me = self.me
        balance_nanos = (await self.store(wallet.show, me.user)).balance_nanos
        groups = await self.store(membership.groups_of, me.user_id, admin=me.admin)
        balance = format_money(balance_nanos)
        self.answer({"user": me.user, "role": me.role, "balance": balance, "groups": groups})


class OwnSessionsApi(Api):
    """GET /api/sessions."""

    async def get(self) -> None:
        items = [
            {
                **sign_in.session_fields(session),
                "browser": browser_of(session.agent),
                "user_agent": session.agent,
                "current": session.id == self.me.session_id,
            }
            for session in await self.store(sessions.of_user, self.me.user_id)
        ]
        self.answer_list(items)


class OwnSessionApi(Api):
    """DELETE /api/sessions/ID."""

    async def delete(self, session_id: str) -> None:
        if not await sign_in.end_session(self, self.me, session_id):
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", "there is no such session")
        self.answer({"ended": session_id})


class OwnTokensApi(Api):
    """GET and POST /api/tokens."""

    async def get(self) -> None:
        issued = await self.store(tokens.listed, self.me.user)
        self.answer_list([tokens.public(token) for token in issued])

    async def post(self) -> None:
        body = self.body()
        scopes, name = body.get("scopes"), body.get("name", "")
        if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
            raise invalid(
                "scopes", f"scopes must be a list of: {', '.join(tokens.scopes_of(self.me.role))}"
            )
        if not isinstance(name, str):
            raise invalid("name", "name must be a string")
        if self.me.scopes is not None and not self.me.scopes.issuperset(scopes):
            text = "a token makes no token that may do more than itself"
            raise Failure(HTTPStatus.FORBIDDEN, "forbidden", text, "scopes")
        user = self.me.user
        token_id, token = await self.store(tokens.create, user, scopes, name=name, actor=user)
        self.answer({"id": token_id, "token": token}, HTTPStatus.CREATED)


class OwnTokenApi(Api):
    """DELETE /api/tokens/ID: revokes the token."""

    async def delete(self, token_id: str) -> None:
        me = self.me
        await self.store(tokens.revoke, token_id, user_id=me.user_id, actor=me.user)
        self.answer({"revoked": token_id})
