"""The operations of the JSON API, one row each; a test compares them with the routes.

Placeholders of a path are percent-encoded names or ids. Bodies and answers are names of schemas in
document.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

READ, KEYS, ADMIN, OPEN = "read", "keys", "admin", ""


class Endpoint(NamedTuple):
    """An operation. `scope`: that of the token, "" for everybody; `query`: names of PARAMETERS;
    `body`, `answer`: names of schemas, "" for none."""

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
    "search": "Only those with this text in their names.",
    "group": "Only this group.",
    "model": "Only this model.",
    "state": "Only keys or models in this state.",
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
    "min_duration_ms": "Only calls that took at least this long.",
    "text": "Only calls with this text in their error message; models and keys with it in their"
    " names.",
    "request_id": "The call with this id.",
    "client_request_id": "Calls with this id of the client.",
    "upstream_request_id": "The call with this id of the vendor; for administrators.",
    "trace_id": "Calls of this trace id, 32 hexadecimal digits.",
    "since": "From this time on: RFC 3339, or a length before now like 24h.",
    "until": "Before this time.",
    "by": "Dimensions of the sums, separated by commas.",
    "sort": "The sum by which rows are sorted.",
    "top": "Maximum number of rows.",
    "format": "csv or ndjson.",
    "actor": "Only changes of this actor.",
    "kind": "Only changes of objects of this kind.",
    "name": "Only changes of the object of this name.",
    "dry_run": "true: only report the changes (for a table in CSV).",
}

_PAGE = ("limit", "after")
_LIST = ("limit", "after", "search")
_CALLS = (
    *("user", "key", "key_id", "group", "model", "endpoint", "channel", "outcome", "error_code"),
    *("status", "stream", "min_duration_ms", "text", "request_id", "client_request_id"),
    *("upstream_request_id", "trace_id", "since", "until"),
)

_MEMBER = (
    Endpoint("GET", "/api/openapi.json", OPEN, "This document.", "Object"),
    Endpoint("GET", "/api/me", READ, "The user: name, role, balance, groups.", "Me"),
    Endpoint("GET", "/api/home", READ, "Money, calls of 24 hours, alerts.", "Object"),
    Endpoint("GET", "/api/notices", READ, "The current notices of administrators.", "NoticeList"),
    Endpoint("GET", "/api/groups", READ, "Groups in which the user may create keys.", "List"),
    Endpoint("GET", "/api/sessions", READ, "Own sessions of browsers.", "List"),
    Endpoint("DELETE", "/api/sessions/{id}", KEYS, "End a session.", "Object"),
    Endpoint("GET", "/api/tokens", READ, "Own tokens of this API.", "TokenList"),
    Endpoint(
        *("POST", "/api/tokens", KEYS, "Create a token; shown once."),
        *("NewToken", "TokenBody", (), 201),
    ),
    Endpoint("DELETE", "/api/tokens/{id}", KEYS, "Revoke a token.", "Object"),
    Endpoint(
        *("GET", "/api/keys", READ, "Own keys.", "KeyList", ""),
        query=("limit", "after", "search", "state", "group"),
    ),
    Endpoint(
        *("POST", "/api/keys", KEYS, "Create a key; its secret is shown once."),
        *("Secret", "KeyBody", (), 201),
    ),
    Endpoint("GET", "/api/keys/{id}", READ, "One key, with the wrong paths of its calls.", "Key"),
    Endpoint("PATCH", "/api/keys/{id}", KEYS, "Change a key.", "Key", "KeyBody"),
    Endpoint("DELETE", "/api/keys/{id}", KEYS, "Revoke a key for good.", "Key"),
    Endpoint(
        *("POST", "/api/keys/{id}/rotate", KEYS, "A new secret; the old one works for a while."),
        *("Secret", "RotateBody"),
    ),
    Endpoint("POST", "/api/keys/{id}/disable", KEYS, "Disable a key: its calls get 401.", "Key"),
    Endpoint("POST", "/api/keys/{id}/enable", KEYS, "Enable a key again.", "Key"),
    Endpoint(
        *("GET", "/api/status", READ, "The models of each group: state, prices, figures."),
        *("Object",),
        query=(*_PAGE, "group", "model", "text", "state", "entry"),
    ),
    Endpoint(
        *("GET", "/api/usage", READ, "Calls, the newest first."),
        *("CallList", "", (*_PAGE, *_CALLS)),
    ),
    Endpoint("GET", "/api/usage/{id}", READ, "One call with the lines of its cost.", "Call"),
    Endpoint(
        *("GET", "/api/usage/stats", READ, "Sums of calls.", "List"),
        query=("by", "sort", "top", *_CALLS),
    ),
    Endpoint(
        *("GET", "/api/usage/errors", READ, "Errors by kind, each with a sample.", "List"),
        query=_CALLS,
    ),
    Endpoint(
        *("GET", "/api/usage/export", READ, "All calls that match, streamed."),
        query=("format", *_CALLS),
        media="application/x-ndjson",
    ),
    Endpoint(
        *("GET", "/api/usage/tail", READ, "New calls as server-sent events."),
        query=_CALLS,
        media="text/event-stream",
    ),
    Endpoint("GET", "/api/wallet", READ, "Balance, what calls hold, plans.", "Object"),
    Endpoint(
        *("PATCH", "/api/wallet", KEYS, "Set the low-balance threshold and the payment order."),
        *("Object", "WalletBody"),
    ),
    Endpoint(
        *("GET", "/api/wallet/ledger", READ, "Entries of the ledger, the newest first."),
        *("List", "", _PAGE),
    ),
    Endpoint("POST", "/api/wallet/redeem", KEYS, "Redeem a code.", "Object", "CodeBody"),
    Endpoint("POST", "/api/setup/check-url", READ, "Check a base URL.", "Object", "UrlBody"),
    Endpoint("POST", "/api/setup/test", KEYS, "A test call with a key.", "Object", "SetupTest"),
)


def _kind(plural: str, schema: str, name: str = "{name}") -> tuple[Endpoint, ...]:
    """Return the operations of a kind of administered objects."""
    path = f"/api/admin/{plural}"
    singular = plural.removesuffix("s")
    return (
        Endpoint("GET", path, ADMIN, f"All {plural}.", f"{schema}List", "", _LIST),
        Endpoint("POST", path, ADMIN, f"Create a {singular}.", schema, f"{schema}Body", (), 201),
        Endpoint("GET", f"{path}/{name}", ADMIN, f"One {singular}.", schema),
        Endpoint(
            *("PATCH", f"{path}/{name}", ADMIN, f"Change a {singular}."),
            *(schema, f"{schema}Body"),
        ),
        Endpoint("DELETE", f"{path}/{name}", ADMIN, f"Remove a {singular}.", status=204),
    )


_ADMIN = (
    *_kind("users", "User"),
    *_kind("groups", "Group"),
    *_kind("models", "Model"),
    *_kind("channels", "Channel"),
    *_kind("plans", "Plan"),
    *_kind("subscriptions", "Subscription"),
    *_kind("subscriptions", "Subscription", "{user}/{plan}")[2:],
    Endpoint(
        *("POST", "/api/admin/users/{name}/credit", ADMIN, "Add money, or take it."),
        *("Object", "CreditBody"),
    ),
    Endpoint(
        *("GET", "/api/admin/users/{name}/ledger", ADMIN, "Entries of a user's ledger."),
        *("List", "", ("limit", "after")),
    ),
    Endpoint(
        *("POST", "/api/admin/usage/{id}/refund", ADMIN),
        *("Refund the charge of a call to the wallet, once.", "Object", "RefundBody"),
    ),
    Endpoint(
        *("GET", "/api/admin/keys", ADMIN, "Keys of all users, the newest first."),
        *("List", "", ("limit", "after", "user", "text")),
    ),
    Endpoint(
        *("POST", "/api/admin/keys/find", ADMIN, "Find the key of a secret, which is not stored."),
        *("Object", "FindKeyBody"),
    ),
    Endpoint("GET", "/api/admin/keys/{id}", ADMIN, "One key.", "Object"),
    Endpoint("DELETE", "/api/admin/keys/{id}", ADMIN, "Revoke a key for good.", "Object"),
    Endpoint("POST", "/api/admin/keys/{id}/enable", ADMIN, "Enable a key.", "Object"),
    Endpoint("POST", "/api/admin/keys/{id}/disable", ADMIN, "Disable a key.", "Object"),
    Endpoint("GET", "/api/admin/users/{name}/sessions", ADMIN, "A user's sessions.", "List"),
    Endpoint(
        *("DELETE", "/api/admin/users/{name}/sessions", ADMIN),
        *("End the user's sessions and revoke the tokens.", "Ended"),
    ),
    Endpoint(
        *("GET", "/api/admin/tokens", ADMIN, "Tokens of all users, without secrets.", "TokenList"),
        query=("user", *_PAGE),
    ),
    Endpoint("DELETE", "/api/admin/tokens/{id}", ADMIN, "Revoke a token of any user.", status=204),
    Endpoint(
        *("GET", "/api/admin/users/{name}/totp", ADMIN, "Whether one-time codes are on."),
        *("Totp",),
    ),
    Endpoint("DELETE", "/api/admin/users/{name}/totp", ADMIN, "Turn one-time codes off.", "Totp"),
    Endpoint("GET", "/api/admin/users/{name}/links", ADMIN, "Linked OpenID accounts.", "List"),
    Endpoint(
        *("POST", "/api/admin/users/{name}/links", ADMIN, "Link an account of the provider."),
        *("Link", "LinkBody", (), 201),
    ),
    Endpoint("DELETE", "/api/admin/users/{name}/links", ADMIN, "Unlink all accounts.", "Object"),
    Endpoint(
        *("DELETE", "/api/admin/users/{name}/links/{id}", ADMIN, "Unlink an account."),
        status=204,
    ),
    Endpoint(
        *("POST", "/api/admin/channels/{name}/test", ADMIN, "Test a channel with a real call."),
        *("TestResult", "TestBody"),
    ),
    Endpoint(
        *("POST", "/api/admin/channel-tests", ADMIN),
        *("Test each enabled channel, or those named, with a real call.", "TestResults"),
        "ChannelTests",
    ),
    Endpoint(
        *("GET", "/api/admin/channels/{name}/upstream-models", ADMIN),
        *("The models listed by a channel's upstream.", "UpstreamModels"),
    ),
    Endpoint("POST", "/api/admin/channels/{name}/enable", ADMIN, "Enable a channel.", "Channel"),
    Endpoint("POST", "/api/admin/channels/{name}/disable", ADMIN, "Disable a channel.", "Channel"),
    Endpoint(
        *("POST", "/api/admin/channels/{name}/drain", ADMIN, "Drain a channel: no new calls."),
        *("Channel",),
    ),
    Endpoint(
        *("POST", "/api/admin/channels/{name}/reinstate", ADMIN),
        *("Use suspended upstream keys again.", "Object", "ReinstateBody"),
    ),
    Endpoint("GET", "/api/admin/models/{name}/prices", ADMIN, "Prices over time.", "PriceList"),
    Endpoint(
        *("POST", "/api/admin/prices", ADMIN, "Import a list of prices, all or nothing."),
        *("PriceChanges", "PriceListBody", ("dry_run",)),
    ),
    Endpoint(
        *("GET", "/api/admin/codes", ADMIN, "Redeem codes, the newest first."),
        *("List", "", _LIST),
    ),
    Endpoint(
        *("POST", "/api/admin/codes", ADMIN, "Create codes; shown once."),
        *("List", "CodesBody", (), 201),
    ),
    Endpoint("GET", "/api/admin/codes/{id}", ADMIN, "One code.", "Object"),
    Endpoint(
        *("PATCH", "/api/admin/codes/{id}", ADMIN, "Change an unused code."),
        *("Object", "CodeChange"),
    ),
    Endpoint("DELETE", "/api/admin/codes/{id}", ADMIN, "Remove an unused code.", status=204),
    Endpoint(
        *("GET", "/api/admin/audit", ADMIN, "The audit log, the newest line first.", "AuditList"),
        query=("limit", "after", "actor", "kind", "name", "since"),
    ),
    Endpoint(
        *("GET", "/api/admin/audit/export", ADMIN, "All lines that match, streamed."),
        query=("format", "actor", "kind", "name", "since"),
        media="application/x-ndjson",
    ),
    Endpoint(
        *("GET", "/api/admin/system", ADMIN, "Workers, store, effective configuration."),
        *("Object",),
    ),
    Endpoint("POST", "/api/admin/system/drain", ADMIN, "Drain this node.", "Object"),
    Endpoint("GET", "/api/admin/notices", ADMIN, "All notices.", "NoticeList"),
    Endpoint(
        *("POST", "/api/admin/notices", ADMIN, "Show a notice to everybody."),
        *("Notice", "NoticeBody", (), 201),
    ),
    Endpoint("DELETE", "/api/admin/notices/{id}", ADMIN, "Remove a notice.", status=204),
)

ROWS: tuple[Endpoint, ...] = (*_MEMBER, *_ADMIN)
