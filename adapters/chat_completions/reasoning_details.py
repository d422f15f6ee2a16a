"""The details of reasoning that OpenRouter and similar servers send in addition to its text:
thoughts with signatures and encrypted thoughts, each in the format of the model's own vendor.

The model needs all of them back unchanged to continue, so they are the opaque state of a thought.
In a stream they arrive in chunks. Source: OpenRouter's documentation of reasoning tokens.
"""

from collections.abc import Iterable
from typing import Any

from adapters.json.jsonio import dumps, loads_or_none

FIELD = "reasoning_details"
MAX_DETAILS = 1024  # limit in one message

_TEXTS = ("text", "summary")  # fields that arrive in chunks

Details = list[dict[str, Any]]


def read_details(message: dict[str, Any]) -> Details:
    """Return the details of a message or delta."""
    details = message.get(FIELD)
    listed = details[:MAX_DETAILS] if isinstance(details, list) else ()
    return [detail for detail in listed if isinstance(detail, dict)]


def add_details(details: Details, more: Iterable[dict[str, Any]]) -> None:
    """Add details or chunks of them: one of the same kind and index as the last continues it."""
    for piece in more:
        last = details[-1] if details else {}
        if not _continues(last, piece):
            if len(details) < MAX_DETAILS:
                details.append(dict(piece))
            continue
        for name, value in piece.items():
            if name in _TEXTS and isinstance(last.get(name), str) and isinstance(value, str):
                last[name] += value
            elif value is not None:
                last[name] = value


def is_late(details: Details) -> bool:
    """Return true for details of a model that sends a call's state after the call: Gemini."""
    return any(str(detail.get("format")).startswith("google") for detail in details)


def seal_details(details: Details) -> str:
    """Return the details as one text; empty if they cannot be written."""
    try:
        return dumps(details).decode("ascii")
    except OverflowError:
        return ""


def details_of(opaque: str) -> Details:
    """Return the sealed details; none for any other text."""
    values = loads_or_none(opaque.encode(errors="replace")) if opaque.startswith("[") else None
    return [value for value in values if isinstance(value, dict)] if values else []


def _continues(last: dict[str, Any], piece: dict[str, Any]) -> bool:
    kind = piece.get("type")
    return (
        kind in ("reasoning.text", "reasoning.summary")
        and (kind, piece.get("index")) == (last.get("type"), last.get("index"))
        and (last.get("id") or piece.get("id")) == (piece.get("id") or last.get("id"))
    )
