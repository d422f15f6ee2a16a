"""A client's body for an upstream of this family, without what translated answers have left in it.

Imported by this folder's ``__init__``.
"""

import re
from collections.abc import Callable

from adapters.json.jsonio import Span, Spans, dumps, elements, loads_or_none, replace
from adapters.responses.kept import THOUGHT_ID

# A wrapper as ``adapters.opaque`` writes it, in whatever item it stands.
_WRAPPED = re.compile(r"gw1\.[a-z_]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{16}")


def without_foreign(spans: Spans, upstream_model: str) -> bytes:
    """The body without reasoning items of other families, with the upstream's name of the model
    (see ``family.codec.ClientCodec``); every other byte stays."""
    edits = _without(spans, _is_foreign)
    model = spans.get("model")
    if model is not None and loads_or_none(spans.raw("model") or b"") != upstream_model:
        edits[model] = dumps(upstream_model)
    return replace(spans.body, edits) if edits else spans.body


def without_reasoning(spans: Spans, upstream_model: str) -> bytes:
    """The body without any reasoning items, of whoever; the same when there are none."""
    edits = _without(spans, _is_thought)
    return replace(spans.body, edits) if edits else spans.body


def _without(spans: Spans, is_out: Callable[[bytes], bool]) -> dict[Span, bytes]:
    """The edits that take items out of the input."""
    place = spans.get("input")
    if place is None or not spans.body.startswith(b"[", place.start):
        return {}
    items = [bytes(item) for item in elements(spans.raw("input") or b"") or ()]
    kept = [item for item in items if not is_out(item)]
    return {place: b"[%b]" % b",".join(kept)} if len(kept) < len(items) else {}


def _is_thought(item: bytes) -> bool:
    said = loads_or_none(item) if b'"reasoning"' in item else None
    return isinstance(said, dict) and said.get("type") == "reasoning"


def _is_foreign(item: bytes) -> bool:
    """Whether an item is a thought of a translated answer, or refers to one."""
    if b"gw1" not in item:
        return False
    said = loads_or_none(item)
    if not isinstance(said, dict) or said.get("type") not in ("reasoning", "item_reference"):
        return False
    name, sealed = said.get("id"), said.get("encrypted_content")
    if isinstance(name, str) and name.startswith(THOUGHT_ID):
        return True
    return isinstance(sealed, str) and _WRAPPED.fullmatch(sealed) is not None
