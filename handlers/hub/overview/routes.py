"""The paths of this room."""

from handlers.hub.overview import home
from handlers.hub.web.base import Routes

ROUTES: Routes = (("/", home.Home),)
