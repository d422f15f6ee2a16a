"""The paths of this room. Names in paths are percent-encoded: they may hold slashes."""

from handlers.hub.admin.api import audit, channels, codes, notices, objects, prices, system, users
from handlers.hub.web.base import Routes

_KIND = "(users|groups|models|channels|plans|subscriptions)"
_NAME = "([^/]+)"

ROUTES: Routes = (
    (f"/api/admin/users/{_NAME}/credit", users.Credit),
    (f"/api/admin/users/{_NAME}/sessions", users.Sessions),
    (f"/api/admin/channels/{_NAME}/test", channels.Test),
    (f"/api/admin/channels/{_NAME}/(enable|disable|drain)", channels.Switch),
    (f"/api/admin/channels/{_NAME}/reinstate", channels.Reinstate),
    (f"/api/admin/models/{_NAME}/prices", prices.History),
    ("/api/admin/prices", prices.Import),
    ("/api/admin/codes", codes.List),
    (f"/api/admin/codes/{_NAME}", codes.One),
    ("/api/admin/audit", audit.Log),
    ("/api/admin/system", system.System),
    ("/api/admin/system/drain", system.Drain),
    ("/api/admin/notices", notices.List),
    (f"/api/admin/notices/{_NAME}", notices.One),
    ("/api/notices", notices.Current),
    (f"/api/admin/{_KIND}", objects.List),
    ("/api/admin/(subscriptions)/([^/]+/[^/]+)", objects.One),
    (f"/api/admin/{_KIND}/{_NAME}", objects.One),
)
