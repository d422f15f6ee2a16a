"""The pages and endpoints of the Hub that hub_size.py times. Not a program.

There is at least one for each route that answers a GET, except those in UNTIMED.
"""

import re

FILTERS = (
    *("model=model-0", "model=model-15", "outcome=timeout", "outcome=ok&model=model-7"),
    *("error_code=gateway_lost", "error_code=unavailable", "endpoint=%2Fv1%2Fchat%2Fcompletions"),
    *("group=default", "status=504", "status=418", "stream=false", "min_duration_ms=90000"),
    *("text=overloaded", "text=never+said", "client_request_id=never-given"),
)
"""Filters that all users have. Some match nearly all calls, some none."""
SUMS = (
    *("day", "hour", "model", "day,model", "key_id", "outcome", "endpoint", "group"),
    *("error_code", "user"),
)
GROUPS = ("day", "model", "key_id", "endpoint", "error_code")
"""Groups that all users have. Administrators have others, with their own charts."""
ADMIN_GROUPS = ("user", "channel", *GROUPS)
UNTIMED = re.compile(
    r"(/admin|/api)?/usage/tail|/api/usage/tail|/(sign-|join|first-run|account/).*|/keys/env"
    r"|/api/alerts/rules/.+|/api/admin/(codes/|.subscriptions).+"
    r"|.*(/(disable|enable|remove|revoke|withdraw|reset|dismiss|restore|drain|first|again|test|order"
    r"|redeem|low-balance|refund|reinstate|totp|links|mail|notices|upstream-models"
    r"|sessions|draft|models$|prices/compare)\b|\|).*"
)
"""Patterns of routes that are left out: streams of events (hub_tail.py), forms that change one
object and lists of its own that are short, and pages for users who have not signed in."""

MEMBER_PAGES = (
    *(
        "/",
        "/status",
        "/models",
        "/models/model-0",
        "/wallet",
        "/wallet/statement",
        "/wallet/statement.csv",
    ),
    *("/wallet/ledger.csv", "/keys", "/keys/{key}", "/keys/new", "/keys/{key}/edit"),
    *("/keys/{key}/rotate", "/keys/{key}/revoke", "/setup", "/setup?key={key}", "/try", "/account"),
    *("/find", "/find?q=model-1", "/api/find?q=key", "/api/find?q={call}", "/api/find?q=never"),
    *("/alerts", "/alerts/sent", "/alerts/rules/new", "/alerts/rules/new?kind=spending"),
    *("/alerts/destinations/new", "/api/alerts/rules", "/api/alerts/destinations"),
    *("/api/alerts/sent", "/api/sessions", "/api/tokens", "/api/groups", "/api/notices"),
    *("/usage", "/usage?since=7d", "/usage?since=30d", "/usage?since=30d&chart=first_byte"),
    *("/usage?since=30d&after={deep}", "/usage?since=30d&sort=cost", "/usage?since={h}&sort=cost"),
    *(f"/usage?since=30d&by={group}" for group in GROUPS),
    *("/usage?since=30d&key={key}", "/usage?request_id={call}", "/usage/{call}"),
    *(f"/usage?since=30d&{query}" for query in FILTERS),
    *(
        "/api/models",
        "/api/models/model-0",
        "/api/me",
        "/api/home",
        "/api/keys",
        "/api/keys/{key}",
        "/api/status",
        "/api/wallet",
    ),
    *("/api/wallet/ledger", "/api/wallet/statement", "/api/usage", "/api/usage?after={deep}"),
    *("/api/usage/{call}", "/api/usage?since=30d&key={key}", "/api/usage?since=30d&status=418"),
    *("/api/usage/errors", "/api/usage/errors?since=30d", "/api/openapi.json"),
    *("/api/usage/export?format=csv&since=30d", "/api/usage/export?format=ndjson"),
    *(f"/api/usage/stats?since=30d&by={names}" for names in SUMS),
    "/api/usage/stats?since={h}&by=status",
)
ADMIN_PAGES = (
    *("/", "/?of=me", "/?of=gateway&by=users", "/?of=gateway&by=keys", "/?of=gateway&by=channels"),
    *("/models", "/models/model-0", "/models?text=model-1", "/api/models", "/api/models/model-0"),
    *(
        "/admin/models/model-0",
        "/status",
        "/try",
        "/setup",
        "/alerts",
        "/alerts/sent",
        "/alerts/rules/new",
    ),
    *("/find?q=user-9", "/api/find?q=user-9", "/api/find?q=key-29", "/api/find?q={call}"),
    *("/admin/users", "/admin/users?search=user-9", "/admin/users?sort=spent"),
    *("/admin/users?sort=balance", "/admin/users/user-0", "/admin/users/user-0?by=model"),
    *("/admin/users/user-0?by=key", "/admin/users/user-0/edit", "/admin/users/user-0/credit"),
    *("/admin/users/user-0/statement", "/admin/users/user-0/statement.csv"),
    *("/admin/users/user-0/remove", "/admin/invites", "/admin/invites?new=1", "/admin/keys"),
    *("/admin/keys?user=user-0", "/admin/keys?search=key-29", "/admin/keys?sort=last_used"),
    *("/admin/keys/find", "/admin/groups", "/admin/groups/default", "/admin/models"),
    *("/admin/prices", "/admin/prices/edit", "/admin/channels", "/admin/channels/new"),
    *("/admin/channels/channel-0", "/admin/channels/channel-0/edit", "/admin/plans"),
    "/admin/codes",
    *("/admin/system", "/admin/audit", "/admin/audit?after={audit}", "/admin/audit?actor=boss"),
    *("/admin/audit?kind=channel", "/admin/audit?name=user-999", "/admin/audit?actor=nobody"),
    *("/admin/usage", "/admin/usage?since=7d", "/admin/usage?since=30d"),
    *(f"/usage?of=all&since=30d&by={group}" for group in ADMIN_GROUPS),
    "/usage?of=all&since=30d&by=channel&chart=margin",
    *("/usage?of=all&since=7d&by=user", "/usage?of=all&since=30d&by=user&user=user-0"),
    *("/admin/usage?since=30d&after={deep}", "/admin/usage?since=30d&user=user-0"),
    *("/admin/usage?since=30d&user=user-999", "/admin/usage?since=30d&channel=channel-3"),
    *("/admin/usage?since=30d&user=user-0&channel=channel-3", "/admin/usage?since=30d&key={key}"),
    *("/admin/usage?since=30d&sort=cost", "/admin/usage?upstream_request_id=never-given"),
    *(f"/admin/usage?since=30d&{query}" for query in FILTERS),
    *("/api/usage", "/api/usage?after={deep}", "/api/status", "/api/usage/errors"),
    *("/api/usage/errors?since=7d", "/api/usage/errors?since=30d", "/api/admin/system"),
    *("/api/admin/overview", "/api/admin/users", "/api/admin/users/user-0", "/api/admin/keys"),
    *("/api/admin/keys/{key}", "/api/admin/users/user-0/keys", "/api/admin/users/user-0/wallet"),
    *("/api/admin/users/user-0/ledger", "/api/admin/users/user-0/statement"),
    *("/api/admin/users/user-0/sessions", "/api/admin/users/user-0/links", "/api/admin/tokens"),
    *("/api/admin/groups", "/api/admin/models", "/api/admin/channels", "/api/admin/plans"),
    *("/api/admin/models/model-0/prices", "/api/admin/codes", "/api/admin/invites"),
    *("/api/admin/vendors", "/api/admin/notices", "/api/admin/audit"),
    *("/api/admin/audit/export", "/api/usage/export?format=csv&since=30d"),
    *("/api/usage/export?format=ndjson", "/api/usage/stats?since=30d&by=channel"),
    *("/api/usage/stats?since=30d&by=user&sort=cost&top=20", "/api/usage/stats?since=7d&by=user"),
    *("/api/usage/stats?since=30d&by=key_id&sort=cost&top=20",),
    *(f"/api/usage/stats?since=30d&by={names}" for names in SUMS),
    "/api/usage/stats?since={h}&by=status",
)
