"""The paths of this room."""

from handlers.hub.overview import api, home, status
from handlers.hub.web.base import Routes

ROUTES: Routes = (
    ("/", home.Home),
    ("/status", status.Status),
    ("/api/status", api.ApiStatus),
    ("/api/wallet", api.ApiWallet),
    ("/api/wallet/ledger", api.ApiLedger),
    ("/api/wallet/redeem", api.ApiRedeem),
)
