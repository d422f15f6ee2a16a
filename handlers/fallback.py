"""Paths that are no endpoint: what is wrong with the base URL, and the probes of clients."""

from collections.abc import Mapping

from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.intake import BodyHandler

# last part of a path -> family whose clients build it
_ENDS: Mapping[str, str] = {
    "/chat/completions": "chat_completions",
    "/messages": "messages",
    "/messages/count_tokens": "messages",
}
# what clients of a family are given as base URL (specification §1 rules 1 to 4)
_BASES: Mapping[str, str] = {"chat_completions": "/v1", "messages": ""}
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
        family = _family_of(path)
        if family is None and path.startswith("/v1/"):
            family = "messages" if path.startswith("/v1/messages") else "chat_completions"
        return FAMILIES[family] if family else super().dialect

    def check_head(self) -> None:
        """Nothing is found here."""
        request = self.request
        path = request.path
        family = _family_of(path)
        base = self.site.base_url
        if family is None:
            shown = path[:_PATH_SHOWN_MAX]
            raise Fault(Condition.UNKNOWN_PATH, f"No such endpoint: {request.method} {shown}.")
        right = base + _BASES[family]
        doubled = _doubled_part(path, family)
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


def _family_of(path: str) -> str | None:
    trimmed = path.rstrip("/")
    for end, family in _ENDS.items():
        if trimmed.endswith(end):
            return family
    return None


def _doubled_part(path: str, family: str) -> str | None:
    """The part that the base URL has in excess: what stands before the path the client appends."""
    trimmed = path.rstrip("/")
    end = max((e for e in _ENDS if trimmed.endswith(e)), key=len)
    before = trimmed[: -len(end)]
    # One version is right: clients of messages append it, those of chat have it in their base URL.
    excess = before.removesuffix("/v1")
    if before in _VERSIONS or not excess.endswith((*_ENDS, *_VERSIONS)):
        return None
    return (excess if family == "messages" else before)[:_PATH_SHOWN_MAX]
