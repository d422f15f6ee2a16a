"""The routes of the Hub. Names in paths are percent-encoded: they may hold slashes."""

from handlers.hub import all_keys, audit, channels, codes, models, objects, system, users
from handlers.hub.access import routes as access
from handlers.hub.keys import routes as keys
from handlers.hub.openapi import endpoint as openapi
from handlers.hub.overview import routes as overview
from handlers.hub.usage import routes as usage
from handlers.hub.web.base import Routes

_KIND = "(users|groups|models|channels|plans|subscriptions)"
_FORMS = "(users|groups|models|plans|subscriptions)"
_NAME = "([^/]+)"

ADMIN_API: Routes = (
    (f"/api/admin/users/{_NAME}/credit", users.CreditApi),
    (f"/api/admin/users/{_NAME}/sessions", users.SessionsApi),
    (f"/api/admin/users/{_NAME}/ledger", users.LedgerApi),
    (f"/api/admin/users/{_NAME}/totp", users.TotpApi),
    (f"/api/admin/users/{_NAME}/links", users.LinksApi),
    (f"/api/admin/users/{_NAME}/links/{_NAME}", users.LinkApi),
    ("/api/admin/tokens", users.AllTokensApi),
    (f"/api/admin/tokens/{_NAME}", users.RevokeTokenApi),
    (f"/api/admin/usage/{_NAME}/refund", users.RefundApi),
    ("/api/admin/keys", all_keys.AllKeysApi),
    ("/api/admin/keys/find", all_keys.FindKeyApi),
    (f"/api/admin/keys/{_NAME}", all_keys.AnyKeyApi),
    (f"/api/admin/keys/{_NAME}/(enable|disable)", all_keys.SwitchKeyApi),
    (f"/api/admin/channels/{_NAME}/test", channels.ChannelTestApi),
    (f"/api/admin/channels/{_NAME}/(enable|disable|drain)", channels.SwitchChannelApi),
    (f"/api/admin/channels/{_NAME}/reinstate", channels.ReinstateApi),
    (f"/api/admin/channels/{_NAME}/upstream-models", channels.UpstreamModelsApi),
    ("/api/admin/channel-tests", channels.TestAllApi),
    (f"/api/admin/models/{_NAME}/prices", models.PriceHistoryApi),
    ("/api/admin/prices", models.PriceImportApi),
    ("/api/admin/codes", codes.CodeListApi),
    (f"/api/admin/codes/{_NAME}", codes.CodeApi),
    ("/api/admin/audit", audit.AuditApi),
    ("/api/admin/audit/export", audit.AuditExportApi),
    ("/api/admin/system", system.SystemApi),
    ("/api/admin/system/drain", system.DrainApi),
    ("/api/admin/notices", system.NoticesApi),
    (f"/api/admin/notices/{_NAME}", system.NoticeApi),
    ("/api/notices", system.CurrentNoticesApi),
    (f"/api/admin/{_KIND}", objects.ObjectListApi),
    ("/api/admin/(subscriptions)/([^/]+/[^/]+)", objects.ObjectApi),
    (f"/api/admin/{_KIND}/{_NAME}", objects.ObjectApi),
)

ADMIN_PAGES: Routes = (
    ("/admin/channels", channels.ChannelListPage),
    (f"/admin/channels/{_NAME}", channels.OpenChannelPage),
    (f"/admin/(channels)/{_NAME}/edit", objects.ObjectPage),
    (f"/admin/channels/{_NAME}/test", channels.ChannelTestPage),
    (f"/admin/channels/{_NAME}/models", channels.UpstreamModelsPage),
    (f"/admin/channels/{_NAME}/(enable|disable|drain)", channels.SwitchChannelPage),
    (f"/admin/channels/{_NAME}/reinstate", channels.ReinstatePage),
    ("/admin/keys", all_keys.AllKeysPage),
    ("/admin/keys/find", all_keys.FindKeyPage),
    (f"/admin/keys/{_NAME}/(enable|disable)", all_keys.SwitchKeyPage),
    (f"/admin/keys/{_NAME}/revoke", all_keys.RevokeKeyPage),
    (f"/admin/usage/{_NAME}/refund", users.RefundPage),
    ("/admin/prices", models.PriceImportPage),
    ("/admin/codes", codes.CodeListPage),
    (f"/admin/codes/{_NAME}/(enable|disable)", codes.SwitchCodePage),
    (f"/admin/codes/{_NAME}/remove", codes.RemoveCodePage),
    ("/admin/audit", audit.AuditPage),
    ("/admin/system", system.SystemPage),
    ("/admin/system/notices", system.NoticesPage),
    ("/admin/system/drain", system.DrainPage),
    (f"/admin/users/{_NAME}/credit", users.CreditPage),
    (f"/admin/users/{_NAME}/sessions", users.EndSessionsPage),
    (f"/admin/users/{_NAME}/totp", users.EndOneTimeCodesPage),
    (f"/admin/users/{_NAME}/links", users.LinksPage),
    (f"/admin/{_FORMS}", objects.ObjectListPage),
    (f"/admin/{_KIND}/{_NAME}/remove", objects.RemoveObjectPage),
    (f"/admin/{_FORMS}/{_NAME}/(enable|disable)", objects.SwitchObjectPage),
    (f"/admin/(users)/{_NAME}", users.UserPage),
    (f"/admin/(models)/{_NAME}", models.ModelPage),
    (f"/admin/{_FORMS}/{_NAME}", objects.ObjectPage),
)

ROUTES: Routes = (
    *overview.ROUTES,
    *keys.ROUTES,
    *usage.ROUTES,
    *access.ROUTES,
    *ADMIN_API,
    *ADMIN_PAGES,
    ("/api/openapi.json", openapi.Document),
    ("/api(?:/.*)?", openapi.Unknown),
)
