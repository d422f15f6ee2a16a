"""Status and kind of each error in the three dialects of clients.

OpenAI's: HTTP status and error type; Anthropic's: the same; Google's: HTTP status and its name. The
SDKs choose the exception class by the status. The families' ``client.py`` import this and make
bodies and messages. Source: the types and behaviour of the official SDKs.
"""

from typing import NamedTuple

from adapters.faults import Condition

INVALID_REQUEST = "invalid_request_error"
PERMISSION = "permission_error"
QUOTA = "insufficient_quota"
RATE_LIMIT = "rate_limit_error"
SERVER = "server_error"
_API = "api_error"
_INVALID_ARGUMENT = "INVALID_ARGUMENT"


class FaultRow(NamedTuple):
    """Status and kind of an error in each dialect."""

    openai: tuple[int, str]
    anthropic: tuple[int, str]
    google: tuple[int, str]


_UNAUTHENTICATED = FaultRow(
    (401, INVALID_REQUEST), (401, "authentication_error"), (401, "UNAUTHENTICATED")
)
_FORBIDDEN = FaultRow((403, PERMISSION), (403, PERMISSION), (403, "PERMISSION_DENIED"))
_NOT_FOUND = FaultRow((404, INVALID_REQUEST), (404, "not_found_error"), (404, "NOT_FOUND"))
_OVERLOADED = FaultRow((503, SERVER), (529, "overloaded_error"), (503, "UNAVAILABLE"))
_BAD_REQUEST = FaultRow((400, INVALID_REQUEST), (400, INVALID_REQUEST), (400, _INVALID_ARGUMENT))
# Not 429 for Google: command line clients retry every 429, whatever its headers say.
_PAYMENT_REQUIRED = FaultRow((429, QUOTA), (402, "billing_error"), (402, "FAILED_PRECONDITION"))
_RATE_LIMITED = FaultRow((429, RATE_LIMIT), (429, RATE_LIMIT), (429, "RESOURCE_EXHAUSTED"))
_BAD_GATEWAY = FaultRow((502, SERVER), (502, _API), (502, "INTERNAL"))

FAULT_TABLE: dict[Condition, FaultRow] = {
    Condition.MISSING_KEY: _UNAUTHENTICATED,
    Condition.MALFORMED_AUTHORIZATION: _UNAUTHENTICATED,
    Condition.INVALID_KEY: _UNAUTHENTICATED,
    Condition.KEY_DISABLED: _UNAUTHENTICATED,
    Condition.KEY_EXPIRED: _UNAUTHENTICATED,
    Condition.IP_NOT_ALLOWED: _FORBIDDEN,
    Condition.ENTRY_NOT_ALLOWED: _FORBIDDEN,
    Condition.MODEL_NOT_FOUND: _NOT_FOUND,
    Condition.NO_CHANNEL: _OVERLOADED,
    Condition.MODEL_MISSING: _BAD_REQUEST,
    Condition.INVALID_JSON: _BAD_REQUEST,
    Condition.INVALID_FIELD: _BAD_REQUEST,
    Condition.FIELD_MISSING: _BAD_REQUEST,
    Condition.UNSUPPORTED: _BAD_REQUEST,
    Condition.TOO_LARGE: FaultRow(
        (413, INVALID_REQUEST), (413, "request_too_large"), (413, _INVALID_ARGUMENT)
    ),
    Condition.CONTENT_TYPE: FaultRow(
        (415, INVALID_REQUEST), (415, INVALID_REQUEST), (415, _INVALID_ARGUMENT)
    ),
    Condition.CONTENT_ENCODING: FaultRow(
        (415, INVALID_REQUEST), (400, INVALID_REQUEST), (415, _INVALID_ARGUMENT)
    ),
    Condition.WALLET_EMPTY: _PAYMENT_REQUIRED,
    Condition.QUOTA_USED: _PAYMENT_REQUIRED,
    Condition.RATE_LIMITED: _RATE_LIMITED,
    Condition.CONTEXT_LENGTH: _BAD_REQUEST,
    Condition.UPSTREAM_REFUSED: _BAD_REQUEST,
    Condition.CONTENT_POLICY: _BAD_REQUEST,
    Condition.CHANNEL_MISCONFIGURED: _BAD_GATEWAY,
    Condition.UPSTREAM_RATE_LIMITED: _RATE_LIMITED,
    Condition.UPSTREAM_FAILED: _BAD_GATEWAY,
    Condition.UPSTREAM_OVERLOADED: _OVERLOADED,
    Condition.UPSTREAM_TIMEOUT: FaultRow(
        (504, SERVER), (504, "timeout_error"), (504, "DEADLINE_EXCEEDED")
    ),
    Condition.UPSTREAM_UNREACHABLE: FaultRow((502, SERVER), (502, _API), (502, "UNAVAILABLE")),
    Condition.UPSTREAM_INVALID: _BAD_GATEWAY,
    Condition.UNKNOWN_PATH: _NOT_FOUND,
    Condition.DUPLICATED_PATH: _NOT_FOUND,
    Condition.METHOD_NOT_ALLOWED: FaultRow(
        (405, INVALID_REQUEST), (405, INVALID_REQUEST), (405, "UNIMPLEMENTED")
    ),
    Condition.ID_NOT_FOUND: _NOT_FOUND,
    Condition.BODY_TIMEOUT: FaultRow(
        (408, INVALID_REQUEST), (408, "timeout_error"), (408, "DEADLINE_EXCEEDED")
    ),
    Condition.INTERNAL: FaultRow((500, SERVER), (500, _API), (500, "INTERNAL")),
    Condition.UNAVAILABLE: FaultRow((503, SERVER), (503, _API), (503, "UNAVAILABLE")),
    Condition.UPGRADE_NOT_SUPPORTED: FaultRow(
        (426, INVALID_REQUEST), (426, INVALID_REQUEST), (426, "UNIMPLEMENTED")
    ),
    Condition.FEATURE_NOT_ALLOWED: _FORBIDDEN,
    Condition.FEATURE_UNPRICED: _FORBIDDEN,
}
