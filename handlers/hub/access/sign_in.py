"""Signing in and out, and what a browser remembers without signing in: theme and language."""

import time
from urllib.parse import urlsplit

from handlers.hub.access.beginning import begin_session
from handlers.hub.web.base import SESSION_COOKIE, THEMES, Page
from handlers.hub.web.strings import LANGUAGES
from store.hub import people, sessions

COOKIE_DAYS = 365  # of theme and language
SECONDS_PER_MINUTE = 60


class SignIn(Page):
    """The form, and what it sends. A success leads to the page that was asked for."""

    public = True

    async def get(self) -> None:
        if self.signed_in is not None:
            self.redirect(self._next(), status=303)
        else:
            self._form()

    async def post(self) -> None:
        name, password = self.get_body_argument("name"), self._password()
        tries, now_s = self.site.tries, time.monotonic()
        if wait_s := tries.wait_s(name, self.address, now_s):
            self.set_status(429)
            self.set_header("Retry-After", str(wait_s))
            self._form(name, "sign_in_wait", -(-wait_s // SECONDS_PER_MINUTE))
            return
        person = await self.site.password(people.check, name, password)
        if person is None:
            tries.failed(name, self.address, now_s)
            self.set_status(401)
            self._form(name, "sign_in_wrong")
            return
        tries.succeeded(name)
        await begin_session(self, person.id)
        self.redirect(self._next(), status=303)

    def _password(self) -> str:
        """As it was typed, blanks at its ends, too."""
        return self.get_body_argument("password", "", strip=False)

    def _form(self, name: str = "", problem: str = "", minutes: int = 0) -> None:
        self.show(
            "access/sign_in.html", name=name, problem=problem, minutes=minutes, next=self._next()
        )

    def _next(self) -> str:
        """The page asked for: a path of the Hub, never another host."""
        wanted = self.get_argument("next", "/")
        parts = urlsplit(wanted)
        inside = wanted.startswith("/") and not wanted.startswith(("//", "/\\"))
        return wanted if inside and not parts.netloc else "/"


class SignOut(Page):
    """Ends the session."""

    async def get(self) -> None:
        self.redirect("/", status=303)

    async def post(self) -> None:
        assert self.signed_in is not None
        await self.store(sessions.end, self.signed_in.user_id, self.signed_in.session_id)
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
        self.redirect(self.request.headers.get("Referer") or "/", status=303)

    def _keep(self, name: str, value: str) -> None:
        self.set_cookie(
            name, value, expires_days=COOKIE_DAYS, samesite="Lax", secure=self.site.secure
        )
