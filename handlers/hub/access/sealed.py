"""What a browser carries from one request of a sign-in to the next: sealed, for one purpose, and
for a short time. Nobody but the Hub can read or make it."""

import json
import time
from typing import Any

from handlers.hub.web.base import Page
from store.values.cipher import Unreadable

LIFETIME_S = 600


def carry(page: Page, purpose: str, **values: str) -> None:
    """Gives the browser these values, as a cookie of this name."""
    said = json.dumps({**values, "for": purpose, "until_s": time.time() + LIFETIME_S})
    token = page.site.sealing.cipher.encrypt(said)
    page.set_cookie(
        purpose,
        token,
        path="/",
        max_age=LIFETIME_S,
        httponly=True,
        samesite="Lax",
        secure=page.site.secure,
    )


def carried(page: Page, purpose: str) -> dict[str, Any] | None:
    """The values that the browser brings back; None when there are none, or they are too old."""
    token = page.get_cookie(purpose)
    if not token:
        return None
    try:
        said: dict[str, Any] = json.loads(page.site.sealing.cipher.decrypt(token))
    except Unreadable:
        return None
    return said if said["for"] == purpose and time.time() < said["until_s"] else None


def drop(page: Page, purpose: str) -> None:
    """Takes the values from the browser."""
    page.clear_cookie(purpose, path="/")
