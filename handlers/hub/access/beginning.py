"""Sessions of browsers: how they begin, whichever way somebody came in, and how users end them."""

from handlers.hub.web.base import FORM_COOKIE, SESSION_COOKIE, HubHandler, Page
from store.hub import sessions
from store.hub.sessions import SignedIn


async def begin_session(page: Page, user_id: str) -> None:
    """Signs a user in: a session of its own id, whatever the browser sent before."""
    agent = page.request.headers.get("User-Agent", "")
    cookie = await page.store(sessions.begin, user_id, page.address, agent)
    page.set_cookie(SESSION_COOKIE, cookie, httponly=True, samesite="Lax", secure=page.site.secure)
    page.clear_cookie(FORM_COOKIE)  # what was known before the sign-in opens nothing after it


async def end_session(handler: HubHandler, me: SignedIn, session_id: str) -> bool:
    """Ends a session of a user; False when the user has none of this id."""
    if not await handler.store(sessions.end, me.user_id, session_id):
        return False
    await handler.note("end_session", "user", me.user, session=session_id)
    return True
