"""Paths that are no endpoint: what is wrong with the base URL, and the probes of clients."""

import re
from collections.abc import Mapping

from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.intake import BodyHandler

# last part of a path -> family whose clients build it
_ENDS: Mapping[str, str] = {
    "/chat/completions": "chat_completions",
    "/responses": "responses",
    "/responses/input_tokens": "responses",
    "/responses/compact": "responses",
    "/messages": "messages",
    "/messages/count_tokens": "messages",
}
_MODEL_CALL = re.compile(r"/models/.+:[A-Za-z]+")  # the end of paths of generate_content
# what clients of a family are given as base URL (specification §1 rules 1 to 4)
_BASES: Mapping[str, str] = {
    "chat_completions": "/v1",
    "responses": "/v1",
    "messages": "",
    "generate_content": "",
}
# Clients of these put the version into the path themselves.
_APPEND_VERSION = frozenset({"messages", "generate_content"})
# families whose paths begin so, when the end tells none
_BEGINNINGS = {
    "/v1/messages": "messages",
    "/v1/responses": "responses",
    "/v1/": "chat_completions",
    "/v1beta/": "generate_content",
}
_VERSIONS = ("/v1", "/v1beta")
_PATH_SHOWN_MAX = 200


class RootHandler(BodyHandler):
    """GET and HEAD /: coding clients probe it before their first call."""

    ALLOW = "GET, HEAD"
    READS_BODY = False
    BODY = b'{"service":"sluice"}'

    def check_head(self) -> None:
        """Nothing but the method."""
        if self.request.method not in ("GET", "HEAD"):
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=self.ALLOW)

    def complete(self, body: bytes) -> None:
        """Says what this is."""
        self.respond(self.BODY)


class LivezHandler(RootHandler):
    """GET /livez: the loop runs."""

    BODY = b'{"live":true}'


class FallbackHandler(BodyHandler):
    """Every other path: 404 with the base URL that would be right."""

    @property
    def dialect(self) -> Family:
        """The shape of the family the path ends with or begins with, else what headers show."""
        path = self.request.path
        family, _ = _end_of(path)
        begun = (name for start, name in _BEGINNINGS.items() if path.startswith(start))
        family = family or next(begun, None)
        return FAMILIES[family] if family else super().dialect

    def check_head(self) -> None:
        """Nothing is found here."""
        request = self.request
        path = request.path
        family, end = _end_of(path)
        base = self.site.base_url
        if family is None:
            shown = path[:_PATH_SHOWN_MAX]
            raise Fault(Condition.UNKNOWN_PATH, f"No such endpoint: {request.method} {shown}.")
        right = base + _BASES[family]
        doubled = _doubled_part(path.rstrip("/").removesuffix(end), family)
        if doubled:
            message = f"the base URL already contains {doubled}; set it to {right}."
            raise Fault(Condition.DUPLICATED_PATH, "No such endpoint: " + message)
        shown = path[:_PATH_SHOWN_MAX]
        raise Fault(
            Condition.UNKNOWN_PATH,
            f"No such endpoint: {request.method} {shown}; set the base URL to {right}.",
        )

    def complete(self, body: bytes) -> None:
        """Never: the head is always refused."""
        raise AssertionError


def _end_of(path: str) -> tuple[str | None, str]:
    """The family whose clients build such an end of a path, and the end itself."""
    trimmed = path.rstrip("/")
    ends = [end for end in _ENDS if trimmed.endswith(end)]
    if ends:
        longest = max(ends, key=len)
        return _ENDS[longest], longest
    match = _MODEL_CALL.search(trimmed)
    if match is not None and match.end() == len(trimmed):
        return "generate_content", match[0]
    return None, ""


def _doubled_part(before: str, family: str) -> str | None:
    """The part that the base URL has in excess; `before` is the path without its end."""
    version = next((v for v in _VERSIONS if before.endswith(v)), "")
    # One version is right: it is the client's, or the base URL's.
    excess = before.removesuffix(version)
    if before in _VERSIONS or not excess.endswith((*_ENDS, *_VERSIONS)):
        return None
    return (excess if family in _APPEND_VERSION else before)[:_PATH_SHOWN_MAX]
