"""How a session begins, whichever way somebody came in."""

from handlers.hub.web.base import SESSION_COOKIE, Page
from store.hub import sessions


async def begin_session(page: Page, user_id: str) -> None:
    """Signs a user in: a session of its own id, whatever the browser sent before."""
    agent = page.request.headers.get("User-Agent", "")
    cookie = await page.store(sessions.begin, user_id, page.address, agent)
    page.set_cookie(SESSION_COOKIE, cookie, httponly=True, samesite="Lax", secure=page.site.secure)
    page.clear_cookie("_xsrf")  # what was known before the sign-in opens nothing after it
