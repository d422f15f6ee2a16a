"""The operations of the JSON API, one row each; a test holds them against the application's routes.

Placeholders of a path are percent-encoded names or ids. Bodies and answers are names of
schemas.py.
"""

from collections.abc import Mapping
from typing import NamedTuple

READ, KEYS, ADMIN, OPEN = "read", "keys", "admin", ""


class Row(NamedTuple):
    """An operation. `scope`: what a token needs, "" for everybody; `query`: names of PARAMETERS;
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
    "limit": "How many items, at most.",
    "after": "The `next` of the page before.",
    "search": "Only those with this text in their names.",
    "group": "Only this group.",
    "model": "Only this model.",
    "state": "Only keys or models in this state.",
    "entry": "Only models that are called by this family, natively or translated.",
    "user": "Only of this user; for administrators.",
    "key": "Only calls of this key, by name or id.",
    "key_id": "Only calls of this key, by id.",
    "endpoint": "Only calls of this endpoint.",
    "channel": "Only calls through this channel; for administrators.",
    "outcome": "Only calls with this outcome.",
    "error_code": "Only calls with this error code.",
    "status": "Only calls that were answered with this HTTP status.",
    "stream": "true or false: only calls that did or did not ask for a stream.",
    "min_duration_ms": "Only calls that took at least so long.",
    "text": "Only calls with this text in their error message; models and keys with it in their"
    " names.",
    "request_id": "The call of this id.",
    "client_request_id": "Calls of this id of the client.",
    "upstream_request_id": "The call of this id of the vendor; for administrators.",
    "trace_id": "Calls of this trace, as a traceparent has it.",
    "since": "From this time on: RFC 3339, or a length back from now like 24h.",
    "until": "Before this time.",
    "by": "What is summed up by, separated by commas.",
    "sort": "The sum by which rows are ordered.",
    "top": "How many rows, at most.",
    "format": "csv or ndjson.",
    "actor": "Only changes of this actor.",
    "kind": "Only changes of objects of this kind.",
    "name": "Only changes of the object of this name.",
    "dry_run": "true: only tell what would change (for a table in CSV).",
}

_PAGE = ("limit", "after")
_LIST = ("limit", "after", "search")
_CALLS = (
    *("user", "key", "key_id", "group", "model", "endpoint", "channel", "outcome", "error_code"),
    *("status", "stream", "min_duration_ms", "text", "request_id", "client_request_id"),
    *("upstream_request_id", "trace_id", "since", "until"),
)

_MEMBER = (
    Row("GET", "/api/openapi.json", OPEN, "This document.", "Object"),
    Row("GET", "/api/me", READ, "Who asks: user, role, balance, groups.", "Me"),
    Row("GET", "/api/home", READ, "Money, calls of 24 hours, what needs its user.", "Object"),
    Row("GET", "/api/notices", READ, "What administrators tell everybody now.", "NoticeList"),
    Row("GET", "/api/groups", READ, "Groups in which one may make keys.", "List"),
    Row("GET", "/api/sessions", READ, "One's sessions in browsers.", "List"),
    Row("DELETE", "/api/sessions/{id}", KEYS, "End a session.", "Object"),
    Row("GET", "/api/tokens", READ, "One's tokens of this API.", "TokenList"),
    Row("POST", "/api/tokens", KEYS, "Make a token; shown once.", "NewToken", "TokenBody", (), 201),
    Row("DELETE", "/api/tokens/{id}", KEYS, "Revoke a token.", "Object"),
    Row(
        *("GET", "/api/keys", READ, "One's keys.", "KeyList", ""),
        query=("limit", "after", "search", "state", "group"),
    ),
    Row("POST", "/api/keys", KEYS, "Make a key; its secret, once.", "Secret", "KeyBody", (), 201),
    Row("GET", "/api/keys/{id}", READ, "One key, with wrong paths that were asked for.", "Key"),
    Row("PATCH", "/api/keys/{id}", KEYS, "Change a key.", "Key", "KeyBody"),
    Row("DELETE", "/api/keys/{id}", KEYS, "Revoke a key, for good.", "Key"),
    Row(
        *("POST", "/api/keys/{id}/rotate", KEYS, "A new secret; the old one works on for a while."),
        *("Secret", "RotateBody"),
    ),
    Row("POST", "/api/keys/{id}/disable", KEYS, "Its next call gets 401.", "Key"),
    Row("POST", "/api/keys/{id}/enable", KEYS, "Take that back.", "Key"),
    Row(
        *("GET", "/api/status", READ, "What each group offers: state, prices, figures.", "Object"),
        query=(*_PAGE, "group", "model", "text", "state", "entry"),
    ),
    Row("GET", "/api/usage", READ, "Calls, the last first.", "CallList", "", (*_PAGE, *_CALLS)),
    Row("GET", "/api/usage/{id}", READ, "One call, its cost line by line.", "Call"),
    Row(
        *("GET", "/api/usage/stats", READ, "Sums of calls.", "List"),
        query=("by", "sort", "top", *_CALLS),
    ),
    Row(
        *("GET", "/api/usage/errors", READ, "Errors by kind, with a sample each.", "List"),
        query=_CALLS,
    ),
    Row(
        *("GET", "/api/usage/export", READ, "All calls that match, streamed."),
        query=("format", *_CALLS),
        media="application/x-ndjson",
    ),
    Row(
        *("GET", "/api/usage/tail", READ, "Calls as they are recorded: server-sent events."),
        query=_CALLS,
        media="text/event-stream",
    ),
    Row("GET", "/api/wallet", READ, "Balance, what calls hold, plans.", "Object"),
    Row(
        *("PATCH", "/api/wallet", KEYS, "Below which balance one is told; who pays first."),
        *("Object", "WalletBody"),
    ),
    Row("GET", "/api/wallet/ledger", READ, "Movements, the newest first.", "List", "", _PAGE),
    Row("POST", "/api/wallet/redeem", KEYS, "Redeem a code.", "Object", "CodeBody"),
    Row("POST", "/api/setup/check-url", READ, "What a base URL leads to.", "Object", "UrlBody"),
    Row("POST", "/api/setup/test", KEYS, "A test call with a key.", "Object", "SetupTest"),
)


def _kind(plural: str, schema: str, path: str = "{name}") -> tuple[Row, ...]:
    """The operations of a kind of administered objects."""
    place = f"/api/admin/{plural}"
    one = plural.removesuffix("s")
    return (
        Row("GET", place, ADMIN, f"All {plural}.", f"{schema}List", "", _LIST),
        Row("POST", place, ADMIN, f"Make a {one}.", schema, f"{schema}Body", (), 201),
        Row("GET", f"{place}/{path}", ADMIN, f"One {one}.", schema),
        Row("PATCH", f"{place}/{path}", ADMIN, f"Change a {one}.", schema, f"{schema}Body"),
        Row("DELETE", f"{place}/{path}", ADMIN, f"Remove a {one}.", status=204),
    )


_ADMIN = (
    *_kind("users", "User"),
    *_kind("groups", "Group"),
    *_kind("models", "Model"),
    *_kind("channels", "Channel"),
    *_kind("plans", "Plan"),
    *_kind("subscriptions", "Subscription"),
    *_kind("subscriptions", "Subscription", "{user}/{plan}")[2:],
    Row(
        *("POST", "/api/admin/users/{name}/credit", ADMIN, "Add money, or take it."),
        *("Object", "CreditBody"),
    ),
    Row(
        *("GET", "/api/admin/users/{name}/ledger", ADMIN, "Movements of a user's wallet."),
        *("List", "", ("limit", "after")),
    ),
    Row(
        *("POST", "/api/admin/usage/{id}/refund", ADMIN),
        *("Give back what a call took from a wallet, once.", "Object", "RefundBody"),
    ),
    Row(
        *("GET", "/api/admin/keys", ADMIN, "Keys of all users, the last made first."),
        *("List", "", ("limit", "after", "user", "text")),
    ),
    Row(
        *("POST", "/api/admin/keys/find", ADMIN, "The key of a secret, which is not kept."),
        *("Object", "FindKeyBody"),
    ),
    Row("GET", "/api/admin/keys/{id}", ADMIN, "One key.", "Object"),
    Row("DELETE", "/api/admin/keys/{id}", ADMIN, "Revoke it for good.", "Object"),
    Row("POST", "/api/admin/keys/{id}/enable", ADMIN, "Let it call again.", "Object"),
    Row("POST", "/api/admin/keys/{id}/disable", ADMIN, "Let it call no more.", "Object"),
    Row("GET", "/api/admin/users/{name}/sessions", ADMIN, "A user's sessions.", "List"),
    Row(
        *("DELETE", "/api/admin/users/{name}/sessions", ADMIN),
        *("End them, and revoke the user's tokens.", "Ended"),
    ),
    Row(
        *("GET", "/api/admin/tokens", ADMIN, "Tokens of everybody, without secrets.", "TokenList"),
        query=("user", *_PAGE),
    ),
    Row("DELETE", "/api/admin/tokens/{id}", ADMIN, "Revoke a token of anybody.", status=204),
    Row("GET", "/api/admin/users/{name}/totp", ADMIN, "Whether one-time codes are asked.", "Totp"),
    Row("DELETE", "/api/admin/users/{name}/totp", ADMIN, "Ask for none any more.", "Totp"),
    Row("GET", "/api/admin/users/{name}/links", ADMIN, "Linked OpenID accounts.", "List"),
    Row(
        *("POST", "/api/admin/users/{name}/links", ADMIN, "Link an account of the provider."),
        *("Link", "LinkBody", (), 201),
    ),
    Row("DELETE", "/api/admin/users/{name}/links", ADMIN, "End all links.", "Object"),
    Row("DELETE", "/api/admin/users/{name}/links/{id}", ADMIN, "End a link.", status=204),
    Row(
        *("POST", "/api/admin/channels/{name}/test", ADMIN, "A real call through a channel."),
        *("TestResult", "TestBody"),
    ),
    Row(
        *("POST", "/api/admin/channel-tests", ADMIN),
        *("A real call through each channel that is switched on, or those named.", "TestResults"),
        "ChannelTests",
    ),
    Row(
        *("GET", "/api/admin/channels/{name}/upstream-models", ADMIN),
        *("The models that a channel's upstream lists.", "UpstreamModels"),
    ),
    Row("POST", "/api/admin/channels/{name}/enable", ADMIN, "Use it again.", "Channel"),
    Row("POST", "/api/admin/channels/{name}/disable", ADMIN, "Use it no more.", "Channel"),
    Row("POST", "/api/admin/channels/{name}/drain", ADMIN, "Give it no new calls.", "Channel"),
    Row(
        *("POST", "/api/admin/channels/{name}/reinstate", ADMIN),
        *("Use upstream keys again that were put aside.", "Object", "ReinstateBody"),
    ),
    Row("GET", "/api/admin/models/{name}/prices", ADMIN, "Prices since when.", "PriceList"),
    Row(
        *("POST", "/api/admin/prices", ADMIN, "Take a list of prices, all or nothing."),
        *("PriceChanges", "PriceListBody", ("dry_run",)),
    ),
    Row("GET", "/api/admin/codes", ADMIN, "Redeem codes, the newest first.", "List", "", _LIST),
    Row(
        *("POST", "/api/admin/codes", ADMIN, "Make codes; shown once."),
        *("List", "CodesBody", (), 201),
    ),
    Row("GET", "/api/admin/codes/{id}", ADMIN, "One code.", "Object"),
    Row("PATCH", "/api/admin/codes/{id}", ADMIN, "Change an unused code.", "Object", "CodeChange"),
    Row("DELETE", "/api/admin/codes/{id}", ADMIN, "Remove an unused code.", status=204),
    Row(
        *("GET", "/api/admin/audit", ADMIN, "Who changed what, the newest first.", "AuditList"),
        query=("limit", "after", "actor", "kind", "name", "since"),
    ),
    Row(
        *("GET", "/api/admin/audit/export", ADMIN, "All lines that match, streamed."),
        query=("format", "actor", "kind", "name", "since"),
        media="application/x-ndjson",
    ),
    Row("GET", "/api/admin/system", ADMIN, "Workers, store, configuration in force.", "Object"),
    Row("POST", "/api/admin/system/drain", ADMIN, "Take this node out of rotation.", "Object"),
    Row("GET", "/api/admin/notices", ADMIN, "All notices.", "NoticeList"),
    Row(
        *("POST", "/api/admin/notices", ADMIN, "Show a notice to everybody."),
        *("Notice", "NoticeBody", (), 201),
    ),
    Row("DELETE", "/api/admin/notices/{id}", ADMIN, "Take a notice back.", status=204),
)

ROWS: tuple[Row, ...] = (*_MEMBER, *_ADMIN)
