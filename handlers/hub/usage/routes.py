"""The paths of this room."""

from handlers.hub.usage import api, export, tail
from handlers.hub.web.base import Routes

ROUTES: Routes = (
    ("/api/usage", api.ApiUsage),
    ("/api/usage/stats", api.ApiStats),
    ("/api/usage/errors", api.ApiErrors),
    ("/api/usage/export", export.ApiExport),
    ("/api/usage/tail", tail.ApiTail),
    ("/api/usage/([^/]+)", api.ApiCall),
)
