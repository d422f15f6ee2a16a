"""The paths of this room."""

from handlers.hub.access import account, api, first_run, sign_in
from handlers.hub.web.base import Routes

ROUTES: Routes = (
    ("/first-run", first_run.FirstRun),
    ("/first-run/address", first_run.Address),
    ("/first-run/channel", first_run.Channel),
    ("/first-run/key", first_run.Key),
    ("/sign-in", sign_in.SignIn),
    ("/sign-in/code", sign_in.Code),
    ("/sign-in/openid", sign_in.OpenId),
    ("/sign-in/openid/back", sign_in.OpenIdBack),
    ("/sign-out", sign_in.SignOut),
    ("/preferences", sign_in.Preferences),
    ("/account", account.Account),
    ("/account/password", account.Password),
    ("/account/codes", account.Codes),
    ("/account/links", account.Links),
    ("/account/openid", account.LinkGo),
    ("/account/sessions", account.Sessions),
    ("/account/tokens", account.Tokens),
    ("/api/me", api.Me),
    ("/api/sessions", api.SessionList),
    ("/api/sessions/([^/]+)", api.OneSession),
    ("/api/tokens", api.TokenList),
    ("/api/tokens/([^/]+)", api.OneToken),
)
