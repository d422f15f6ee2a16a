"""The base of the tests' vendor families: a demo family with a real vendor's refusals, and hooks
for scripts.

It adds checks of credentials and requests, the real shapes of refusals, and the hooks. Each family
has a file of its own here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from demo import family as demo
from demo.family import ModelAnswer, ModelRequest, Route
from demo.speech import SIGNATURE_MARK, sign
from tests.vendor.directives import Script

Path = tuple[str | int, ...]
SIGNATURE_BYTES = 32
BAD_KEY_PREFIX = "sk-bad"  # an upstream key like this is refused, like a revoked key
BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(\S+)")
JSON_TYPE = "application/json"
# Requests without a body: `Family.lookup` answers them.
LOOKUPS = frozenset(("models", "stored", "items", "forget", "cancel"))


class Refusal(demo.Refusal):
    """A refusal: `message` is the fact, `path` the place in the request, `kind` the kind of
    fault."""

    def __init__(
        self,
        message: str,
        path: Path = (),
        kind: Literal["value", "type", "missing", "plain"] = "value",
        *,
        status: int = 400,
        code: str | None = None,
        error_type: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.path = path
        self.kind = kind
        self.code = code
        self.error_type = error_type
        self.retry_after_s = retry_after_s
        # In a stream: the first and the last event before the fault, for a family whose error
        # event refers to them; empty if the fault comes first.
        self.after: tuple[bytes, bytes] = (b"", b"")


class StrictFamily(demo.Family):
    """A family of demo with checks of requests, and with hooks for the script."""

    garbage: bytes  # an event whose data is not JSON
    error_event_status = 503
    headers: Mapping[str, str] = {}

    def route(self, method: str, path: str, headers: Mapping[str, str]) -> Route | None:
        return self.find(path, headers)

    def admit(self, headers: Mapping[str, str]) -> None:
        """Raise Refusal if the credential (or a version that the family requires) is wrong."""
        raise NotImplementedError

    def check_content_type(self, value: str) -> None:
        """Raise Refusal if a body of this content type is not accepted."""
        if not is_json(value):
            raise Refusal(f"The content type must be {JSON_TYPE}.", kind="plain")

    def scripted(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> dict[str, Any]:
        """Return the plain answer with the script's changes."""
        raise NotImplementedError

    def scripted_events(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> Iterator[dict[str, Any]]:
        """Yield the events with the script's changes."""
        raise NotImplementedError

    def stream(self, request: ModelRequest, answer: ModelAnswer, script: Script) -> Iterator[bytes]:
        events = self.scripted_events(request, answer, script)
        yield from map(self.encode, map(without_usage, events) if script.nothing else events)
        if self.last_bytes and not script.no_done:
            yield self.last_bytes

    def error_event(self, refusal: Refusal, request_id: str) -> bytes:
        return self.encode(self.refusal(refusal, request_id))

    def answer_headers(self, request_id: str) -> dict[str, str]:
        cookie = {"set-cookie": "__demo=1; path=/; HttpOnly"}
        return {self.request_id_header: request_id, **self.headers, **cookie}


def is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == JSON_TYPE


def bearer(headers: Mapping[str, str]) -> str:
    """Return the key of the header `authorization`; "" without one."""
    match = BEARER.fullmatch(headers.get("authorization", ""))
    return match[1] if match else ""


def written(path: Path) -> str:
    """Return a path in the spelling of the vendors' errors: `contents[0].parts[1].text`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def without_usage(value: dict[str, Any]) -> dict[str, Any]:
    """Return an answer, or an event of one, that reports no usage."""
    return {
        name: without_usage(field) if name in ("message", "response") else field
        for name, field in value.items()
        if name not in ("usage", "usageMetadata")
    }


def without(events: Iterable[dict[str, Any]], *kinds: str) -> Iterator[dict[str, Any]]:
    return (event for event in events if event["type"] not in kinds)


def is_signed(value: str | bytes, data: bytes | None = None) -> bool:
    """Return True if `demo.speech.sign` made this value, and, if `data` is given, from this
    data."""
    try:
        raw = base64.b64decode(value, validate=True) if isinstance(value, str) else value
    except (binascii.Error, ValueError):
        return False
    signed = raw.removeprefix(SIGNATURE_MARK)[:-SIGNATURE_BYTES] if data is None else data
    return base64.b64decode(sign(signed)) == raw
