"""What all handlers of the Hub share: who asks, security headers, pages, errors.

A page asks for a session and leads to the sign-in without one; an endpoint of the JSON API takes a
session or a token and answers 401. Both answer errors in their own form.
"""

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlencode

from tornado.web import HTTPError, MissingArgumentError, RequestHandler

from handlers.hub.web.numbers import FUNCTIONS
from handlers.hub.web.site import Busy, Site
from handlers.hub.web.strings import LANGUAGES, chosen, strings
from handlers.relay.admit import client_address
from store.db import audit
from store.hub import sessions, tokens
from store.hub.sessions import SignedIn
from store.values.errors import Conflict, NotFound, Refused, StoreUnavailable

Result = TypeVar("Result")

SESSION_COOKIE = "sluice_session"
TOAST_COOKIE = "toast"
UNSEEN_HEADER = "X-Unseen"  # of a script that asks for a page which it does not show
BUSY_WAIT_S = 2
MAX_DIGITS = 9  # of a number in a query
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
"""Paths as regular expressions, each with its handler; every room has its own."""


class HubHandler(RequestHandler):
    """A request to the Hub."""

    counts_as_use = True  # of its session, whose idle time begins anew

    def initialize(self, site: Site) -> None:
        self.site = site
        self.signed_in: SignedIn | None = None
        audit.caller.set(self.address)  # of the task that answers this request

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    @property
    def address(self) -> str:
        """The caller's, behind proxies that are trusted."""
        forwarded = self.request.headers.get("X-Forwarded-For")
        return client_address(self.request.remote_ip or "", forwarded, self.site.trusted)

    async def find_session(self) -> None:
        """Whose session the cookie is, if any."""
        await self.site.read_base_url(time.monotonic())
        cookie = self.get_cookie(SESSION_COOKIE)
        unseen = self.request.method == "GET" and UNSEEN_HEADER in self.request.headers
        used = self.counts_as_use and not unseen
        found = self.site.store(sessions.find, cookie, used=used) if cookie else None
        self.signed_in = await found if found else None

    def number(self, name: str, usual: int, most: int) -> int:
        """A whole number of the query, from 1 to `most`; `usual` when there is none. Raises
        Failure."""
        text = self.get_query_argument(name, "") or str(usual)
        digits = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
        if not digits or not 1 <= int(text) <= most:
            told = f"{name} must be a whole number from 1 to {most}"
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, name)
        return int(text)

    async def store(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """What the store makes of a request. Raises Failure for what it refuses."""
        return await self._told(self.site.store(work, *args, **named))

    async def hashing(self, work: Callable[..., Result], *args: Any, **named: Any) -> Result:
        """The same for work that hashes passwords."""
        return await self._told(self.site.password(work, *args, **named))

    async def _told(self, work: Awaitable[Result]) -> Result:
        try:
            return await work
        except NotFound as error:
            raise Failure(HTTPStatus.NOT_FOUND, "not_found", str(error)) from None
        except Conflict as error:
            raise Failure(HTTPStatus.CONFLICT, "conflict", str(error)) from None
        except Refused as error:
            failure = Failure(HTTPStatus.BAD_REQUEST, "invalid", str(error), error.field)
            failure.problems = dict(zip(error.fields, error.faults, strict=False))
            raise failure from None

    def failure(self, exc_info: Any) -> "Failure":
        """What an exception is to the client; the log has the rest."""
        error = exc_info[1] if exc_info else None
        if isinstance(error, Failure):
            return error
        if isinstance(error, StoreUnavailable):
            return Failure(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "unavailable")
        if isinstance(error, Busy):
            told = "too many passwords are being checked"
            return Failure(HTTPStatus.TOO_MANY_REQUESTS, "busy", told, wait_s=BUSY_WAIT_S)
        if isinstance(error, MissingArgumentError):
            name = error.arg_name
            return Failure(HTTPStatus.BAD_REQUEST, "invalid", f"{name} is missing", name)
        if isinstance(error, HTTPError):
            phrase = HTTPStatus(error.status_code).phrase
            code = phrase.lower().replace(" ", "_").replace("'", "")
            return Failure(error.status_code, code, error.log_message or phrase)
        return Failure(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "internal error")

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        failure = self.failure(kwargs.get("exc_info"))
        super().send_error(failure.status_code, **kwargs)


class Failure(HTTPError):
    """An error with the words of its answer; `wait_s`: when the same may be tried again."""

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, wait_s: int = 0
    ) -> None:
        # A name that was sent may hold half a character, which no log takes.
        message = message.encode("utf-8", "replace").decode("utf-8")
        super().__init__(status, message)
        self.code, self.message, self.field, self.wait_s = code, message, field, wait_s
        self.problems: dict[str, str] = {}  # what is wrong with each field, if more is known


def _is_sound(value: object) -> bool:
    """Whether all texts in a value of JSON can be stored, logged and shown: JSON can write half of
    a character, UTF-8 cannot."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


class Page(HubHandler):
    """A page for people; `public` ones need no session, `admin` ones an administrator's."""

    public = False
    admin = False

    async def prepare(self) -> None:
        await self.find_session()
        if self.public:
            return
        await self.site.read_warnings(time.monotonic())
        if self.signed_in is None:
            self.redirect("/sign-in?" + urlencode({"next": self.request.uri or "/"}), status=303)
        elif self.admin and not self.signed_in.admin:
            raise HTTPError(HTTPStatus.NOT_FOUND)

    @property
    def language(self) -> str:
        """The language of the page."""
        accepted = self.request.headers.get("Accept-Language", "")
        return chosen(self.get_cookie("language"), accepted)

    @property
    def words(self) -> Mapping[str, str]:
        """The sentences of the page's language."""
        return strings(self.language)

    def say(self, text: str, undo: str = "", **fields: str) -> None:
        """What the next page says once, in a toast; with `undo`, a path that takes it back when it
        is posted to with these fields."""
        said = json.dumps({"text": text, "undo": undo, "fields": fields})
        self.set_cookie(TOAST_COOKIE, quote(said), httponly=True, samesite="Lax", max_age=60)

    def _toast(self) -> dict[str, Any] | None:
        """What was to be said, once; a script that only follows a form to its page is not told."""
        cookie = self.get_cookie(TOAST_COOKIE)
        if not cookie or UNSEEN_HEADER in self.request.headers:
            return None
        self.clear_cookie(TOAST_COOKIE)
        try:
            said = json.loads(unquote(cookie))
        except ValueError:
            return None
        whole = isinstance(said, dict) and said.keys() == {"text", "undo", "fields"}
        return said if whole and str(said["undo"] or "/").startswith("/") else None

    def show(self, template: str, **values: Any) -> None:
        """Answers with a page."""
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
            toast=self._toast(),
            warnings=self.site.warnings if self.signed_in else (),
            **{**FUNCTIONS, **values},
        )

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        failure = self.failure(kwargs.get("exc_info"))
        if failure.wait_s:
            self.set_header("Retry-After", str(failure.wait_s))
        self.show("error.html", failure=failure)


class Api(HubHandler):
    """An endpoint of the JSON API: for a session, or for a token with the scope that it needs."""

    scope = "read"  # of a token, for GET; `change_scope` for anything else
    change_scope = "keys"
    admin = False
    token_scopes: frozenset[str] | None = None  # of the token that asks; None: a session

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Content-Type", "application/json; charset=utf-8")

    def check_xsrf_cookie(self) -> None:
        """A token is sent by no browser on its own."""
        if not self._bearer():
            super().check_xsrf_cookie()

    async def find_session(self) -> None:
        """For whom the token acts, or whose session the cookie is, if any."""
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
        """The JSON object of the request; empty when there is none. Raises Failure."""
        if not self.request.body:
            return {}
        try:
            said = json.loads(self.request.body)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise Failure(HTTPStatus.BAD_REQUEST, "invalid", "a JSON object expected")
        for name, value in said.items():
            if not _is_sound(name) or not _is_sound(value):
                told = "texts must be whole Unicode characters, not nested too deeply"
                raise Failure(HTTPStatus.BAD_REQUEST, "invalid", told, name)
        return said

    def answer(self, value: object, status: int = HTTPStatus.OK) -> None:
        """Answers with JSON."""
        self.set_status(status)
        self.finish(json.dumps(value, ensure_ascii=False))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        failure = self.failure(kwargs.get("exc_info"))
        if failure.wait_s:
            self.set_header("Retry-After", str(failure.wait_s))
        said = {"code": failure.code, "message": failure.message, "field": failure.field}
        self.finish(json.dumps({"error": said}))

    def _bearer(self) -> str:
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    async def _find_token(self, token: str) -> None:
        await self.site.read_base_url(time.monotonic())
        self.signed_in = None
        found = await self.site.store(tokens.find, token)
        if found is None:
            return
        needed = self.scope if self.request.method in ("GET", "HEAD") else self.change_scope
        if needed not in found.scopes and "admin" not in found.scopes:
            raise Failure(HTTPStatus.FORBIDDEN, "forbidden", f"the token lacks the scope {needed}")
        self.token_scopes = found.scopes
        self.signed_in = SignedIn(found.token_id, found.user_id, found.user, found.role)
