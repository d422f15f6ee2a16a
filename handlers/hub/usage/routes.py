"""The paths of this room."""

from handlers.hub.web.base import Routes

ROUTES: Routes = ()
