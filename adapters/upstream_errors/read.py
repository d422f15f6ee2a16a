"""Reading of an upstream's errors.

Here: status and body of an upstream's error, in any shape, become a Fault and advice about the
channel. Not here: the error for the client (a family's ``client.py``). Imported by the families and
the relay. Source: the error shapes of the four families in their official SDKs and public
documentation.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from adapters.faults import Condition, Fault, clean_message
from adapters.upstream_errors.error_text import ErrorText, bounded_s, read_body, read_error
from adapters.upstream_errors.refused_fields import refused_fields

MAX_CODE_CHARS = 64  # of a vendor's error code, as shown to operators
QUOTA_USED = "the vendor's quota is used up"
A_PAGE = "the answer is a page for people (HTML)"
A_REDIRECT = "the answer is a redirect, which is never followed"

RetryWithout = Literal["reasoning", "beta", "stream_options", "bare_turns"]


@dataclass(frozen=True, slots=True)
class UpstreamFault:
    """The meaning of an upstream's failure.

    ``fail_over``: another channel may be tried. ``retry_without``: the same channel may be tried
    again once without this: opaque reasoning (signatures), the retired beta value, the
    ``stream_options`` that the gateway added, turns that lack their original reasoning, or fields
    by their names in REFUSED_FIELDS.
    """

    fault: Fault
    fail_over: bool
    retry_without: RetryWithout | tuple[str, ...] | None = None


_CONTEXT = re.compile(
    r"context[ _]length|prompt is too long|context window|maximum context"
    r"|too many (?:input )?tokens"
    r"|input (?:is )?too long|exceeds? the (?:maximum|max) (?:number of )?(?:input )?tokens"
)
_POLICY = re.compile(
    r"content[ _-]?policy|content[ _-]?filter|content management policy|usage polic(?:y|ies)"
    r"|safety (?:system|polic|reason)|data_inspection_failed|moderation"
)
_BROKEN_KEY = re.compile(
    r"api_key_invalid|api key not valid|invalid[ _]api[ _]key|incorrect api key"
    r"|authentication_error"
    r"|credit balance is too low|permission_error"
    r"|insufficient[ _]+(?:\w+[ _]+){0,2}?(?:balance|quota|credit|fund)"
)
_QUOTA = re.compile(
    r"insufficient_quota|billing|credit balance|credit_balance"
    r"|insufficient[ _]+(?:\w+[ _]+){0,2}?(?:balance|quota|credit|fund)"
    r"|exceeded your current quota|out of credits|quota[ _]exhausted"
)
_FOREIGN_ID = re.compile(
    r"\b(?:file|response|conversation|previous_response|container|item|batch|upload|vector store)"
    r"(?:_id)?\b|\b(?:file|resp|conv|pmpt|rs|msg|fc|batch|cntr)[-_][a-z0-9]{4,}"
)
# Google answers "permission denied" for a file or a cache of another account.
_UNSEEN = re.compile(
    r"cached ?content\b.{0,80}(?:not found|not exist|denied|expired)"
    r"|permission to access (?:the )?(?:file|cached ?content)\b",
    re.DOTALL,
)
_OPAQUE = re.compile(r"signature|encrypted[ _]content|thoughtsignature|thought_signature")
_BETA = re.compile(r"anthropic-beta|beta header|beta (?:value|flag|feature)")
_MISSING_REASONING = re.compile(
    r"(?:reasoning_content|content\[\]\.thinking)\b.{0,60}"
    r"\b(?:missing|required|must be (?:passed|provided|included|sent|present))"
    r"|missing.{0,20}reasoning_content"
)
_QUOTES = "'\"`"
_QUOTE = re.compile(rf"(?<!\w)[{_QUOTES}]")  # an opening quote, not an apostrophe
_UNKNOWN_THREAD = "thread_not_found"
_UNKNOWN_ID = "previous_response_not_found"
# An HTML page may also follow other text or be inside JSON.
_PAGE = re.compile(r"<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_RATE_LIMITED = frozenset(
    {
        *("rate_limit_error", "rate_limit_exceeded", "rate_limit_reached"),
        *("rate_limit_reached_error", "too_many_requests", "requests", "tokens"),
        "resource_exhausted",
    }
)
_NO_ACCESS = frozenset({"permission_error", "permission_denied_error", "permission_denied"})
_NOT_FOUND = frozenset({"model_not_found", "not_found_error", "not_found"})
# The condition by the vendors' names of errors, most specific first.
_BY_NAME: tuple[tuple[Condition, Collection[str]], ...] = (
    (Condition.ID_NOT_FOUND, (_UNKNOWN_ID,)),
    (Condition.CONTEXT_LENGTH, ("context_length_exceeded", "model_context_window_exceeded")),
    (Condition.CONTENT_POLICY, ("content_policy_violation", "content_filter", "content_policy")),
    (Condition.CONTENT_POLICY, ("data_inspection_failed", "responsibleaipolicyviolation")),
    (Condition.CHANNEL_MISCONFIGURED, ("insufficient_quota", "credit_balance_exhausted")),
    (Condition.CHANNEL_MISCONFIGURED, ("billing_error", "billing_hard_limit_reached")),
    (Condition.CHANNEL_MISCONFIGURED, ("authentication_error", "unauthenticated")),
    (Condition.CHANNEL_MISCONFIGURED, _NO_ACCESS),
    (Condition.CHANNEL_MISCONFIGURED, ("invalid_api_key", "api_key_invalid")),
    (Condition.CHANNEL_MISCONFIGURED, ("account_deactivated", *_NOT_FOUND)),
    (Condition.UPSTREAM_OVERLOADED, ("overloaded_error", "overloaded", "server_is_overloaded")),
    (Condition.UPSTREAM_OVERLOADED, ("service_unavailable", "service_unavailable_error")),
    (Condition.UPSTREAM_OVERLOADED, ("slow_down", "unavailable")),
    (Condition.UPSTREAM_OVERLOADED, ("engine_overloaded", "engine_overloaded_error")),
    (Condition.UPSTREAM_RATE_LIMITED, _RATE_LIMITED),
    (Condition.UPSTREAM_TIMEOUT, ("timeout_error", "timeout", "upstream_timeout")),
    (Condition.UPSTREAM_TIMEOUT, ("deadline_exceeded",)),
    (Condition.UPSTREAM_FAILED, ("server_error", "api_error", "upstream_error", "conflict_error")),
    (Condition.UPSTREAM_FAILED, ("internal_error", "internal_server_error", "internal")),
    (Condition.UPSTREAM_FAILED, ("aborted", "unknown")),
    (Condition.UPSTREAM_REFUSED, ("invalid_request_error", "invalid_request", "bad_request")),
    (Condition.UPSTREAM_REFUSED, ("invalid_argument", "failed_precondition", "out_of_range")),
    (Condition.UPSTREAM_REFUSED, ("request_too_large", "unprocessable_entity_error")),
)

_FAILED_STATUSES = frozenset({408, 409, 425, 499})
_MISCONFIGURED_STATUSES = frozenset({405, 407, 410, 421})  # the base URL or the model is wrong
_KEY_STATUSES = frozenset({401, 402, 403})
_OF_NO_KEY = _MISCONFIGURED_STATUSES | {404}

_FAIL_OVER = frozenset(
    {
        Condition.CHANNEL_MISCONFIGURED,
        Condition.UPSTREAM_RATE_LIMITED,
        Condition.UPSTREAM_FAILED,
        Condition.UPSTREAM_OVERLOADED,
        Condition.UPSTREAM_INVALID,
    }
)

# Coding clients read the figures in these messages and shorten the conversation themselves.
_IN_VENDORS_WORDS = frozenset({Condition.CONTEXT_LENGTH, Condition.CONTENT_POLICY})

# Inside an answer there is no status, so only the vendor's sentence remains. The words of
# CHANNEL_MISCONFIGURED are about the gateway's account; clients would think that theirs is meant.
_FROM_STREAM = frozenset(
    {
        Condition.UPSTREAM_FAILED,
        Condition.UPSTREAM_OVERLOADED,
        Condition.UPSTREAM_RATE_LIMITED,
        Condition.UPSTREAM_TIMEOUT,
    }
)


def read_upstream_error(
    status: int, headers: Mapping[str, str], body: bytes, secrets: Sequence[str] = ()
) -> UpstreamFault:
    """Return the meaning of an upstream's answer with an error status (3xx, 4xx, 5xx).

    ``headers`` are looked up in lower case. ``secrets`` are exact strings (upstream key, host) to
    mask in the message, in addition to masking by shape. The client never gets the upstream's
    status: a user must not read that their key is wrong when the gateway's is.
    """
    error = read_body(body)
    condition = _condition_of(status, error)
    fault = _fault(condition, error, secrets, status=status)
    fault.retry_after_s = retry_after_s(headers) or error.wait_s
    fault.key_refused = condition is Condition.CHANNEL_MISCONFIGURED and (
        status in _KEY_STATUSES or status in {400, 429}
    )
    _set_operator_message(fault, error, secrets, status)
    fault.refused_for = _refused_for(fault, status, error)
    return UpstreamFault(fault, condition in _FAIL_OVER, _retry_without(status, error))


def read_embedded_error(error: object, secrets: Sequence[str] = ()) -> UpstreamFault:
    """Return the meaning of an error inside an answer with status 200, plain or in a stream.

    ``error`` is the decoded body or event. UPSTREAM_INVALID if no condition can be read from it.
    Another channel may be tried unless something was relayed or the request itself was refused.
    """
    text = read_error(error)
    status = text.status if text.status is not None and 400 <= text.status <= 599 else None
    condition = _condition_by_name(text)
    if condition is Condition.CHANNEL_MISCONFIGURED and _speaks_of_foreign_id(text):
        condition = Condition.ID_NOT_FOUND
    if condition is None and status is not None:
        condition = _condition_of(status, text)
    if condition in {None, Condition.UPSTREAM_REFUSED}:
        condition = _condition_by_wording(text) or condition
    condition = condition or Condition.UPSTREAM_INVALID
    fault = _fault(condition, text, secrets, status=None)
    fault.retry_after_s = text.wait_s
    of_key = status not in _OF_NO_KEY and not text.names & _NOT_FOUND
    fault.key_refused = condition is Condition.CHANNEL_MISCONFIGURED and of_key
    _set_operator_message(fault, text, secrets, status)
    fault.refused_for = _refused_for(fault, status, text)
    return UpstreamFault(fault, fail_over=True)


def _refused_for(
    fault: Fault, status: int | None, error: ErrorText
) -> Literal["key", "access", "quota"]:
    """Return the probable reason why the upstream refuses the key, judged by its words."""
    if fault.quota_used or status == 429:
        return "quota"
    return "access" if status == 403 or error.names & _NO_ACCESS else "key"


def _condition_of(status: int, error: ErrorText) -> Condition:
    """Return the condition for an error status and the words of its body."""
    if status < 400:
        return Condition.UPSTREAM_INVALID  # a redirect is never followed with credentials
    if error.thread is not None and status < 500:
        unknown = error.thread["error_code"] == _UNKNOWN_THREAD
        return Condition.ID_NOT_FOUND if unknown else Condition.UPSTREAM_REFUSED
    if status in {403, 404} and _UNSEEN.search(error.words):
        return Condition.ID_NOT_FOUND
    if status in _KEY_STATUSES or status in _MISCONFIGURED_STATUSES:
        return Condition.CHANNEL_MISCONFIGURED
    if status == 404:
        unknown = _names_foreign_id(error) or _UNKNOWN_ID in error.names
        return Condition.ID_NOT_FOUND if unknown else Condition.CHANNEL_MISCONFIGURED
    if status == 429:
        return _condition_of_429(error)
    if status in _FAILED_STATUSES:
        return Condition.UPSTREAM_FAILED
    if status < 500:
        return _condition_by_wording(error) or Condition.UPSTREAM_REFUSED
    if status in {503, 529} or error.names & {"overloaded_error", "unavailable"}:
        return Condition.UPSTREAM_OVERLOADED
    if status == 504 or "deadline_exceeded" in error.names:
        return Condition.UPSTREAM_TIMEOUT
    return Condition.UPSTREAM_FAILED


def _names_foreign_id(error: ErrorText) -> bool:
    return _FOREIGN_ID.search(error.words) is not None and "model" not in error.words


def _speaks_of_foreign_id(error: ErrorText) -> bool:
    """Return true if the object not found, or not visible, is one of the client's."""
    if _UNSEEN.search(error.words):
        return True
    return bool(error.names & _NOT_FOUND) and _names_foreign_id(error)


def _condition_of_429(error: ErrorText) -> Condition:
    # Messages about a limit of requests per minute also mention quota, plan and billing.
    limited = error.names & _RATE_LIMITED and "rate limit" in error.words
    only_names = limited or "resource_exhausted" in error.names
    quota = _QUOTA.search(" ".join(error.names) if only_names else error.words) is not None
    return Condition.CHANNEL_MISCONFIGURED if quota else Condition.UPSTREAM_RATE_LIMITED


def _condition_by_wording(error: ErrorText) -> Condition | None:
    """Return the condition that the wording of a refusal implies; None if it implies none."""
    if _UNKNOWN_ID in error.names:
        return Condition.ID_NOT_FOUND  # a response that another account may have
    if error.param is None and _BROKEN_KEY.search(_unquoted(error.words)):
        return Condition.CHANNEL_MISCONFIGURED
    if _CONTEXT.search(error.words):
        return Condition.CONTEXT_LENGTH
    if _POLICY.search(error.words):
        return Condition.CONTENT_POLICY
    return None


def _unquoted(words: str) -> str:
    """Return the text without quoted parts: these may be the client's words about an account."""
    first = _QUOTE.search(words)
    if first is None:
        return words
    last = max(words.rfind(quote) for quote in _QUOTES)
    return f"{words[: first.start()]} {words[last + 1 :]}"


def _condition_by_name(error: ErrorText) -> Condition | None:
    for condition, names in _BY_NAME:
        if not error.names.isdisjoint(names):
            return condition
    return None


def _fault(
    condition: Condition, error: ErrorText, secrets: Sequence[str], status: int | None
) -> Fault:
    """Return the Fault of a condition, with the vendor's words if the client may read them."""
    message = "" if _PAGE.search(error.message) else error.message
    cleaned = clean_message(message, secrets)
    fault = Fault(condition, details=error.thread)
    if condition is Condition.UPSTREAM_REFUSED and cleaned:
        fault.message = f"The upstream refused the request: {cleaned}"
    elif condition is Condition.ID_NOT_FOUND and cleaned:
        fault.message = f"The upstream does not know an id of the request: {cleaned}"
        fault.param = error.param
    elif condition in _IN_VENDORS_WORDS and cleaned:
        fault.message = cleaned
    elif condition is Condition.UPSTREAM_FAILED and status is not None:
        fault.message = f"The upstream failed with status {status}."
    elif status is None and cleaned and condition in _FROM_STREAM:
        fault.message = cleaned
    return fault


def _set_operator_message(
    fault: Fault, error: ErrorText, secrets: Sequence[str], status: int | None
) -> None:
    """Set the message for operators: the vendor's sentence and code, and whether a quota is used
    up."""
    fault.quota_used = fault.key_refused and (
        status == 402 or _QUOTA.search(_unquoted(error.words)) is not None
    )
    page = error.page or _PAGE.search(error.message) is not None
    redirect = status is not None and status < 400
    words = [A_REDIRECT if redirect else A_PAGE if page else error.message.strip()]
    if error.code and error.code != error.message:
        words.append(f"({error.code[:MAX_CODE_CHARS]})")
    message = " ".join(filter(None, words))
    if fault.quota_used:
        message = f"{QUOTA_USED}: {message}" if message else QUOTA_USED
    fault.operator_message = clean_message(message, secrets) or None
    fault.quotes_upstream = bool(error.message or error.code)


def _retry_without(status: int, error: ErrorText) -> RetryWithout | tuple[str, ...] | None:
    if status not in {400, 422}:
        return None
    if "stream_options" in error.words or "include_usage" in error.words:
        return "stream_options"
    if _BETA.search(error.words):
        return "beta"
    if _MISSING_REASONING.search(error.words):
        return "bare_turns"
    if _OPAQUE.search(error.words):
        return "reasoning"
    return refused_fields(error.words) or None


def retry_after_s(headers: Mapping[str, str]) -> int | None:
    """Return whole seconds, 1 to 60, of ``retry-after-ms`` or ``retry-after``; None if absent."""
    for name, per_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / per_second
        except ValueError:
            continue  # a date, which upstreams for programs do not send
        if math.isfinite(seconds) and seconds >= 0:
            return bounded_s(seconds)
    return None
