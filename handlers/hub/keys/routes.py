"""The paths of this room."""

from handlers.hub.keys import api, editing, listing, setup
from handlers.hub.web.base import Routes

ID = "([^/]+)"

ROUTES: Routes = (
    ("/keys", listing.Keys),
    ("/keys/new", editing.New),
    ("/keys/env", editing.Env),
    (f"/keys/{ID}", listing.Key),
    (f"/keys/{ID}/edit", editing.Edit),
    (f"/keys/{ID}/rotate", editing.Rotate),
    (f"/keys/{ID}/revoke", editing.Revoke),
    (f"/keys/{ID}/(disable|enable)", editing.Switch),
    (f"/keys/{ID}/(dismiss|restore)", editing.Dismiss),
    ("/setup", setup.Setup),
    ("/setup/test", setup.Test),
    ("/api/groups", api.ApiGroups),
    ("/api/keys", api.ApiKeys),
    (f"/api/keys/{ID}", api.ApiKey),
    (f"/api/keys/{ID}/rotate", api.ApiKeyRotate),
    (f"/api/keys/{ID}/(disable|enable)", api.ApiKeySwitch),
    ("/api/setup/check-url", setup.ApiCheckUrl),
    ("/api/setup/test", setup.ApiTest),
)
