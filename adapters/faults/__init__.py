"""Conditions under which a call fails, the one exception that carries them, and the masking of
secrets in upstream messages.

Here: the numbers E01..E41, their codes in usage records, the party at fault and the default
wording. Not here: statuses and bodies for clients (``adapters.family.fault_table`` and a family's
``client.py``) and the reading of upstream errors (``adapters.upstream_errors``). Standard library
only. Imported by everybody.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

MAX_RETRY_AFTER_S = 60  # some clients sleep for the full time

MAX_MESSAGE_CHARS = 500
_LOOKED_AT_CHARS = 4 * MAX_MESSAGE_CHARS  # masked before cutting: half a key is still a secret
_MIN_SECRET_CHARS = 4  # shorter "secrets" would mask ordinary words
MASK = "***"

# An upstream's message may contain the account's key, address, organisation or e-mail address.
# Masking too much is harmless, masking too little is not.
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
    """The kind of a call's failure: its number in documents and tests, its code in usage records,
    and its message.

    The fault fills in {model}, {param}, {detail}, {key}, {wait} and {allow}. The messages are those
    of chat completions; a family with another wording has its own.
    """

    code: str
    template: str

    def __new__(cls, number: str, code: str = "", template: str = "") -> "Condition":
        condition = str.__new__(cls, number)
        condition._value_ = number
        condition.code, condition.template = code, template
        return condition

    MISSING_KEY = (
        "E01",
        "missing_api_key",
        "No API key was sent. Use the header 'Authorization: Bearer <API_KEY>'.",
    )
    MALFORMED_AUTHORIZATION = (
        "E02",
        "malformed_authorization",
        "The Authorization header must be the word Bearer, one blank, then the API key.",
    )
    INVALID_KEY = "E03", "invalid_api_key", "Incorrect API key provided{key}."
    KEY_DISABLED = "E04", "api_key_disabled", "The API key is disabled."
    KEY_EXPIRED = "E05", "api_key_expired", "The API key has expired."
    IP_NOT_ALLOWED = "E06", "ip_not_allowed", "This address may not use the API key."
    ENTRY_NOT_ALLOWED = (
        "E07",
        "entry_point_not_allowed",
        "The group of this API key may not use this entry point.",
    )
    MODEL_NOT_FOUND = (
        "E08",
        "model_not_found",
        "{Model} is not available to this API key. Check the name and the channel status.",
    )
    NO_CHANNEL = (
        "E09",
        "no_channel_available",
        "No channel for {model} can take the request right now.",
    )
    MODEL_MISSING = "E10", "missing_required_parameter", "Missing required field: 'model'."
    INVALID_JSON = "E11", "invalid_json", "The body is not valid JSON."
    INVALID_FIELD = "E12", "invalid_type", "Wrong type for '{param}': {detail}."
    FIELD_MISSING = "E13", "missing_required_parameter", "Missing required field: '{param}'."
    UNSUPPORTED = "E14", "unsupported_parameter", "'{param}' is not supported for {model}."
    TOO_LARGE = "E15", "request_too_large", "The body is too large."
    CONTENT_TYPE = (
        "E16",
        "unsupported_content_type",
        "Send the body with content-type: application/json.",
    )
    CONTENT_ENCODING = (
        "E17",
        "unsupported_content_encoding",
        "This content-encoding is not supported.",
    )
    WALLET_EMPTY = (
        "E18",
        "insufficient_quota",
        "The wallet balance is used up. Add balance in the API Hub.",
    )
    QUOTA_USED = "E19", "subscription_quota_exceeded", "The subscription quota is used up."
    RATE_LIMITED = "E20", "rate_limit_exceeded", "Rate limit reached. Try again in {wait}s."
    CONTEXT_LENGTH = (
        "E21",
        "context_length_exceeded",
        "The prompt is longer than the model's context window.",
    )
    UPSTREAM_REFUSED = "E22", "upstream_invalid_request", "The upstream refused the request."
    CONTENT_POLICY = (
        "E23",
        "content_policy_violation",
        "The upstream refused the request for its content.",
    )
    CHANNEL_MISCONFIGURED = (
        "E24",
        "channel_misconfigured",
        "The channel for {model} is not usable; tell the operator.",
    )
    UPSTREAM_RATE_LIMITED = (
        "E25",
        "upstream_rate_limited",
        "All channels for {model} are rate limited. Try again in {wait}s.",
    )
    UPSTREAM_FAILED = "E26", "upstream_error", "The upstream channel stopped answering."
    UPSTREAM_OVERLOADED = "E27", "upstream_overloaded", "The upstream is overloaded."
    UPSTREAM_TIMEOUT = "E28", "upstream_timeout", "The upstream did not answer in time."
    UPSTREAM_UNREACHABLE = "E29", "upstream_unreachable", "The upstream could not be reached."
    UPSTREAM_INVALID = "E30", "upstream_invalid_response", "The upstream sent an unreadable answer."
    UNKNOWN_PATH = "E31", "unknown_path", "No such endpoint."
    DUPLICATED_PATH = (
        "E32",
        "duplicated_path",
        "No such endpoint: the base URL already contains the path.",
    )
    METHOD_NOT_ALLOWED = "E33", "method_not_allowed", "Use {allow} for this endpoint."
    ID_NOT_FOUND = "E35", "not_found", "The id {id} is not known here."
    BODY_TIMEOUT = "E36", "request_timeout", "The body did not arrive in time."
    INTERNAL = "E37", "internal_error", "Internal error, see request id."
    UNAVAILABLE = "E38", "unavailable", "The gateway cannot take calls right now."
    UPGRADE_NOT_SUPPORTED = (
        "E39",
        "upgrade_not_supported",
        "Websockets are not supported here; use POST.",
    )
    FEATURE_NOT_ALLOWED = (
        "E40",
        "feature_not_allowed",
        "The group of this API key may not use the feature '{detail}'.",
    )
    FEATURE_UNPRICED = "E41", "feature_unpriced", "{Model} has no price for '{detail}'."


CODES: dict[Condition, str] = {condition: condition.code for condition in Condition}

# Seconds that a client should wait if the true wait is not known.
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
        Condition.FEATURE_NOT_ALLOWED,
        Condition.FEATURE_UNPRICED,
        Condition.WALLET_EMPTY,
        Condition.QUOTA_USED,
        Condition.CHANNEL_MISCONFIGURED,
        Condition.UPSTREAM_TIMEOUT,  # the upstream may have done the work
    }
)

WITH_PATH = frozenset(
    {Condition.ID_NOT_FOUND, Condition.FEATURE_NOT_ALLOWED, Condition.FEATURE_UNPRICED}
)
"""Conditions whose message names the field, in families without a separate place for it."""

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

    ``message`` is made from the condition when it is read, unless it was given: the relay may fill
    in ``model``, ``retry_after_s`` and so on later. ``param`` is the JSON path of the offending
    field ("messages[0].content"). ``detail`` is the part of the message that a family words in its
    own way: for INVALID_KEY the visible part of the key, for INVALID_FIELD the expected value, for
    ENTRY_NOT_ALLOWED the name of the group, for FEATURE_NOT_ALLOWED and FEATURE_UNPRICED the
    feature. ``key_refused``: the upstream refuses the key, or says so. ``refused_for``: the key
    itself, its permissions, or its account's funds. ``quota_used``: the account has nothing left.
    ``operator_message``: the upstream's cleaned message, or why it could not be reached; only for
    operators, never for a caller. ``quotes_upstream``: the message is the upstream's wording, which
    may repeat parts of the request. ``permanent``: the same request would always fail.
    ``details``: further fields for clients of the messages family, such as ``error_code``.
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
        """One sentence for the caller: the fact and, if there is one, the remedy."""
        if self.explicit_message is not None:
            return self.explicit_message
        model = f"model '{self.model}'" if self.model else "this model"
        return self.condition.template.format(
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
        return self.condition.code

    @property
    def blame(self) -> Literal["client", "gateway", "upstream"]:
        """The party at fault. Faults of the client never count against a channel's health."""
        if self.condition in _GATEWAY:
            return "gateway"
        return "upstream" if self.condition in _UPSTREAM else "client"

    @property
    def wait_s(self) -> int | None:
        """Seconds for ``retry-after``, 1 to 60; None if a retry alone would not help."""
        default = _RETRY_AFTER_S.get(self.condition)
        if default is None or self.permanent:
            return None
        return min(max(self.retry_after_s or default, 1), MAX_RETRY_AFTER_S)

    @property
    def should_retry_header(self) -> str | None:
        """The value of ``x-should-retry``; None if the header is not sent."""
        return "false" if self.permanent or self.condition in _NO_RETRY else None

    def mask(self, secrets: Sequence[str]) -> None:
        """Mask exact strings, such as the key and host of the channel, in the vendor's messages."""
        for name in ("explicit_message", "detail", "operator_message"):
            if (text := getattr(self, name)) is not None:
                setattr(self, name, clean_message(text, secrets))

    def __str__(self) -> str:
        return f"{self.condition.value} {self.message}"


def wrong_type(param: str, expected: str) -> Fault:
    """Return INVALID_FIELD for a wrong type; ``expected`` reads like "expected an array"."""
    return Fault(Condition.INVALID_FIELD, param=param, detail=expected)


def doubled_field(param: str) -> Fault:
    """Return INVALID_FIELD for a duplicate field: vendors differ in which one they use."""
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

    ``secrets`` are exact strings that are masked wherever they occur. Keys, tokens, URLs, host
    names, e-mail and IP addresses and account ids are masked by their shape.
    """
    text = _CONTROL.sub(" ", text[:_LOOKED_AT_CHARS])
    for secret in secrets:
        if len(secret) >= _MIN_SECRET_CHARS:
            text = text.replace(secret, MASK)
    return _SECRET_SHAPES.sub(MASK, text).strip()[:MAX_MESSAGE_CHARS]
