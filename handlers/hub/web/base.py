"""The bases of all handlers of the Hub: the user, security headers, pages, API endpoints, errors.

A page needs a session and redirects to the sign-in page without one. An endpoint of the JSON API
accepts a session or a token and answers 401 without either. Pages answer errors as HTML, endpoints
as JSON.
"""

import functools
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from http import HTTPStatus
from types import TracebackType
from typing import Any, TypeVar, cast
from urllib.parse import urlencode, urlsplit

from tornado.web import HTTPError, MissingArgumentError, RequestHandler

from handlers.client_address import client_address
from handlers.hub.web import cross_site, zones
from handlers.hub.web.formats import FUNCTIONS
from handlers.hub.web.navigation import Navigation, navigation
from handlers.hub.web.refusals import refusal_in_words
from handlers.hub.web.site import Busy, Site, party
from handlers.hub.web.strings import LANGUAGES, preferred_language, strings
from handlers.hub.web.throttle import WINDOW_S, Throttle, TooManyTries, network_of
from store.db import audit
from store.hub import sessions, tokens
from store.hub.sessions import SignedIn
from store.values.errors import Conflict, NotFound, Refused, StoreUnavailable
from store.values.pricing import AmountError, parse_money

Result = TypeVar("Result")
Post = TypeVar("Post", bound=Callable[..., Awaitable[None]])
log = logging.getLogger("sluice.hub")

SESSION_COOKIE = "sluice_session"
TOAST_COOKIE = "toast"
TOAST_S = 60
COOKIE_DAYS = 365  # for theme, language and other preferences
FORM_COOKIE = "_xsrf"  # for browsers without a session
LOGGED_PATH_CHARS = 200
AUDIT_NAME_CHARS = 128
NEXT_PATH_CHARS = 2048  # of the page to return to after signing in
ACCEPT_LANGUAGE_CHARS = 256
UNSEEN_HEADER = "X-Unseen"  # sent by a script that requests a page without showing it
BUSY_WAIT_S = 2
MAX_DIGITS = 9  # in a number in a query
RETYPED = {"old": "old_password", "new": "new_password", "password": "password"}
"""Fields whose values no page sends back, each with the name of its label."""
RESENT = ("session_ended", "form_expired")  # errors whose form can be sent again
THEMES = ("light", "dark")
POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)


Routes = Sequence[tuple[str, type["HubHandler"]]]
"""Regular expressions of paths with their handlers."""


class Logged(RequestHandler):
    """A request whose log lines are bounded and omit the query, which may contain codes."""

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Log internal errors at level ERROR, and those that the client is told about at DEBUG."""
        expected = isinstance(value, (HTTPError, StoreUnavailable, Busy))
        text = "%s %s failed: %s" if expected else "%s %s failed"
        level = logging.DEBUG if expected else logging.ERROR
        args = [value] if expected else []
        trace = None if expected or typ is None or value is None else (typ, value, tb)
        log.log(level, text, self.request.method, self.logged_path, *args, exc_info=trace)

    @property
    def logged_path(self) -> str:
        """Return the first LOGGED_PATH_CHARS characters of the path."""
        return (self.request.path or "")[:LOGGED_PATH_CHARS]


class HubHandler(Logged):
    """A request to the Hub."""

    counts_as_use = True  # resets the session's idle time

    def initialize(self, site: Site) -> None:
        self.site = site
        self.signed_in: SignedIn | None = None
        # Context variables of the task that answers this request.
        audit.caller.set(self.address)
        party.set(network_of(self.address))

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    async def head(self, *args: str) -> None:
        """Answer as `get` does. The connection omits the body."""
        answered = self.get(*args)
        assert answered is not None
        await answered

    @functools.cached_property
    def address(self) -> str:
        """Return the client's address, as reported by trusted proxies."""
        forwarded = self.request.headers.get("X-Forwarded-For")
        return client_address(self.request.remote_ip or "", forwarded, self.site.trusted)

    @property
    def me(self) -> SignedIn:
        """Return the signed-in user."""
        assert self.signed_in is not None
        return self.signed_in

    async def find_session(self) -> None:
        """Set the user from the session cookie, if it is valid."""
        await self.site.read_base_url(time.monotonic())
        cookie = self.get_cookie(SESSION_COOKIE)
        unseen = self.request.method == "GET" and UNSEEN_HEADER in self.request.headers
        used = self.counts_as_use and not unseen
        self._set_user(await self.site.store(sessions.find, cookie, used=used) if cookie else None)

    def _set_user(self, signed_in: SignedIn | None) -> None:
        self.signed_in = signed_in
        if signed_in is not None:
            party.set(signed_in.user_id)

    # ---- forms of other sites --------------------------------------------------------------------

    @functools.cached_property
    def xsrf_token(self) -> bytes:
        """Return the token for the forms of this response."""
        owner = self._form_owner(new=True)
        return cross_site.make_form_token(self.site.cookie_secrets, owner).encode()

    def check_xsrf_cookie(self) -> None:
        """Refuse a change sent by a page of another site, or without a valid form token. Raises
        HTTPError 403."""
        headers, public_url = self.request.headers, self.site.settings.hub.public_url
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        if cross_site.is_foreign(origin, site, headers.get("Host", ""), public_url):
            raise HTTPError(HTTPStatus.FORBIDDEN, "the form is of another site")
        token = self.get_argument("_xsrf", "") or headers.get("X-Xsrftoken", "")
        if not cross_site.is_form_token(self.site.cookie_secrets, self._form_owner(), token):
            text = "the form's token is missing or of another session"
            own = origin is not None or site is not None  # as the browser reports
            code = "form_expired" if own and self.resendable else "forbidden"
            raise Failure(HTTPStatus.FORBIDDEN, code, text)

    def _form_owner(self, *, new: bool = False) -> str:
        """Return the owner of form tokens: the session or, without one, a cookie of the browser.
        Empty if there is neither, unless `new`, which sets the cookie."""
        if session := self.get_cookie(SESSION_COOKIE):
            return f"session {session}"
        value = self.get_cookie(FORM_COOKIE, "")
        if new and not value:
            value = secrets.token_hex(cross_site.SALT_CHARS)
            self.set_cookie(
                FORM_COOKIE, value, httponly=True, samesite="Lax", secure=self.site.secure
            )
        return f"browser {value}" if value else ""

    @property
    def resendable(self) -> bool:
        """Return whether this page's form may be sent again unchanged after the user signs in
        again."""
        return False

    def number(self, name: str, default: int, maximum: int) -> int:
        """Return an integer of the query, from 1 to `maximum`. Raises Failure."""
        text = self.get_query_argument(name, "") or str(default)
        digits = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
        if not digits or not 1 <= int(text) <= maximum:
            raise invalid(name, f"{name} must be a whole number from 1 to {maximum}")
        return int(text)

    async def store(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Return `work(db, …)`, run in a store thread. Errors of the store become Failures."""
        return await self._as_failure(self.site.store(work, *args, **named))

    async def note(self, action: str, kind: str, name: str, **after: Any) -> None:
        """Write an audit line for an action that changes nothing else in the store."""
        actor = self.signed_in.user if self.signed_in is not None else "nobody"
        # User input may contain lone surrogates, which no database accepts.
        name = name[:AUDIT_NAME_CHARS].encode("utf-8", "replace").decode("utf-8")
        await self.store(audit.write, audit.Act(actor, action, kind, name, after=after))

    async def hashing(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """Return the same as `store`, for work that hashes passwords."""
        return await self._as_failure(self.site.password(work, *args, **named))

    async def check_secret(
        self, throttle: Throttle, name: str, check: Callable[[], Awaitable[Result | None]]
    ) -> Result | None:
        """Return the result of `check`, a try at the secret of `name`. None: the secret was wrong.

        The try is counted before the check, since otherwise many simultaneous tries would all be
        allowed. If the check raises an error, the try is uncounted. Raises TooManyTries, and
        whatever `check` raises.
        """
        address, at_s = self.address, time.monotonic()
        if wait_s := throttle.wait_s(name, address, at_s):
            raise TooManyTries(wait_s)
        locked = throttle.failed(name, address, at_s)
        try:
            result = await check()
        except BaseException:
            throttle.take_back(name, address, at_s)
            raise
        if result is not None:
            throttle.succeeded(name, address, at_s)
        elif locked:
            await self.note("lock_out", "sign-in", name, locked=locked, seconds=int(WINDOW_S))
        return result

    async def _as_failure(self, work: Awaitable[Result]) -> Result:
        try:
            return await work
        except NotFound as error:
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", str(error)) from None
        except Conflict as error:
            raise Failure(HTTPStatus.CONFLICT, "conflict", str(error)) from error
        except Refused as error:
            failure = Failure(HTTPStatus.BAD_REQUEST, "invalid", str(error), error.field)
            failure.problems = dict(zip(error.fields, error.faults, strict=False))
            raise failure from None

    def failure(self, exc_info: Any) -> "Failure":
        """Return what the client may know of an exception. The log has the rest."""
        error = exc_info[1] if exc_info else None
        if isinstance(error, Failure):
            return error
        if isinstance(error, StoreUnavailable):
            return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "unavailable")
        if isinstance(error, Busy):
            text = "too many requests are waiting; try again in a moment"
            return Failure(HTTPStatus.TOO_MANY_REQUESTS, "busy", text, wait_s=BUSY_WAIT_S)
        if isinstance(error, MissingArgumentError):
            return invalid(error.arg_name, f"{error.arg_name} is missing")
        if isinstance(error, HTTPError):
            phrase = HTTPStatus(error.status_code).phrase
            code = phrase.lower().replace(" ", "_").replace("'", "")
            return Failure(error.status_code, code, error.log_message or phrase)
        return Failure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "internal error")

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        failure = self.failure(kwargs.get("exc_info"))
        super().send_error(failure.status_code, **kwargs)


class Failure(HTTPError):
    """An error with its code and message. `wait_s`: seconds until a retry is allowed."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, wait_s: int = 0
    ) -> None:
        # A name in a request may contain lone surrogates, which no log accepts.
        message = message.encode("utf-8", "replace").decode("utf-8")
        super().__init__(status, message)
        self.code, self.message, self.field, self.wait_s = code, message, field, wait_s
        self.problems: dict[str, str] = {}  # problems by field, if known


def invalid(field: str | None, message: str) -> Failure:
    """Return the 400 for a field with an invalid value."""
    return Failure(HTTPStatus.BAD_REQUEST, "invalid", message, field)


def amount(field: str, text: str, problem: str = "amount: {}") -> int:
    """Return an amount of money in nanos. Raises Failure with the problem of `field`."""
    try:
        return parse_money(text)
    except AmountError as error:
        raise invalid(field, problem.format(error)) from None


def _is_sound(value: object) -> bool:
    """Return whether all texts in a JSON value can be stored, logged and shown. JSON can encode
    lone surrogates; UTF-8 cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


class Page(HubHandler):
    """A page for people. `public` pages need no session; `admin` pages need an administrator's."""

    public = False
    admin = False

    @property
    def resendable(self) -> bool:
        return not self.public

    async def prepare(self) -> None:
        await self.find_session()
        if self.public:
            return
        await self.site.read_warnings(time.monotonic())
        if self.signed_in is None and self.request.method == "POST":
            raise Failure(HTTPStatus.UNAUTHORIZED, "session_ended", "sign in")
        if self.signed_in is None:
            path = self.request.uri or "/"
            path = path if len(path) <= NEXT_PATH_CHARS else "/"
            self.redirect("/sign-in?" + urlencode({"next": path}), status=303)
        elif self.admin and not self.signed_in.admin:
            raise HTTPError(HTTPStatus.NOT_FOUND)

    @functools.cached_property
    def language(self) -> str:
        """Return the language of the page."""
        accepted = self.request.headers.get("Accept-Language", "")[:ACCEPT_LANGUAGE_CHARS]
        return preferred_language(self.get_cookie("language"), accepted)

    @functools.cached_property
    def zone(self) -> tzinfo:
        """Return the viewer's time zone, or UTC until the pages' script has set its cookie."""
        return zones.zone_of(self.get_cookie(zones.COOKIE))

    def time_text(self, at_ms: int, form: str = "auto") -> str:
        """Return a time as the part Moment formats it, for titles."""
        return zones.viewer_text(at_ms, form, self.zone, self.language)

    @property
    def words(self) -> Mapping[str, str]:
        """Return the texts in the page's language."""
        return strings(self.language)

    def in_words(self, message: str) -> str:
        """Return an error message of the store in the page's language."""
        return refusal_in_words(self.words, message)

    def say(self, text: str, undo: str = "", **fields: str) -> None:
        """Show a toast on the next page, once. `undo`: the path to which the toast's button posts
        `fields` to revert the change."""
        self.carry(TOAST_COOKIE, TOAST_S, text=text, undo=undo, fields=fields)

    def page_before(self, *paths: str) -> str:
        """Return the URL, with its filters, of the page that the form was sent from if it is one of
        `paths`; otherwise the first of `paths`."""
        before = urlsplit(self.request.headers.get("Referer", "")[:NEXT_PATH_CHARS])
        for path in map(urlsplit, paths):
            if path.path == before.path and not path.query:
                return path._replace(query=before.query).geturl()
        return paths[0]

    def _toast(self) -> dict[str, Any] | None:
        """Return the toast for this page and clear it. None for a script that requests the page
        without showing it."""
        unseen = self.request.method == "HEAD" or UNSEEN_HEADER in self.request.headers
        if unseen or not self.get_cookie(TOAST_COOKIE):
            return None
        self.clear_cookie(TOAST_COOKIE)
        return self.carried(TOAST_COOKIE)

    def set_preference(self, name: str, value: str) -> None:
        """Store a preference of this browser in a cookie."""
        self.set_cookie(
            name, value, expires_days=COOKIE_DAYS, samesite="Lax", secure=self.site.secure
        )

    def carry(self, purpose: str, seconds: int, **values: Any) -> None:
        """Set an encrypted cookie with these values, valid for `seconds`. `purpose` is its name."""
        token = cross_site.seal(self.site.sealing.cipher, purpose, seconds, values)
        self.set_cookie(
            purpose, token, max_age=seconds, httponly=True, samesite="Lax", secure=self.site.secure
        )

    def carried(self, purpose: str) -> dict[str, Any] | None:
        """Return the values of an encrypted cookie. None: there is none, or it is not valid."""
        token = self.get_cookie(purpose)
        return cross_site.unseal(self.site.sealing.cipher, purpose, token) if token else None

    def show(self, template: str, **values: Any) -> None:
        """Render a page."""
        self.set_header("Vary", "Cookie, Accept-Language")
        theme = self.get_cookie("theme")
        self.render(
            template,
            words=self.words,
            language=self.language,
            languages=LANGUAGES,
            theme=theme if theme in THEMES else "",
            signed_in=self.signed_in,
            base_url=self.site.base_url,
            currency=self.site.settings.money.currency,
            path=self.request.path,
            refusal=self.in_words,
            nav=self._navigation(),
            toast=self._toast(),
            warnings=self.site.warnings if self.signed_in else (),
            hanging=self.site.hanging if self.signed_in and self.signed_in.admin else (),
            **{**FUNCTIONS, **values},
        )

    def _navigation(self) -> Navigation | None:
        if self.signed_in is None:
            return None
        return navigation(admin=self.signed_in.admin)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        failure = self.failure(kwargs.get("exc_info"))
        if failure.wait_s:
            self.set_header("Retry-After", str(failure.wait_s))
        if failure.code in RESENT:
            fields = self.request.body_arguments
            values = {"fields": fields, "retyped": RETYPED, "action": self.request.uri}
            self.show("resend.html", failure=failure, **values)
        else:
            self.show("error.html", failure=failure)


def or_refused(post: Post) -> Post:
    """Make the POST of a form answer a Failure by `refuse(failure, *names)`, with the failure's
    status."""

    @functools.wraps(post)
    async def answered(page: Any, *names: str) -> None:
        try:
            await post(page, *names)
        except Failure as failure:
            page.set_status(failure.status_code)
            await page.refuse(failure, *names)

    return cast(Post, answered)


class Api(HubHandler):
    """An endpoint of the JSON API, for a session or for a token with the required scope."""

    scope = "read"  # required of a token for GET; `change_scope` for others
    change_scope = "keys"
    admin = False

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Content-Type", "application/json; charset=utf-8")

    def check_xsrf_cookie(self) -> None:
        """Skip the check for requests with a token, which no browser sends on its own."""
        if not self._bearer():
            super().check_xsrf_cookie()

    async def find_session(self) -> None:
        """Set the user from the token or the session, if any."""
        if bearer := self._bearer():
            await self._find_token(bearer)
        else:
            await super().find_session()

    async def prepare(self) -> None:
        await self.find_session()
        if self.signed_in is None:
            raise Failure(HTTPStatus.UNAUTHORIZED, "unauthorized", "sign in, or send a token")
        if self.admin and not self.signed_in.admin:
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", "there is no such path")

    def body(self) -> dict[str, Any]:
        """Return the request's JSON object, empty if there is no body. Raises Failure."""
        if not self.request.body:
            return {}
        try:
            body = json.loads(self.request.body)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "a JSON object expected")
        for name, value in body.items():
            if not _is_sound(name) or not _is_sound(value):
                raise invalid(name, "texts must be whole Unicode characters, not nested too deeply")
        return body

    def version_in(self, body: dict[str, Any]) -> str | None:
        """Remove `version` from a body and return it: the version of the object that the change is
        based on. None: any version. Raises Failure."""
        version = body.pop("version", None)
        if not isinstance(version, str | None):
            raise invalid("version", "version must be a string: the one that GET answers")
        return version

    def answer(self, value: object, status: int = HTTPStatus.OK) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.finish(json.dumps(value, ensure_ascii=False))

    def answer_list(
        self, items: Sequence[object], following: str | None = None, status: int = HTTPStatus.OK
    ) -> None:
        """Answer with a page of a list. `following`: the cursor of the next page, if any."""
        self.answer({"items": items, "next": following}, status)

    def answer_nothing(self) -> None:
        """Answer 204."""
        self.set_status(HTTPStatus.NO_CONTENT)
        self.clear_header("Content-Type")
        self.finish()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        failure = self.failure(kwargs.get("exc_info"))
        if failure.wait_s:
            self.set_header("Retry-After", str(failure.wait_s))
        error = {"code": failure.code, "message": failure.message, "field": failure.field}
        self.finish(json.dumps({"error": error}))

    def _bearer(self) -> str:
        return bearer_of(self.request.headers.get("Authorization", ""))

    async def _find_token(self, token: str) -> None:
        await self.site.read_base_url(time.monotonic())
        self.signed_in = None
        signed_in = await self.site.store(tokens.find, token)
        if signed_in is None:
            return
        scopes = signed_in.scopes or frozenset()
        needed = self.scope if self.request.method in ("GET", "HEAD") else self.change_scope
        if needed not in scopes and "admin" not in scopes:
            raise Failure(HTTPStatus.FORBIDDEN, "forbidden", f"the token lacks the scope {needed}")
        self._set_user(signed_in)


def bearer_of(authorization: str) -> str:
    """Return the token of an Authorization header; empty without one."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
