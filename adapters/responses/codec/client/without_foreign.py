"""A client's body for an upstream of this family, without what translated answers have left in it.

Imported by this folder's ``__init__``.
"""

import re

from adapters.json.jsonio import Span, Spans, dumps, elements, loads_or_none, replace
from adapters.responses.codec.client.response_object import THOUGHT_ID

# A wrapper as ``adapters.opaque`` writes it, in whatever item it stands.
_WRAPPED = re.compile(r"gw1\.[a-z_]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]{16}")


def without_foreign(spans: Spans, upstream_model: str) -> bytes:
    """The body without reasoning items of other families, with the upstream's name of the model
    (see ``family.codec.ClientCodec``); every other byte stays."""
    edits: dict[Span, bytes] = {}
    model, place = spans.get("model"), spans.get("input")
    if model is not None and loads_or_none(spans.raw("model") or b"") != upstream_model:
        edits[model] = dumps(upstream_model)
    if place is not None and spans.body.startswith(b"[", place.start):
        items = [bytes(item) for item in elements(spans.raw("input") or b"") or ()]
        kept = [item for item in items if not _is_foreign(item)]
        if len(kept) < len(items):
            edits[place] = b"[%b]" % b",".join(kept)
    return replace(spans.body, edits) if edits else spans.body


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
