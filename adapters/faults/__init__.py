"""Conditions under which a call fails, the one exception that carries them, and the masking of
secrets in what upstreams say of it.

Here: the numbers E01..E39, their codes in usage records, whose fault they are and their default
wording. Not here: statuses and bodies for clients (``adapters.family.fault_table`` and a family's
``client.py``) and the reading of upstream errors (``adapters.upstream_errors``). Standard library
only. Imported by everybody.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

MAX_RETRY_AFTER_S = 60  # some clients sleep for the whole time

MAX_MESSAGE_CHARS = 500
_LOOKED_AT_CHARS = 4 * MAX_MESSAGE_CHARS  # masked before it is cut: half a key is still a secret
_MIN_SECRET_CHARS = 4  # shorter "secrets" would eat ordinary words
MASK = "***"

# An upstream's message may hold our account's key, address, organisation or e-mail address.
# Over-masking is harmless, under-masking is not.
_SECRET_SHAPES = re.compile(
    r"""
      \b[a-z][a-z0-9+.-]*://[^\s"'<>)\]}]+  # URLs
    | (?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+  # e-mail addresses
    | \b(?:bearer|basic)\s+[\w.~+/=*-]{6,}  # credentials as in a header
    | \b(?:sk|pk|rk|gsk|xai|hf|nvapi|pplx|ghp|glpat)[-_][\w*.-]{6,}  # keys by prefix
    | \b(?:key|api)[-_](?=[\w*.-]*[\d*])[\w*.-]{6,}
    | \bAIza[\w*-]{6,} | \bAKIA[A-Z0-9]{8,} | \bya29\.[\w.-]+ | \beyJ[\w-]{6,}[\w.-]*
    | \b(?:org|proj|acct|account|user|cus|wrkspc|workspace|tenant)[-_][A-Za-z0-9]*\d[\w-]*  # ids
    | \b(?:org|proj|acct|wrkspc)-[\w-]{6,}
    | \b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b  # UUIDs
    | \bprojects/[\w-]+ | \bproject[ _](?:number:?[ ])?\d{6,}  # cloud projects
    | \b(?:[a-z0-9-]+\.)+(?:com|net|org|io|ai|dev|cloud|cn|local|internal)\b(?::\d+)?(?:/[^\s"']*)?
    | \b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?  # IPv4 addresses
    | (?<![\w+/-])(?=[\w+/-]*\d)[\w+/-]{40,}={0,2}  # long opaque tokens
    """,
    re.VERBOSE | re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")


class Condition(StrEnum):
    """The kind of a call's failure; the value is its number in documents and tests."""

    MISSING_KEY = "E01"
    MALFORMED_AUTHORIZATION = "E02"
    INVALID_KEY = "E03"
    KEY_DISABLED = "E04"
    KEY_EXPIRED = "E05"
    IP_NOT_ALLOWED = "E06"
    ENTRY_NOT_ALLOWED = "E07"
    MODEL_NOT_FOUND = "E08"
    NO_CHANNEL = "E09"
    MODEL_MISSING = "E10"
    INVALID_JSON = "E11"
    INVALID_FIELD = "E12"
    FIELD_MISSING = "E13"
    UNSUPPORTED = "E14"
    TOO_LARGE = "E15"
    CONTENT_TYPE = "E16"
    CONTENT_ENCODING = "E17"
    WALLET_EMPTY = "E18"
    QUOTA_USED = "E19"
    RATE_LIMITED = "E20"
    CONTEXT_LENGTH = "E21"
    UPSTREAM_REFUSED = "E22"
    CONTENT_POLICY = "E23"
    CHANNEL_MISCONFIGURED = "E24"
    UPSTREAM_RATE_LIMITED = "E25"
    UPSTREAM_FAILED = "E26"
    UPSTREAM_OVERLOADED = "E27"
    UPSTREAM_TIMEOUT = "E28"
    UPSTREAM_UNREACHABLE = "E29"
    UPSTREAM_INVALID = "E30"
    UNKNOWN_PATH = "E31"
    DUPLICATED_PATH = "E32"
    METHOD_NOT_ALLOWED = "E33"
    ID_NOT_FOUND = "E35"
    BODY_TIMEOUT = "E36"
    INTERNAL = "E37"
    UNAVAILABLE = "E38"
    UPGRADE_NOT_SUPPORTED = "E39"


CODES: dict[Condition, str] = {
    Condition.MISSING_KEY: "missing_api_key",
    Condition.MALFORMED_AUTHORIZATION: "malformed_authorization",
    Condition.INVALID_KEY: "invalid_api_key",
    Condition.KEY_DISABLED: "api_key_disabled",
    Condition.KEY_EXPIRED: "api_key_expired",
    Condition.IP_NOT_ALLOWED: "ip_not_allowed",
    Condition.ENTRY_NOT_ALLOWED: "entry_point_not_allowed",
    Condition.MODEL_NOT_FOUND: "model_not_found",
    Condition.NO_CHANNEL: "no_channel_available",
    Condition.MODEL_MISSING: "missing_required_parameter",
    Condition.INVALID_JSON: "invalid_json",
    Condition.INVALID_FIELD: "invalid_type",
    Condition.FIELD_MISSING: "missing_required_parameter",
    Condition.UNSUPPORTED: "unsupported_parameter",
    Condition.TOO_LARGE: "request_too_large",
    Condition.CONTENT_TYPE: "unsupported_content_type",
    Condition.CONTENT_ENCODING: "unsupported_content_encoding",
    Condition.WALLET_EMPTY: "insufficient_quota",
    Condition.QUOTA_USED: "subscription_quota_exceeded",
    Condition.RATE_LIMITED: "rate_limit_exceeded",
    Condition.CONTEXT_LENGTH: "context_length_exceeded",
    Condition.UPSTREAM_REFUSED: "upstream_invalid_request",
    Condition.CONTENT_POLICY: "content_policy_violation",
    Condition.CHANNEL_MISCONFIGURED: "channel_misconfigured",
    Condition.UPSTREAM_RATE_LIMITED: "upstream_rate_limited",
    Condition.UPSTREAM_FAILED: "upstream_error",
    Condition.UPSTREAM_OVERLOADED: "upstream_overloaded",
    Condition.UPSTREAM_TIMEOUT: "upstream_timeout",
    Condition.UPSTREAM_UNREACHABLE: "upstream_unreachable",
    Condition.UPSTREAM_INVALID: "upstream_invalid_response",
    Condition.UNKNOWN_PATH: "unknown_path",
    Condition.DUPLICATED_PATH: "duplicated_path",
    Condition.METHOD_NOT_ALLOWED: "method_not_allowed",
    Condition.ID_NOT_FOUND: "not_found",
    Condition.BODY_TIMEOUT: "request_timeout",
    Condition.INTERNAL: "internal_error",
    Condition.UNAVAILABLE: "unavailable",
    Condition.UPGRADE_NOT_SUPPORTED: "upgrade_not_supported",
}

# {model}, {param}, {detail}, {key}, {wait} and {allow} are filled in from the fault. These are the
# words of the chat completions shape; a family that words one differently does so in its fault.py.
_MESSAGES: dict[Condition, str] = {
    Condition.MISSING_KEY: (
        "No API key was sent. Use the header 'Authorization: Bearer <API_KEY>'."
    ),
    Condition.MALFORMED_AUTHORIZATION: (
        "The Authorization header must be the word Bearer, one blank, then the API key."
    ),
    Condition.INVALID_KEY: "Incorrect API key provided{key}.",
    Condition.KEY_DISABLED: "The API key is disabled.",
    Condition.KEY_EXPIRED: "The API key has expired.",
    Condition.IP_NOT_ALLOWED: "This address may not use the API key.",
    Condition.ENTRY_NOT_ALLOWED: "The group of this API key may not use this entry point.",
    Condition.MODEL_NOT_FOUND: (
        "{Model} is not available to this API key. Check the name and the channel status."
    ),
    Condition.NO_CHANNEL: "No channel for {model} can take the request right now.",
    Condition.MODEL_MISSING: "Missing required field: 'model'.",
    Condition.INVALID_JSON: "The body is not valid JSON.",
    Condition.INVALID_FIELD: "Wrong type for '{param}': {detail}.",
    Condition.FIELD_MISSING: "Missing required field: '{param}'.",
    Condition.UNSUPPORTED: "'{param}' is not supported for {model}.",
    Condition.TOO_LARGE: "The body is too large.",
    Condition.CONTENT_TYPE: "Send the body with content-type: application/json.",
    Condition.CONTENT_ENCODING: "This content-encoding is not supported.",
    Condition.WALLET_EMPTY: "The wallet balance is used up. Add balance in the API Hub.",
    Condition.QUOTA_USED: "The subscription quota is used up.",
    Condition.RATE_LIMITED: "Rate limit reached. Try again in {wait}s.",
    Condition.CONTEXT_LENGTH: "The prompt is longer than the model's context window.",
    Condition.UPSTREAM_REFUSED: "The upstream refused the request.",
    Condition.CONTENT_POLICY: "The upstream refused the request for its content.",
    Condition.CHANNEL_MISCONFIGURED: ("The channel for {model} is not usable; tell the operator."),
    Condition.UPSTREAM_RATE_LIMITED: (
        "All channels for {model} are rate limited. Try again in {wait}s."
    ),
    Condition.UPSTREAM_FAILED: "The upstream channel stopped answering.",
    Condition.UPSTREAM_OVERLOADED: "The upstream is overloaded.",
    Condition.UPSTREAM_TIMEOUT: "The upstream did not answer in time.",
    Condition.UPSTREAM_UNREACHABLE: "The upstream could not be reached.",
    Condition.UPSTREAM_INVALID: "The upstream sent an unreadable answer.",
    Condition.UNKNOWN_PATH: "No such endpoint.",
    Condition.DUPLICATED_PATH: "No such endpoint: the base URL already contains the path.",
    Condition.METHOD_NOT_ALLOWED: "Use {allow} for this endpoint.",
    Condition.ID_NOT_FOUND: "The id {id} is not known here.",
    Condition.BODY_TIMEOUT: "The body did not arrive in time.",
    Condition.INTERNAL: "Internal error, see request id.",
    Condition.UNAVAILABLE: "The gateway cannot take calls right now.",
    Condition.UPGRADE_NOT_SUPPORTED: "Websockets are not supported here; use POST.",
}

# Seconds for a client to wait when the true wait is not known.
_RETRY_AFTER_S: dict[Condition, int] = {
    Condition.NO_CHANNEL: 2,
    Condition.RATE_LIMITED: 3,
    Condition.UPSTREAM_RATE_LIMITED: 5,
    Condition.UPSTREAM_OVERLOADED: 2,
    Condition.UNAVAILABLE: 1,
}

_NO_RETRY = frozenset(
    {
        Condition.MISSING_KEY,
        Condition.MALFORMED_AUTHORIZATION,
        Condition.INVALID_KEY,
        Condition.KEY_DISABLED,
        Condition.KEY_EXPIRED,
        Condition.IP_NOT_ALLOWED,
        Condition.ENTRY_NOT_ALLOWED,
        Condition.MODEL_NOT_FOUND,
        Condition.WALLET_EMPTY,
        Condition.QUOTA_USED,
        Condition.CHANNEL_MISCONFIGURED,
        Condition.UPSTREAM_TIMEOUT,  # the upstream may have done the work already
    }
)

_GATEWAY = frozenset(
    {
        Condition.NO_CHANNEL,
        Condition.CHANNEL_MISCONFIGURED,
        Condition.INTERNAL,
        Condition.UNAVAILABLE,
    }
)

_UPSTREAM = frozenset(
    {
        Condition.UPSTREAM_RATE_LIMITED,
        Condition.UPSTREAM_FAILED,
        Condition.UPSTREAM_OVERLOADED,
        Condition.UPSTREAM_TIMEOUT,
        Condition.UPSTREAM_UNREACHABLE,
        Condition.UPSTREAM_INVALID,
    }
)

_PARAM: dict[Condition, str] = {
    Condition.MODEL_NOT_FOUND: "model",
    Condition.NO_CHANNEL: "model",
    Condition.MODEL_MISSING: "model",
    Condition.CONTEXT_LENGTH: "messages",
}


class Fault(Exception):
    """The failure or refusal of a call.

    ``message`` is made from the condition unless it is given, at the time it is read: the relay may
    fill in ``model``, ``retry_after_s`` and the like afterwards. ``param`` is the JSON path of the
    offending field ("messages[0].content"). ``detail`` is the part of the message that a family
    words in its own way: for INVALID_KEY what may be shown of the key, for INVALID_FIELD what was
    expected, for ENTRY_NOT_ALLOWED the name of the group. ``key_refused``: the upstream refuses the
    key that was used, or says that it does; ``refused_for``: the key as such, what it may do, or
    what its account can pay; and ``quota_used``: because its account has nothing left.
    ``operator_message``: the upstream's message, or why it could not be reached, cleaned; for
    operators alone, never for a caller. ``quotes_upstream``: it is the upstream's wording, which
    may repeat the request's. ``permanent``: the same request fails whenever it is repeated.
    ``details``: what clients of the messages family read besides, as its ``error_code``.
    """

    def __init__(
        self,
        condition: Condition,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
        model: str | None = None,
        allow: str | None = None,
        detail: str | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(condition, message)
        self.condition = condition
        self.explicit_message = message
        self.param = param if param is not None else _PARAM.get(condition)
        self.retry_after_s = retry_after_s
        self.model = model
        self.allow = allow
        self.detail = detail
        self.details = details
        self.key_refused = False
        self.quota_used = False
        self.operator_message: str | None = None
        self.quotes_upstream = False
        self.permanent = False
        self.refused_for: Literal["key", "access", "quota"] = "key"

    @property
    def message(self) -> str:
        """One sentence for the caller: the fact and, where there is one, the remedy."""
        if self.explicit_message is not None:
            return self.explicit_message
        model = f"model '{self.model}'" if self.model else "this model"
        return _MESSAGES[self.condition].format(
            model=model,
            Model=model[0].upper() + model[1:],
            param=self.param,
            detail=self.detail or "the value cannot be used",
            wait=self.wait_s,
            allow=self.allow or "POST",
            key=f": {self.detail}" if self.detail else "",
            id=f"'{self.detail}'" if self.detail else "of the request",
        )

    @message.setter
    def message(self, text: str) -> None:
        self.explicit_message = text

    @property
    def code(self) -> str:
        """The code of usage records, the same in every family."""
        return CODES[self.condition]

    @property
    def blame(self) -> Literal["client", "gateway", "upstream"]:
        """The party at fault: faults of the client never count against a channel's health."""
        if self.condition in _GATEWAY:
            return "gateway"
        return "upstream" if self.condition in _UPSTREAM else "client"

    @property
    def wait_s(self) -> int | None:
        """Seconds for ``retry-after``, 1 to 60; None when a repeat would not help by itself."""
        default = _RETRY_AFTER_S.get(self.condition)
        if default is None or self.permanent:
            return None
        return min(max(self.retry_after_s or default, 1), MAX_RETRY_AFTER_S)

    @property
    def should_retry_header(self) -> str | None:
        """The value of ``x-should-retry``; None when the header is not to be sent."""
        return "false" if self.permanent or self.condition in _NO_RETRY else None

    def mask(self, secrets: Sequence[str]) -> None:
        """Mask exact strings, such as the key and host of the channel, in the vendor's messages."""
        if self.explicit_message is not None:
            self.explicit_message = clean_message(self.explicit_message, secrets)
        if self.detail is not None:
            self.detail = clean_message(self.detail, secrets)
        if self.operator_message is not None:
            self.operator_message = clean_message(self.operator_message, secrets)

    def __str__(self) -> str:
        return f"{self.condition.value} {self.message}"


def wrong_type(param: str, expected: str) -> Fault:
    """Return INVALID_FIELD for a wrong type; ``expected`` reads like "expected an array"."""
    return Fault(Condition.INVALID_FIELD, param=param, detail=expected)


def doubled_field(param: str) -> Fault:
    """Return INVALID_FIELD for a field that comes twice: vendors differ in which they obey."""
    message, detail = f"The field '{param}' comes twice.", "the field comes twice"
    return Fault(Condition.INVALID_FIELD, message, param=param, detail=detail)


def wrong_value(param: str, expected: str) -> Fault:
    """Return INVALID_FIELD for a field of the right type whose value is out of range."""
    return Fault(
        Condition.INVALID_FIELD,
        f"Wrong value for '{param}': {expected}.",
        param=param,
        detail=expected,
    )


def clean_message(text: str, secrets: Sequence[str] = ()) -> str:
    """Return the first 500 characters of ``text`` as one line, with secrets masked.

    ``secrets`` are exact strings to mask wherever they stand; keys, tokens, URLs, host names,
    e-mail and IP addresses and ids of accounts are masked by their shape.
    """
    text = _CONTROL.sub(" ", text[:_LOOKED_AT_CHARS])
    for secret in secrets:
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, MASK)
    return _SECRET_SHAPES.sub(MASK, text).strip()[:MAX_MESSAGE_CHARS]
