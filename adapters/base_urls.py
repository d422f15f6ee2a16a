"""Base URLs of the clients of each family, and the one from which a path was built.

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
"""What the base URL of a family's clients ends with."""

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
_MODEL_CALL = re.compile(r"/models/.+:[A-Za-z]+")  # the end of paths of generate_content
_LEADING_VERSIONS = re.compile(r"(?:/v1(?:beta)?(?=/|$))*")
PATH_SHOWN_CHARS = 200


def end_of(path: str) -> tuple[str | None, str]:
    """Return the family whose clients build such an end of a path, and the end itself."""
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
    """Return a path without the end that a client built, else the versions that it begins with."""
    _, end = end_of(path)
    return path.rstrip("/").removesuffix(end) if end else leading_versions(path)


def leading_versions(path: str) -> str:
    """Return the versions that a path begins with."""
    match = _LEADING_VERSIONS.match(path)
    return match[0] if match else ""


def doubled_part(before: str, family: str) -> str | None:
    """Return the part that the base URL has in excess; ``before`` is the path without its end."""
    excess = before.removesuffix(_version_of(before))
    # One version is right: it is the client's, or the base URL's.
    if before in VERSIONS or not excess.endswith((*_ENDS, *VERSIONS)):
        return None
    return (excess if family in APPEND_VERSION else before)[:PATH_SHOWN_CHARS]


def given_path(path: str) -> str | None:
    """Return the path of the base URL of a client that requested this path; None when the end of
    the path does not tell what the client appended."""
    family, end = end_of(path)
    if family is None:
        return None
    before = path.rstrip("/").removesuffix(end)
    return before.removesuffix(_version_of(before)) if family in APPEND_VERSION else before


def _version_of(before: str) -> str:
    return next((version for version in VERSIONS if before.endswith(version)), "")
