"""Paths that are no endpoint, with what is wrong with the base URL; `/` and `/livez`."""

import re
from collections.abc import Mapping

from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.http.intake import BodyHandler

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
_LEADING_VERSIONS = re.compile(r"(?:/v1(?:beta)?(?=/|$))*")
_OTHER_VERSION = re.compile(r"/v\d\w*(?=/|$)")
_PATH_SHOWN_MAX = 200


class RootHandler(BodyHandler):
    """GET and HEAD /: coding clients probe it before their first call."""

    ALLOW = "GET, HEAD"
    READS_BODY = False
    BODY = b'{"service":"sluice"}'

    def check_head(self) -> None:
        """The method."""
        if self.request.method not in ("GET", "HEAD"):
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=self.ALLOW)

    def complete(self, body: bytes) -> None:
        """Answers the constant."""
        self.respond(self.BODY)


class LivezHandler(RootHandler):
    """GET /livez: the event loop is running."""

    BODY = b'{"live":true}'


class FallbackHandler(BodyHandler):
    """Every other path: 404 with the base URL that would be right."""

    @property
    def dialect(self) -> Family:
        """The shape of the family the path ends with or begins with, else what headers show."""
        path = self.request.path
        family, _ = _end_of(path)
        if family is None and not _is_shared_list(path):
            begun = (name for start, name in _BEGINNINGS.items() if path.startswith(start))
            family = next(begun, None)
        return FAMILIES[family] if family else super().dialect

    def check_head(self) -> None:
        """Always refuses, with a message that names the right base URL."""
        path = self.request.path
        found, end = _end_of(path)
        family = found or self.dialect.name
        right = self.site.base_url + _BASES[family]
        before = path.rstrip("/").removesuffix(end) if end else _leading_versions(path)
        doubled = _doubled_part(before, family)
        if doubled:
            message = f"the base URL already contains {doubled}; set it to {right}."
            raise Fault(Condition.DUPLICATED_PATH, "No such endpoint: " + message)
        known = found is not None or path == "/models"
        cure = _cure(before, family, right) if known else ""
        shown = f"{self.request.method} {path[:_PATH_SHOWN_MAX]}"
        raise Fault(Condition.UNKNOWN_PATH, f"No such endpoint: {shown}{cure}.")

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


def _is_shared_list(path: str) -> bool:
    """Whether a path asks for models where several families do."""
    versions = _leading_versions(path)
    what = path.removeprefix(versions)
    return not versions.endswith("/v1beta") and (what == "/models" or what.startswith("/models/"))


def _leading_versions(path: str) -> str:
    match = _LEADING_VERSIONS.match(path)
    return match[0] if match else ""


def _cure(before: str, family: str, right: str) -> str:
    """What to do about a path whose end a client of the family builds."""
    if family == "generate_content":
        if before in _VERSIONS:
            return ""  # the base URL is right; what is asked of the model is not offered
        if _OTHER_VERSION.match(before):
            return "; the versions served are v1beta and v1"
    return f"; set the base URL to {right}"


def _doubled_part(before: str, family: str) -> str | None:
    """The part that the base URL has in excess; `before` is the path without its end."""
    version = next((v for v in _VERSIONS if before.endswith(v)), "")
    # One version is right: it is the client's, or the base URL's.
    excess = before.removesuffix(version)
    if before in _VERSIONS or not excess.endswith((*_ENDS, *_VERSIONS)):
        return None
    return (excess if family in _APPEND_VERSION else before)[:_PATH_SHOWN_MAX]
