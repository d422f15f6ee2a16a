"""The paths of this room."""

from handlers.hub.overview import api, home, status, wallet
from handlers.hub.web.base import Routes

ROUTES: Routes = (
    ("/", home.Home),
    ("/status", status.Status),
    ("/wallet", wallet.Wallet),
    ("/wallet/redeem", wallet.Redeem),
    ("/wallet/order", wallet.Order),
    ("/wallet/low-balance", wallet.LowBalance),
    ("/wallet/ledger.csv", wallet.LedgerCsv),
    ("/api/home", api.ApiHome),
    ("/api/status", api.ApiStatus),
    ("/api/wallet", api.ApiWallet),
    ("/api/wallet/ledger", api.ApiLedger),
    ("/api/wallet/redeem", api.ApiRedeem),
)
