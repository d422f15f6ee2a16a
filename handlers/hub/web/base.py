"""What all handlers of the Hub share: who asks, security headers, pages, errors.

A page asks for a session and leads to the sign-in without one; an endpoint of the JSON API takes a
session or a token and answers 401. Both answer errors in their own form.
"""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from http import HTTPStatus
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import urlencode

from tornado.web import HTTPError, MissingArgumentError, RequestHandler

from handlers.hub.web import form_tokens, hosts, sealed
from handlers.hub.web.networks import network_of
from handlers.hub.web.numbers import FUNCTIONS
from handlers.hub.web.places import Busy, party
from handlers.hub.web.site import Site
from handlers.hub.web.strings import LANGUAGES, chosen, strings
from handlers.relay.admit import client_address
from store.db import audit
from store.hub import sessions, tokens
from store.hub.sessions import SignedIn
from store.values.errors import Conflict, NotFound, Refused, StoreUnavailable
from store.values.passwords import FAULTS

Result = TypeVar("Result")
log = logging.getLogger("sluice.hub")

SESSION_COOKIE = "sluice_session"
TOAST_COOKIE = "toast"
TOAST_S = 60
FORM_COOKIE = "_xsrf"  # of browsers without a session
LOGGED_PATH_CHARS = 200
AUDIT_NAME_CHARS = 128
PLACE_CHARS = 2048  # of the page that a sign-in leads back to
ACCEPT_LANGUAGE_CHARS = 256
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


class Logged(RequestHandler):
    """A request whose log lines are bounded, and tell no query: codes may stand there."""

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """A line for a fault of ours; a client's is told to the client."""
        known = isinstance(value, (HTTPError, StoreUnavailable, Busy))
        told = "%s %s failed: %s" if known else "%s %s failed"
        level = logging.DEBUG if known else logging.ERROR
        args = [value] if known else []
        trace = None if known or typ is None or value is None else (typ, value, tb)
        log.log(level, told, self.request.method, self.logged_path, *args, exc_info=trace)

    @property
    def logged_path(self) -> str:
        """The beginning of the path."""
        return (self.request.path or "")[:LOGGED_PATH_CHARS]


class HubHandler(Logged):
    """A request to the Hub."""

    counts_as_use = True  # of its session, whose idle time begins anew

    def initialize(self, site: Site) -> None:
        self.site = site
        self.signed_in: SignedIn | None = None
        # Of the task that answers this request.
        audit.caller.set(self.address)
        party.set(network_of(self.address))

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        self.set_header("Cache-Control", "no-store")
        self.clear_header("Server")

    @cached_property
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
        self._take_session(await found if found else None)

    def _take_session(self, signed_in: SignedIn | None) -> None:
        """From here on the request is a user's."""
        self.signed_in = signed_in
        if signed_in is not None:
            party.set(signed_in.user_id)

    # ---- forms of other sites --------------------------------------------------------------------

    @cached_property
    def xsrf_token(self) -> bytes:
        """The token of this answer's forms."""
        return form_tokens.make(self.site.cookie_secrets, self._form_owner(new=True)).encode()

    def check_xsrf_cookie(self) -> None:
        """Refuses a change that comes from a page of another site, or without the token of a form
        of ours. Raises HTTPError 403."""
        headers, public_url = self.request.headers, self.site.settings.hub.public_url
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        if hosts.is_foreign(origin, site, headers.get("Host", ""), public_url):
            raise HTTPError(HTTPStatus.FORBIDDEN, "the form is of another site")
        token = self.get_argument("_xsrf", "") or headers.get("X-Xsrftoken", "")
        if not form_tokens.fits(self.site.cookie_secrets, self._form_owner(), token):
            raise HTTPError(
                HTTPStatus.FORBIDDEN, "the form's token is missing or of another session"
            )

    def _form_owner(self, *, new: bool = False) -> str:
        """For whom tokens of forms are made: a session, or a browser by a cookie of its own; empty
        when it has neither. `new`: it is given one then."""
        if session := self.get_cookie(SESSION_COOKIE):
            return f"session {session}"
        value = self.get_cookie(FORM_COOKIE, "")
        if new and not value:
            value = form_tokens.random_value()
            self.set_cookie(
                FORM_COOKIE, value, httponly=True, samesite="Lax", secure=self.site.secure
            )
        return f"browser {value}" if value else ""

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

    async def note(self, action: str, kind: str, name: str, **after: Any) -> None:
        """Writes a line of the audit log for an act that changes nothing else in the store."""
        actor = self.signed_in.user if self.signed_in is not None else "nobody"
        # What was typed may hold half a character, which no database takes.
        shown = name[:AUDIT_NAME_CHARS].encode("utf-8", "replace").decode("utf-8")
        await self.store(audit.write_alone, audit.Act(actor, action, kind, shown, after=after))

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
            told = "too many requests are waiting; try again in a moment"
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
    """Return whether all texts in a value of JSON can be stored, logged and shown: JSON can write
    half of a character, UTF-8 cannot."""
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
            place = self.request.uri or "/"
            place = place if len(place) <= PLACE_CHARS else "/"
            self.redirect("/sign-in?" + urlencode({"next": place}), status=303)
        elif self.admin and not self.signed_in.admin:
            raise HTTPError(HTTPStatus.NOT_FOUND)

    @cached_property
    def language(self) -> str:
        """The language of the page."""
        accepted = self.request.headers.get("Accept-Language", "")[:ACCEPT_LANGUAGE_CHARS]
        return chosen(self.get_cookie("language"), accepted)

    @property
    def words(self) -> Mapping[str, str]:
        """The sentences of the page's language."""
        return strings(self.language)

    def in_words(self, told: str) -> str:
        """Return a refusal of a new password in the page's language; any other as it is."""
        fault = next((fault for fault, text in FAULTS.items() if told.endswith(text)), None)
        return self.words[f"password_{fault}"] if fault else told

    def say(self, text: str, undo: str = "", **fields: str) -> None:
        """What the next page says once, in a toast; with `undo`, a path that takes it back when it
        is posted to with these fields."""
        self.carry(TOAST_COOKIE, TOAST_S, text=text, undo=undo, fields=fields)

    def _toast(self) -> dict[str, Any] | None:
        """What was to be said, once; a script that only follows a form to its page is not told."""
        if UNSEEN_HEADER in self.request.headers or not self.get_cookie(TOAST_COOKIE):
            return None
        self.clear_cookie(TOAST_COOKIE)
        return self.carried(TOAST_COOKIE)

    def carry(self, purpose: str, seconds: int, **values: Any) -> None:
        """Gives the browser these values, sealed, as a cookie of this name, for a time."""
        token = sealed.seal(self.site.sealing.cipher, purpose, seconds, values)
        self.set_cookie(
            purpose,
            token,
            max_age=seconds,
            httponly=True,
            samesite="Lax",
            secure=self.site.secure,
        )

    def carried(self, purpose: str) -> dict[str, Any] | None:
        """The values that the browser brings back; None when there are none, or their time is
        over."""
        token = self.get_cookie(purpose)
        return sealed.opened(self.site.sealing.cipher, purpose, token) if token else None

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
        return bearer_of(self.request.headers.get("Authorization", ""))

    async def _find_token(self, token: str) -> None:
        await self.site.read_base_url(time.monotonic())
        self.signed_in = None
        found = await self.site.store(tokens.find, token)
        if found is None:
            return
        needed = self.scope if self.request.method in ("GET", "HEAD") else self.change_scope
        if needed not in found.scopes and "admin" not in found.scopes:
            raise Failure(HTTPStatus.FORBIDDEN, "forbidden", f"the token lacks the scope {needed}")
        self._take_session(
            SignedIn(found.token_id, found.user_id, found.user, found.role, found.scopes)
        )


def bearer_of(authorization: str) -> str:
    """The token of an Authorization header; empty without one."""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
