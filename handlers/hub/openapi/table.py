"""The operations of the JSON API, one row each. A test compares them with the routes.

Placeholders in paths are percent-encoded names or ids. Bodies and answers are names of schemas in
document.py.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

READ, KEYS, ADMIN, OPEN = "read", "keys", "admin", ""


class Endpoint(NamedTuple):
    """An operation. `scope`: the scope that a token needs, "" if public; `query`: names of
    PARAMETERS; `body`, `answer`: names of schemas, "" for none."""

    method: str
    path: str
    scope: str
    summary: str
    answer: str = ""
    body: str = ""
    query: tuple[str, ...] = ()
    status: int = 200
    media: str = "application/json"


PARAMETERS: Mapping[str, str] = {
    "limit": "Maximum number of items.",
    "after": "The `next` of the previous page.",
    "q": "A part of a name, or a whole id of a call.",
    "search": "Only those with this text in their names.",
    "group": "Only this group.",
    "model": "Only this model.",
    "state": "Only keys, models or users in this state.",
    "role": "Only users with this role.",
    "reason": "Why; the owner of the key sees it.",
    "takes": "Only models that take this: image, pdf or audio.",
    "context": "Only models with at least this context: 128k, 200k, 400k or 1m.",
    "entry": "Only models that this family can call, natively or translated.",
    "user": "Only this user; for administrators.",
    "key": "Only calls of this key, by name or id.",
    "key_id": "Only calls of this key, by id.",
    "endpoint": "Only calls of this endpoint.",
    "channel": "Only calls through this channel; for administrators.",
    "outcome": "Only calls with this outcome.",
    "error_code": "Only calls with this error code.",
    "status": "Only calls answered with this HTTP status.",
    "stream": "true or false: only calls with or without a stream.",
    "min_duration_ms": "Only calls that took at least this long: milliseconds, or text like 1.5s.",
    "text": "Only calls with this text in their error message; models and keys with it in their"
    " names.",
    "request_id": "The call with this id.",
    "client_request_id": "Calls with this id of the client.",
    "upstream_request_id": "The call with this id of the vendor; for administrators.",
    "trace_id": "Calls of this trace id, 32 hexadecimal digits.",
    "since": "From this time on: RFC 3339, or a length before now like 24h.",
    "until": "Before this time.",
    "by": "Dimensions of the sums, separated by commas; of the overview models, users, channels or"
    " keys.",
    "span": "today, 7d or 30d.",
    "month": "A month of UTC like 2026-11; the present one without it.",
    "sort": "The sum by which rows are sorted; of users: name, spent or balance.",
    "top": "Maximum number of rows.",
    "compare": "previous or month: `before` has the sums of as long a span before, or of the same"
    " days of the month before.",
    "format": "csv or ndjson.",
    "actor": "Only changes of this actor.",
    "kind": "Only changes of objects of this kind.",
    "name": "Only changes of the object of this name.",
    "of": "me, or gateway: what administrators share.",
    "dry_run": "true: only report the changes (for a table in CSV).",
}

_PAGE = ("limit", "after")
_LIST = ("limit", "after", "search")
_CALLS = (
    *("user", "key", "key_id", "group", "model", "endpoint", "channel", "outcome", "error_code"),
    *("status", "stream", "min_duration_ms", "text", "request_id", "client_request_id"),
    *("upstream_request_id", "trace_id", "since", "until"),
)
_SUMS = ("by", "sort", "top", "compare", "format", *_CALLS)


def _read(path: str, summary: str, answer: str = "", **more: Any) -> Endpoint:
    return Endpoint("GET", f"/api/{path}", READ, summary, answer, **more)


def _change(method: str, path: str, summary: str, answer: str, *body: str, **more: Any) -> Endpoint:
    return Endpoint(method, f"/api/{path}", KEYS, summary, answer, "".join(body), **more)


def _admin(
    method: str, path: str, summary: str, answer: str = "", body: str = "", **more: Any
) -> Endpoint:
    return Endpoint(method, f"/api/admin/{path}", ADMIN, summary, answer, body, **more)


_MEMBER = (
    Endpoint("GET", "/api/openapi.json", OPEN, "This document.", "Object"),
    _read("me", "The user: name, role, balance, groups.", "Me"),
    _read("home", "Money, calls of 24 hours, alerts.", "Object"),
    Endpoint(
        "GET",
        "/api/find",
        READ,
        "Up to 8 pages and objects by a part of their names, or a call by its id.",
        "List",
        query=("q",),
    ),
    _read("notices", "The current notices of administrators.", "NoticeList"),
    _read("groups", "Groups in which the user may create keys.", "List"),
    _read("sessions", "Own sessions of browsers.", "List"),
    _change("DELETE", "sessions/{id}", "End a session.", "Object"),
    _read("tokens", "Own tokens of this API.", "TokenList"),
    _change("POST", "tokens", "Create a token; shown once.", "NewToken", "TokenBody", status=201),
    _change("DELETE", "tokens/{id}", "Revoke a token.", "Object"),
    _read("keys", "Own keys.", "KeyList", query=(*_PAGE, "search", "state", "group")),
    _change(
        "POST", "keys", "Create a key; its secret is shown once.", "Secret", "KeyBody", status=201
    ),
    _read("keys/{id}", "One key, with the wrong paths of its calls.", "Key"),
    _change("PATCH", "keys/{id}", "Change a key.", "Key", "KeyBody"),
    _change("DELETE", "keys/{id}", "Revoke a key for good.", "Key"),
    _change(
        *("POST", "keys/{id}/rotate", "A new secret; the old one works for a while."),
        *("Secret", "RotateBody"),
    ),
    _change("POST", "keys/{id}/disable", "Disable a key: its calls get 401.", "Key"),
    _change("POST", "keys/{id}/enable", "Enable a key again.", "Key"),
    _read(
        *("models", "The models of a group, of the user's own one without `group`.", "Object"),
        query=(*_PAGE, "group", "text", "state", "entry", "takes", "context"),
    ),
    _read(
        "models/{name}",
        "One model in a group: its rates, days, groups, and models like it.",
        "Object",
        query=("group",),
    ),
    _read(
        *("status", "The models of each group: state, prices, figures."),
        *("Object",),
        query=(*_PAGE, "group", "model", "text", "state", "entry"),
    ),
    _read("alerts/rules", "Rules of alerts, with what fires.", "List", query=("of",)),
    _change(
        *("POST", "alerts/rules", "Make a rule.", "AlertRule", "AlertRuleBody"),
        query=("of",),
        status=201,
    ),
    _read("alerts/rules/{id}", "One rule.", "AlertRule", query=("of",)),
    _change(
        *("PATCH", "alerts/rules/{id}", "Change a rule.", "AlertRule", "AlertRuleBody"),
        query=("of",),
    ),
    _change("DELETE", "alerts/rules/{id}", "Remove a rule.", "", query=("of",), status=204),
    Endpoint(
        *("POST", "/api/alerts/preview", READ, "How often a rule would have been sent."),
        *("Object", "AlertRuleBody", ("of",)),
    ),
    _read("alerts/destinations", "Destinations of alerts.", "List", query=("of",)),
    _change(
        *("POST", "alerts/destinations", "Make a destination; its secret is shown once."),
        *("Object", "AlertDestinationBody"),
        query=("of",),
        status=201,
    ),
    _change(
        *("DELETE", "alerts/destinations/{id}", "Remove a destination.", ""),
        query=("of",),
        status=204,
    ),
    _change(*("POST", "alerts/destinations/{id}/test", "Send a sample.", "Object"), query=("of",)),
    _read("alerts/sent", "Messages of 90 days, the newest first.", "List", query=(*_PAGE, "of")),
    _change(*("POST", "alerts/sent/{id}/again", "Send a message again.", "Object"), query=("of",)),
    _read("usage", "Calls, the newest first.", "CallList", query=(*_PAGE, *_CALLS)),
    _read("usage/{id}", "One call with the lines of its cost.", "CallWithCost"),
    _read("usage/stats", "Sums of calls.", "List", query=_SUMS),
    _read("usage/errors", "Errors by kind, each with a sample.", "List", query=_CALLS),
    _read(
        *("usage/export", "All calls that match, streamed."),
        query=("format", *_CALLS),
        media="application/x-ndjson",
    ),
    _read(
        "usage/tail", "New calls as server-sent events.", query=_CALLS, media="text/event-stream"
    ),
    _read("wallet", "Balance, what calls hold, plans.", "Object"),
    _change(
        *("PATCH", "wallet", "Set the low-balance threshold and the payment order."),
        *("Object", "WalletBody"),
    ),
    _read(
        *("wallet/statement", "The wallet's month: opening balance, movements, charges, closing."),
        *("Object",),
        query=("month",),
    ),
    _read("wallet/ledger", "Entries of the ledger, the newest first.", "List", query=_PAGE),
    _change("POST", "wallet/redeem", "Redeem a code.", "Object", "CodeBody"),
    Endpoint("POST", "/api/setup/check-url", READ, "Check a base URL.", "Object", "UrlBody"),
    _change("POST", "setup/test", "A test call as a key.", "Object", "SetupTest"),
    _change(
        *("POST", "try", "A call as a key: events of its family, then one event `sluice`."),
        *("", "TryBody"),
        media="text/event-stream",
    ),
)


def _kind(
    plural: str, schema: str, name: str = "{name}", query: tuple[str, ...] = ()
) -> tuple[Endpoint, ...]:
    """Return the operations for a kind of administered objects. `query`: parameters besides those
    of every list."""
    path, singular, body = f"{plural}/{name}", plural.removesuffix("s"), f"{schema}Body"
    return (
        _admin("GET", plural, f"All {plural}.", f"{schema}List", query=(*_LIST, *query)),
        _admin("POST", plural, f"Create a {singular}.", schema, body, status=201),
        _admin("GET", path, f"One {singular}.", schema),
        _admin("PATCH", path, f"Change a {singular}.", schema, body),
        _admin("DELETE", path, f"Remove a {singular}.", status=204),
    )


_ADMIN = (
    *_kind("users", "User", query=("role", "state", "sort")),
    *_kind("groups", "Group"),
    *_kind("models", "Model"),
    *_kind("channels", "Channel"),
    *_kind("plans", "Plan"),
    *_kind("subscriptions", "Subscription"),
    *_kind("subscriptions", "Subscription", "{user}/{plan}")[2:],
    _admin("GET", "invites", "Invites, the newest first.", "List"),
    _admin(
        *("POST", "invites", "Invite a user by a link; its address is shown once."),
        *("Object", "InviteBody"),
        status=201,
    ),
    _admin("DELETE", "invites/{id}", "Withdraw an invite.", status=204),
    _admin(
        *("POST", "users/{name}/reset", "Make a link for a new password; shown once."),
        *("Object",),
        status=201,
    ),
    _admin("GET", "users/{name}/statement", "A user's month.", "Object", query=("month",)),
    _admin("GET", "users/{name}/wallet", "A user's balance, what calls hold, plans.", "Object"),
    _admin("GET", "users/{name}/keys", "A user's keys, and who disabled one.", "List"),
    _admin(
        *("POST", "users/{name}/keys/disable", "Disable all keys of a user."),
        *("Object", "StopBody"),
    ),
    _admin("POST", "users/{name}/credit", "Add money, or take it.", "Object", "CreditBody"),
    _admin("GET", "users/{name}/ledger", "Entries of a user's ledger.", "List", query=_PAGE),
    _admin(
        *("POST", "usage/{id}/refund", "Refund a call's charge to the wallet, or a part."),
        *("Object", "RefundBody"),
    ),
    _admin(
        *("GET", "keys", "Keys of all users, the newest first."),
        *("List",),
        query=(*_PAGE, "user", "text"),
    ),
    _admin(
        *("POST", "keys/find", "Find the key of a secret, which is not stored."),
        *("Object", "FindKeyBody"),
    ),
    _admin("GET", "keys/{id}", "One key.", "Object"),
    _admin("DELETE", "keys/{id}", "Revoke a key for good.", "Object", query=("reason",)),
    _admin("POST", "keys/{id}/enable", "Enable a key.", "Object"),
    _admin("POST", "keys/{id}/disable", "Disable a key.", "Object", "StopBody"),
    _admin("GET", "users/{name}/sessions", "A user's sessions.", "List"),
    _admin(
        "DELETE", "users/{name}/sessions", "End the user's sessions and revoke the tokens.", "Ended"
    ),
    _admin(
        *("GET", "tokens", "Tokens of all users, without secrets."),
        *("TokenList",),
        query=("user", *_PAGE),
    ),
    _admin("DELETE", "tokens/{id}", "Revoke a token of any user.", status=204),
    _admin("GET", "users/{name}/totp", "Whether one-time codes are on.", "Totp"),
    _admin("DELETE", "users/{name}/totp", "Turn one-time codes off.", "Totp"),
    _admin("GET", "users/{name}/links", "Linked OpenID accounts.", "List"),
    _admin(
        *("POST", "users/{name}/links", "Link an account of the provider."),
        *("Link", "LinkBody"),
        status=201,
    ),
    _admin("DELETE", "users/{name}/links", "Unlink all accounts.", "Object"),
    _admin("DELETE", "users/{name}/links/{id}", "Unlink an account.", status=204),
    _admin(
        "POST", "channels/{name}/test", "Test a channel with a real call.", "TestResult", "TestBody"
    ),
    _admin(
        *("POST", "channel-tests", "Test each enabled channel, or those named, with a real call."),
        *("TestResults", "ChannelTests"),
    ),
    _admin(
        *("GET", "channels/{name}/upstream-models", "The models listed by a channel's upstream."),
        *("UpstreamModels",),
    ),
    _admin("GET", "vendors", "Vendors of channels, with their usual base URLs.", "List"),
    _admin("GET", "channels/draft", "The draft of a new channel, of this token.", "ChannelDraft"),
    _admin(
        *("POST", "channels/draft", "Begin or change the draft; nothing of it serves calls."),
        *("ChannelDraft", "ChannelDraftBody"),
    ),
    _admin("DELETE", "channels/draft", "Drop the draft.", status=204),
    _admin(
        *("POST", "channels/draft/upstream-models", "Take the models that the vendor lists."),
        *("ChannelDraft",),
    ),
    _admin(
        *("POST", "channels/draft/test", "Test chosen models of the draft with real calls."),
        *("TestResults", "DraftTestBody"),
    ),
    _admin(
        *("POST", "channels/draft/save", "Create the channel of the draft, and its models."),
        *("Channel", "DraftSaveBody"),
        status=201,
    ),
    _admin("POST", "channels/{name}/enable", "Enable a channel.", "Channel"),
    _admin("POST", "channels/{name}/disable", "Disable a channel.", "Channel"),
    _admin("POST", "channels/{name}/drain", "Drain a channel: no new calls.", "Channel"),
    _admin(
        *("POST", "channels/{name}/reinstate", "Reinstate suspended upstream keys."),
        *("Object", "ReinstateBody"),
    ),
    _admin("GET", "models/{name}/prices", "Prices over time.", "PriceList"),
    _admin(
        *("GET", "prices/compare", "Differences of prices from the catalogue.", "Object"),
        query=("model",),
    ),
    _admin(
        *("POST", "prices/compare", "Take differences of prices, as long as they are the same."),
        *("Object", "PriceTicks"),
    ),
    _admin(
        *("POST", "prices", "Import a list of prices, all or nothing."),
        *("PriceChanges", "PriceListBody"),
        query=("dry_run",),
    ),
    _admin("GET", "codes", "Redeem codes, the newest first.", "List", query=_LIST),
    _admin("POST", "codes", "Create codes; shown once.", "List", "CodesBody", status=201),
    _admin("GET", "codes/{id}", "One code.", "Object"),
    _admin("PATCH", "codes/{id}", "Change an unused code.", "Object", "CodeChange"),
    _admin("DELETE", "codes/{id}", "Remove an unused code.", status=204),
    _admin(
        *("GET", "audit", "The audit log, the newest line first."),
        *("AuditList",),
        query=(*_PAGE, "actor", "kind", "name", "since"),
    ),
    _admin(
        *("GET", "audit/export", "All lines that match, streamed."),
        query=("format", "actor", "kind", "name", "since"),
        media="application/x-ndjson",
    ),
    _admin(
        *("GET", "overview", "Charges, margin, channels and what needs attention."),
        *("Object",),
        query=("span", "by"),
    ),
    _admin("GET", "system", "Workers, store, effective configuration.", "Object"),
    _admin("POST", "system/drain", "Drain this node.", "Object"),
    _admin("POST", "system/mail-test", "Send a sample by mail.", "Object", "MailTestBody"),
    _admin("GET", "notices", "All notices.", "NoticeList"),
    _admin("POST", "notices", "Show a notice to everybody.", "Notice", "NoticeBody", status=201),
    _admin("DELETE", "notices/{id}", "Remove a notice.", status=204),
)

ROWS: tuple[Endpoint, ...] = (*_MEMBER, *_ADMIN)
