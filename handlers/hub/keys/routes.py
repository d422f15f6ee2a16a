"""The paths of this room."""

from handlers.hub.keys import api
from handlers.hub.web.base import Routes

ID = "([^/]+)"

ROUTES: Routes = (
    ("/api/groups", api.ApiGroups),
    ("/api/keys", api.ApiKeys),
    (f"/api/keys/{ID}", api.ApiKey),
    (f"/api/keys/{ID}/rotate", api.ApiKeyRotate),
    (f"/api/keys/{ID}/(disable|enable)", api.ApiKeySwitch),
)
