"""Base URLs that clients of each family use, and the base URL that a requested path implies.

Facts: the paths that clients append to their base URL (docs/clients.md). For the answers of unknown
paths, and for the Hub, which shows base URLs.
"""

import re
from collections.abc import Mapping

BASE_PATHS: Mapping[str, str] = {
    "chat_completions": "/v1",
    "responses": "/v1",
    "messages": "",
    "generate_content": "",
}
"""The path that the base URL of a family's clients ends with."""

APPEND_VERSION = frozenset({"messages", "generate_content"})
"""Families whose clients put the version into the path themselves."""

VERSIONS = ("/v1", "/v1beta")

# last part of a path -> family whose clients build it
_ENDS: Mapping[str, str] = {
    "/chat/completions": "chat_completions",
    "/responses": "responses",
    "/responses/input_tokens": "responses",
    "/responses/compact": "responses",
    "/embeddings": "chat_completions",
    "/completions": "chat_completions",
    "/moderations": "chat_completions",
    "/rerank": "chat_completions",
    "/images/generations": "chat_completions",
    "/images/edits": "chat_completions",
    "/audio/speech": "chat_completions",
    "/audio/transcriptions": "chat_completions",
    "/audio/translations": "chat_completions",
    "/messages": "messages",
    "/messages/count_tokens": "messages",
}
_MODEL_CALL = re.compile(r"/models/.+:[A-Za-z]+")  # the end of a generate_content path
_LEADING_VERSIONS = re.compile(r"(?:/v1(?:beta)?(?=/|$))*")
PATH_SHOWN_CHARS = 200


def end_of(path: str) -> tuple[str | None, str]:
    """Return the family whose clients append this end to a base URL, and the end itself."""
    trimmed = path.rstrip("/")
    ends = [end for end in _ENDS if trimmed.endswith(end)]
    if ends:
        longest = max(ends, key=len)
        return _ENDS[longest], longest
    match = _MODEL_CALL.search(trimmed)
    if match is not None and match.end() == len(trimmed):
        return "generate_content", match[0]
    return None, ""


def before_end(path: str) -> str:
    """Return the path without the end that the client appended. If there is none, return the
    versions that the path begins with."""
    _, end = end_of(path)
    return path.rstrip("/").removesuffix(end) if end else leading_versions(path)


def leading_versions(path: str) -> str:
    """Return the versions that a path begins with."""
    match = _LEADING_VERSIONS.match(path)
    return match[0] if match else ""


def doubled_part(before: str, family: str) -> str | None:
    """Return the surplus part of the base URL, or None. ``before`` is the path without its end."""
    excess = before.removesuffix(_version_of(before))
    # One version is correct: either the client or the base URL adds it.
    if before in VERSIONS or not excess.endswith((*_ENDS, *VERSIONS)):
        return None
    return (excess if family in APPEND_VERSION else before)[:PATH_SHOWN_CHARS]


def given_path(path: str) -> str | None:
    """Return the path of the base URL that a client with this request path uses. None if the end
    of the path is unknown."""
    family, end = end_of(path)
    if family is None:
        return None
    before = path.rstrip("/").removesuffix(end)
    return before.removesuffix(_version_of(before)) if family in APPEND_VERSION else before


def _version_of(before: str) -> str:
    return next((version for version in VERSIONS if before.endswith(version)), "")
