"""A client's body for an upstream of this family, without what translated answers have left in it.

Imported by this folder's ``__init__``.
"""

from collections.abc import Callable
from typing import Any

from adapters.generate_content.codec.encode_turns import wants_signatures
from adapters.generate_content.codec.wire.fields import snake
from adapters.generate_content.codec.wire.opaque_state import BYPASS
from adapters.generate_content.codec.wire.parts import signed
from adapters.json.jsonio import Raw, Span, Spans, dumps, elements, inner_level, loads, replace

# How base64 of what ``adapters.opaque`` has wrapped begins.
MARK = b"Z3cxL"

_WRAPPED = b"gw1."
_SIGNATURE = "thoughtSignature"
_COUNTED = "generateContentRequest"


def without_foreign(spans: Spans, model: str) -> bytes:
    """See ``ClientCodec``: signatures of other families go. A call that loses its own has the value
    that is documented for it when the model wants one. Contents without any stay byte for byte."""
    return _without(spans, model, MARK, _is_ours)


def without_reasoning(spans: Spans, model: str) -> bytes:
    """The same for all signatures, of whoever."""
    return _without(spans, model, b"ignature", _is_signed)


def _without(
    spans: Spans, model: str, mark: bytes, is_out: Callable[[dict[str, Any]], bool]
) -> bytes:
    """The body without the signatures of parts that ``is_out`` tells, in contents with ``mark``."""
    edits: dict[Span, bytes] = {}
    for fields, offset in _requests(spans):
        place = fields.get("contents")
        if place is None:
            continue
        at = place.start
        for element in elements(fields.body[place.start : place.end]) or ():
            text = bytes(element)
            at = fields.body.index(text, at)
            if mark in text:
                span = Span(offset + at, offset + at + len(text))
                edits[span] = _cleaned(element, is_out, signs=wants_signatures(model))
            at += len(text)
    return replace(spans.body, edits) if edits else spans.body


def _requests(spans: Spans) -> list[tuple[Spans, int]]:
    """The request, and the one that is to be counted, each with where its text begins."""
    found = [(spans, 0)]
    for name in (_COUNTED, snake(_COUNTED)):
        place, raw = spans.get(name), spans.raw(name)
        if place is not None and raw is not None and raw.startswith(b"{"):
            found.append((inner_level(raw), place.start))
    return found


def _cleaned(element: Raw, is_out: Callable[[dict[str, Any]], bool], *, signs: bool) -> bytes:
    content = loads(bytes(element))
    parts = content.get("parts") if isinstance(content, dict) else None
    kept: list[Any] = []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and is_out(part):
            part = _without_signature(part, signs=signs)
            if part == {"text": ""} and len(parts or ()) > 1:
                continue
        kept.append(part)
    if isinstance(parts, list) and parts:
        content["parts"] = kept or [{"text": ""}]
    return dumps(content)


def _is_signed(part: dict[str, Any]) -> bool:
    return _SIGNATURE in part or snake(_SIGNATURE) in part


def _is_ours(part: dict[str, Any]) -> bool:
    said = part.get(_SIGNATURE, part.get(snake(_SIGNATURE)))
    return isinstance(said, str) and signed(said).startswith(_WRAPPED)


def _without_signature(part: dict[str, Any], *, signs: bool) -> dict[str, Any]:
    left = {
        name: value for name, value in part.items() if name not in (_SIGNATURE, snake(_SIGNATURE))
    }
    if signs and ("functionCall" in left or "function_call" in left):
        left[_SIGNATURE] = BYPASS
    return left
