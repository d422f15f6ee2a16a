"""Encrypted reasoning of the responses family: one text for each reasoning item, and the cleaning
of the gateway's own opaque state from a client's body before a vendor of this family gets it.
"""

from collections.abc import Callable
from typing import Any

from adapters.family.opaque import PREFIX, is_wrapped, summary_of
from adapters.json.jsonio import Span, Spans, dumps, elements, loads_or_none, replace

# Prefix of reasoning ids in translated answers. No vendor of this family knows these ids, and items
# without encrypted content must also be recognizable in a client's history.
THOUGHT_ID = f"rs_{PREFIX}"
COMPACTIONS = frozenset({"compaction", "compaction_summary", "context_compaction"})
COMPACTION_TRIGGER = "compaction_trigger"
SUMMARY_TITLE = "Summary of the conversation before:\n\n"


def seal(item: dict[str, Any]) -> str:
    """Return the text that brings a reasoning item back to its maker; empty if not encrypted."""
    content = item.get("encrypted_content")
    if not isinstance(content, str) or not content:
        return ""
    name = item.get("id")
    return dumps([name if isinstance(name, str) else "", content]).decode()


def unseal(opaque: str, text: str) -> dict[str, Any] | None:
    """Return the item that was sealed, with the client's text of it; None for other texts."""
    values = loads_or_none(opaque.encode(errors="replace")) if opaque else None
    if not isinstance(values, list) or [type(value) for value in values] != [str, str]:
        return None
    name, content = values
    summary = [{"type": "summary_text", "text": text}] if text else []
    item = {"type": "reasoning", "summary": summary, "encrypted_content": content}
    return {**item, "id": name} if name else item


def without_foreign(spans: Spans, upstream_model: str) -> bytes:
    """Return the body without reasoning items of other families, with the gateway's summaries as
    texts, and with the upstream's name of the model. Every other byte stays (see
    ``family.codec.ClientCodec``)."""
    edits = _changed(spans, _of_this_family)
    model = spans.get("model")
    if model is not None and loads_or_none(spans.raw("model") or b"") != upstream_model:
        edits[model] = dumps(upstream_model)
    return replace(spans.body, edits) if edits else spans.body


def without_reasoning(spans: Spans, upstream_model: str) -> bytes:
    """Return the body without any reasoning items; the same object if there are none."""
    edits = _changed(spans, lambda item: None if _is_thought(item) else item)
    return replace(spans.body, edits) if edits else spans.body


def _changed(spans: Spans, change: Callable[[bytes], bytes | None]) -> dict[Span, bytes]:
    """Return the edits for changed items of the input. ``change``: returns None to remove the
    item."""
    place = spans.get("input")
    if place is None or not spans.body.startswith(b"[", place.start):
        return {}
    items = [bytes(item) for item in elements(spans.raw("input") or b"") or ()]
    remaining = [edited for item in items if (edited := change(item)) is not None]
    return {place: b"[%b]" % b",".join(remaining)} if remaining != items else {}


def _is_thought(item: bytes) -> bool:
    decoded = loads_or_none(item) if b'"reasoning"' in item else None
    return isinstance(decoded, dict) and decoded.get("type") == "reasoning"


def _of_this_family(item: bytes) -> bytes | None:
    """Return an item in the form that a vendor of this family accepts: a summary of the gateway
    becomes a message. None for reasoning of a translated answer, or a reference to it."""
    decoded = loads_or_none(item) if b"gw1" in item else None
    if not isinstance(decoded, dict):
        return item
    kind, name, sealed = (decoded.get(field) for field in ("type", "id", "encrypted_content"))
    if kind in COMPACTIONS and (summary := summary_of(sealed)) is not None:
        return dumps({"type": "message", "role": "user", "content": SUMMARY_TITLE + summary})
    if kind not in ("reasoning", "item_reference"):
        return item
    if isinstance(name, str) and name.startswith(THOUGHT_ID):
        return None
    return None if isinstance(sealed, str) and is_wrapped(sealed) else item
