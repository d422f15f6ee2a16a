"""The pages of the Hub by its table of routes: those of a member, and those of an administrator.

The tests of all pages cover a new page without another line; a path with a name of a new kind
needs a line in FILLED, another view of a page one in VIEWS.
"""

import itertools
import re

from handlers.hub.routes import ROUTES
from handlers.hub.web.base import Page

NAME = "([^/]+)"
# The value for a name, by the path before it.
FILLED = {
    "/keys/": "key",
    "/usage/": "call",
    "/models/": "model",
    "/alerts/rules/": "rule",
    "/alerts/destinations/": "destination",
    "/alerts/sent/": "message",
    "/admin/keys/": "key",
    "/admin/usage/": "call",
    "/admin/users/": "user",
    "/admin/groups/": "group",
    "/admin/models/": "model",
    "/admin/channels/": "channel",
    "/admin/plans/": "plan",
    "/admin/codes/": "code",
    "/admin/invites/": "invite",
}
# Views of a page that its path alone does not show, by whether administrators see them.
VIEWS = {
    False: ("/usage?by=model", "/setup?url=x", "/try?with=*"),
    True: (
        "/admin/usage?by=user",
        "/admin/models?new=1",
        "/admin/channels/new",
        "/?of=me",
        "/alerts",
        "/alerts/rules/new?of=gateway&kind=spending",
        "/usage/{call}",
    ),
}
# Pages without sign-in, and redirects.
LEFT_OUT = re.compile(
    r"/(first-run|sign-in|sign-out|join|admin/subscriptions)(/.*)?|.*\.csv|.*/tail|/account/openid"
)


def paths(*, admin):
    """Return the path templates of a member's pages, or of an administrator's: `/keys/{key}`."""
    found = []
    for pattern, handler in ROUTES:
        own = issubclass(handler, Page) and "tornado" not in handler.get.__module__
        if own and handler.admin == admin and not pattern.startswith("/api"):
            found += [path for path in _expanded(pattern) if not LEFT_OUT.fullmatch(path)]
    return [*dict.fromkeys((*map(_filled, found), *VIEWS[admin], *(("/",) if admin else ())))]


def _expanded(pattern):
    """Return a path for each word of its enumerations."""
    parts = re.split(r"(\(\w+(?:\|\w+)*\))", pattern)
    choices = [part[1:-1].split("|") if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _filled(path):
    before, name, after = path.partition(NAME)
    if not name:
        return path
    assert NAME not in after and before in FILLED, f"{path}: name its kind in FILLED"
    return f"{before}{{{FILLED[before]}}}{after}"
