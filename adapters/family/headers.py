"""Parts of upstream requests that the families share (header lines, path, model's name), and the
headers of the gateway's own refusals.

Upstreams get only listed headers, with values that are safe in a header line. Imported by the
families.
"""

import functools
import re
from collections.abc import Iterable, Mapping

from adapters.family import Operation, Peek, Vendor
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans, dumps, replace

# Visible ASCII, blanks and tabs: no CR, LF or NUL, which could start a header or end the request.
_SAFE = re.compile(r"[\x20-\x7e\t]+")
_MAX_VALUE_CHARS = 8192
_OPENAI_HEADERS = ("openai-organization", "openai-project", "openai-beta")


def base_lines(client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
    """Return credential, content type and accept, and nothing from the client. Raises Fault
    CHANNEL_MISCONFIGURED if the key cannot stand in a header.

    An empty key means that the upstream needs none, as with local model servers.
    """
    lines = ["content-type: application/json", "accept: application/json, text/event-stream"]
    return [_credential_line(vendor.auth, key), *lines] if key else lines


@functools.lru_cache(maxsize=1024)
def _credential_line(auth: str, key: str) -> str:
    if not is_safe(key):
        raise Fault(Condition.CHANNEL_MISCONFIGURED)
    return f"authorization: Bearer {key}" if auth == "bearer" else f"{auth}: {key}"


def openai_lines(client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
    """Return the lines for OpenAI's families: the base lines and, if the vendor knows them,
    OpenAI's own headers from the client."""
    lines = base_lines(client, vendor, key)
    if vendor.forward_openai_headers:
        lines += forwarded(client, _OPENAI_HEADERS)
    return lines


def forwarded(client: Mapping[str, str], names: Iterable[str]) -> list[str]:
    """Return lines for the named headers of the client, without unsafe values."""
    headers = [(name, client.get(name)) for name in names]
    return [f"{name}: {value}" for name, value in headers if value and is_safe(value)]


def is_safe(value: str) -> bool:
    """Return true if ``value`` can stand in a header line and is not empty."""
    return len(value) <= _MAX_VALUE_CHARS and _SAFE.fullmatch(value) is not None


def refusal_headers(fault: Fault) -> dict[str, str]:
    """Return the headers of a refusal or failure, the same in every family."""
    headers = {"content-type": "application/json"}
    if fault.condition in {Condition.MISSING_KEY, Condition.MALFORMED_AUTHORIZATION}:
        headers["www-authenticate"] = "Bearer"
    if fault.should_retry_header is not None:
        headers["x-should-retry"] = fault.should_retry_header
    if fault.wait_s is not None:
        headers["retry-after"] = str(fault.wait_s)
    if fault.condition is Condition.METHOD_NOT_ALLOWED:
        headers["allow"] = fault.allow or "POST"
    return headers


def rename_model(
    spans: Spans, read: Peek, operation: Operation, upstream_model: str, vendor: Vendor
) -> bytes:
    """Return the body with the upstream's name of the model; the same object if it is the same."""
    model = spans.get("model")
    if model is None or read.model == upstream_model:
        return spans.body
    return replace(spans.body, {model: dumps(upstream_model)})


def path(operation: Operation, upstream_model: str, target: str | None) -> str:
    """Return the upstream's path of a call, for families whose paths contain no names."""
    return operation.endpoint
