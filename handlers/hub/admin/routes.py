"""The paths of this room. Names in paths are percent-encoded: they may hold slashes."""

from handlers.hub.admin.api import audit, channels, codes, notices, objects, users
from handlers.hub.web.base import Routes

_KIND = "(users|groups|models|channels|plans|subscriptions)"
_NAME = "([^/]+)"

ROUTES: Routes = (
    (f"/api/admin/users/{_NAME}/credit", users.Credit),
    (f"/api/admin/users/{_NAME}/sessions", users.Sessions),
    (f"/api/admin/channels/{_NAME}/test", channels.Test),
    (f"/api/admin/channels/{_NAME}/(enable|disable|drain)", channels.Switch),
    (f"/api/admin/channels/{_NAME}/reinstate", channels.Reinstate),
    ("/api/admin/codes", codes.List),
    (f"/api/admin/codes/{_NAME}", codes.One),
    ("/api/admin/audit", audit.Log),
    ("/api/admin/notices", notices.List),
    (f"/api/admin/notices/{_NAME}", notices.One),
    ("/api/notices", notices.Current),
    (f"/api/admin/{_KIND}", objects.List),
    ("/api/admin/(subscriptions)/([^/]+/[^/]+)", objects.One),
    (f"/api/admin/{_KIND}/{_NAME}", objects.One),
)
