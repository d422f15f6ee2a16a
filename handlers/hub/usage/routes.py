"""The paths of this room."""

from handlers.hub.usage import api, export, one, pages, tail
from handlers.hub.web.base import Routes

ROUTES: Routes = (
    ("/usage", pages.UsagePage),
    ("/usage/tail", pages.UsageTail),
    ("/usage/([^/]+)", one.CallPage),
    ("/admin/usage", pages.AdminUsagePage),
    ("/admin/usage/tail", pages.AdminUsageTail),
    ("/api/usage", api.ApiUsage),
    ("/api/usage/stats", api.ApiStats),
    ("/api/usage/errors", api.ApiErrors),
    ("/api/usage/export", export.ApiExport),
    ("/api/usage/tail", tail.ApiTail),
    ("/api/usage/([^/]+)", api.ApiCall),
)
