"""The paths of this room. Names in paths are percent-encoded: they may hold slashes."""

from handlers.hub.admin.api import (
    audit,
    channels,
    codes,
    keys,
    notices,
    objects,
    prices,
    system,
    tokens,
    users,
    ways_in,
)
from handlers.hub.admin.pages import audit as audit_page
from handlers.hub.admin.pages import channels as channel_pages
from handlers.hub.admin.pages import codes as code_pages
from handlers.hub.admin.pages import keys as key_pages
from handlers.hub.admin.pages import models as model_pages
from handlers.hub.admin.pages import objects as object_pages
from handlers.hub.admin.pages import system as system_page
from handlers.hub.admin.pages import upstream_models as upstream_pages
from handlers.hub.admin.pages import users as user_pages
from handlers.hub.web.base import Routes

_KIND = "(users|groups|models|channels|plans|subscriptions)"
_FORMS = "(users|groups|models|plans|subscriptions)"
_NAME = "([^/]+)"

API: Routes = (
    (f"/api/admin/users/{_NAME}/credit", users.Credit),
    (f"/api/admin/users/{_NAME}/sessions", users.Sessions),
    (f"/api/admin/users/{_NAME}/ledger", users.Ledger),
    (f"/api/admin/usage/{_NAME}/refund", users.Refund),
    ("/api/admin/keys", keys.List),
    ("/api/admin/keys/find", keys.Find),
    (f"/api/admin/keys/{_NAME}", keys.One),
    (f"/api/admin/keys/{_NAME}/(enable|disable)", keys.Switch),
    (f"/api/admin/users/{_NAME}/totp", ways_in.Totp),
    (f"/api/admin/users/{_NAME}/links", ways_in.Links),
    (f"/api/admin/users/{_NAME}/links/{_NAME}", ways_in.OneLink),
    (f"/api/admin/channels/{_NAME}/test", channels.Test),
    (f"/api/admin/channels/{_NAME}/(enable|disable|drain)", channels.Switch),
    (f"/api/admin/channels/{_NAME}/reinstate", channels.Reinstate),
    (f"/api/admin/models/{_NAME}/prices", prices.History),
    (f"/api/admin/channels/{_NAME}/upstream-models", channels.Models),
    ("/api/admin/channel-tests", channels.TestAll),
    ("/api/admin/prices", prices.Import),
    ("/api/admin/codes", codes.List),
    (f"/api/admin/codes/{_NAME}", codes.One),
    ("/api/admin/audit", audit.Log),
    ("/api/admin/audit/export", audit.Export),
    ("/api/admin/system", system.System),
    ("/api/admin/system/drain", system.Drain),
    ("/api/admin/notices", notices.List),
    (f"/api/admin/notices/{_NAME}", notices.One),
    ("/api/admin/tokens", tokens.List),
    (f"/api/admin/tokens/{_NAME}", tokens.One),
    ("/api/notices", notices.Current),
    (f"/api/admin/{_KIND}", objects.List),
    ("/api/admin/(subscriptions)/([^/]+/[^/]+)", objects.One),
    (f"/api/admin/{_KIND}/{_NAME}", objects.One),
)

PAGES: Routes = (
    ("/admin/channels", channel_pages.List),
    (f"/admin/channels/{_NAME}", channel_pages.One),
    (f"/admin/(channels)/{_NAME}/edit", object_pages.One),
    (f"/admin/channels/{_NAME}/test", channel_pages.Test),
    (f"/admin/channels/{_NAME}/models", upstream_pages.Models),
    (f"/admin/channels/{_NAME}/(enable|disable|drain)", channel_pages.Switch),
    (f"/admin/channels/{_NAME}/reinstate", channel_pages.Reinstate),
    ("/admin/keys", key_pages.List),
    ("/admin/keys/find", key_pages.Find),
    (f"/admin/keys/{_NAME}/(enable|disable)", key_pages.Switch),
    (f"/admin/keys/{_NAME}/revoke", key_pages.Revoke),
    (f"/admin/usage/{_NAME}/refund", user_pages.Refund),
    ("/admin/prices", model_pages.Import),
    ("/admin/codes", code_pages.List),
    (f"/admin/codes/{_NAME}/(enable|disable)", code_pages.Switch),
    (f"/admin/codes/{_NAME}/remove", code_pages.Remove),
    ("/admin/audit", audit_page.Log),
    ("/admin/system", system_page.System),
    ("/admin/system/notices", system_page.Notices),
    ("/admin/system/drain", system_page.Drain),
    (f"/admin/users/{_NAME}/credit", user_pages.Credit),
    (f"/admin/users/{_NAME}/sessions", user_pages.EndSessions),
    (f"/admin/users/{_NAME}/totp", user_pages.EndCodes),
    (f"/admin/users/{_NAME}/links", user_pages.Links),
    (f"/admin/{_FORMS}", object_pages.List),
    (f"/admin/{_KIND}/{_NAME}/remove", object_pages.Remove),
    (f"/admin/{_FORMS}/{_NAME}/(enable|disable)", object_pages.Switch),
    (f"/admin/{_FORMS}/{_NAME}", object_pages.One),
)

ROUTES: Routes = (*API, *PAGES)
