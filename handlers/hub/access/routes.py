"""The paths of this room."""

from handlers.hub.access import account, first_run, sign_in
from handlers.hub.web.base import Routes

ROUTES: Routes = (
    ("/first-run", first_run.FirstRun),
    ("/first-run/address", first_run.Address),
    ("/first-run/channel", first_run.Channel),
    ("/first-run/key", first_run.Key),
    ("/sign-in", sign_in.SignIn),
    ("/sign-out", sign_in.SignOut),
    ("/preferences", sign_in.Preferences),
    ("/account", account.Account),
    ("/account/password", account.Password),
    ("/account/sessions", account.Sessions),
    ("/account/tokens", account.Tokens),
    ("/api/me", account.ApiMe),
)
